"""The test files as units: what is dealt out to parts, left out and recorded as one."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
RECORD: Final = ROOT / "tests/durations.json"
SHARED: Final = ("tests/spark", "tests/system")
"""Folders whose tests share what takes long to start."""
ALONE: Final = frozenset(f"tests/spark/test_{name}.py" for name in (
    "absent", "audit_steps", "believed", "bronze", "classes", "cluster", "compact", "disturbed",
    "flips", "follow", "hand_outs", "kept", "mutants", "object_store", "plain", "report",
    "report_browser", "sends", "walkthrough"))
"""Files in them whose tests do not ask for what is shared."""


def unit_of(path: Path) -> str:
    """What is dealt out as one: a file of tests, or the folder that shares something."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()
    if name in ALONE:
        return name
    return next((each for each in SHARED if name.startswith(f"{each}/")), name)


def all_units() -> set[str]:
    """All that there are."""
    return {unit_of(path) for path in (ROOT / "tests").rglob("test_*.py")}


def recorded() -> dict[str, float]:
    """Seconds by unit; nothing when there is no record."""
    return dict(json.loads(RECORD.read_text())) if RECORD.exists() else {}


def divide(units: Iterable[str], seconds: Mapping[str, float], parts: int) -> list[list[str]]:
    """The units of each part, the longest first, each to the part that has least; every unit is in
    exactly one. One without a record counts as the middle one."""
    unknown = statistics.median(seconds.values()) if seconds else 1.0
    load, found = [0.0] * parts, [list[str]() for _ in range(parts)]
    for unit in sorted(set(units), key=lambda each: (-seconds.get(each, unknown), each)):
        least = load.index(min(load))
        load[least] += seconds.get(unit, unknown)
        found[least].append(unit)
    return found
