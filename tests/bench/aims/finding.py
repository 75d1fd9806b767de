"""What a benchmark of an aim hands back, and what it is given."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.bench.primitives import SyncProbe
from tests.bench.throughput import Timing

SPREAD_MAX = 0.25


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table. `reached`: None where there is nothing to reach, or where it cannot be
    told."""

    aim: str
    found: str
    reached: bool | None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """For a benchmark: its own folder, the disk's probe, how long, and how deep."""

    root: Path
    probe: SyncProbe
    timing: Timing
    depth: int
    quick: bool

    def folder(self, name: str) -> Path:
        """A new folder that servers which run as nobody can enter."""
        made = self.root / name
        made.mkdir(mode=0o755)
        return made


def said(text: str) -> None:
    """Progress, for who waits."""
    sys.stderr.write(text)
    sys.stderr.flush()


def at_most(aim: str, value: float, limit: float, words: str, **details: Any) -> Finding:
    """Reached when `value` is not above `limit`; the words say the value with its unit."""
    return Finding(aim, words, value <= limit, {"value": value, "limit": limit, **details})


def at_least(aim: str, value: float, limit: float, words: str, **details: Any) -> Finding:
    """Reached when `value` is not below `limit`."""
    return Finding(aim, words, value >= limit, {"value": value, "limit": limit, **details})


def steady(finding: Finding, spread: float) -> Finding:
    """The same, but not judged where rounds of one and the same thing differ by more than
    SPREAD_MAX: then a few per cent cannot be seen."""
    return finding if spread <= SPREAD_MAX else replace(finding, reached=None)
