"""What a scheduler noted of its sends, read for what-if: logs/SERVICE.sends.jsonl, written by
omq.services.delivery.sends, whose lines are described there.

A file is what a running service writes, a copy of it, or damaged: a line that is none is counted
and left out, as is one of a version that says something else. Errors: BadRequest: it cannot be
read, or has no send of that time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from omq.base.clock import NS_PER_S
from omq.base.errors import BadRequest
from omq.base.limits import PRIORITIES
from omq.services.delivery.rules import KEYS, Rules

_RULES: Final = frozenset(KEYS.values())


@dataclass(frozen=True, slots=True)
class Send:
    """One Mlist that a process had; seconds."""

    came_s: float
    channel: str
    peer: str
    priority: int
    wait_s: float
    spent_s: float
    reached: bool


@dataclass(frozen=True, slots=True)
class Since:
    """The rules from a time on; `begins`: of a scheduler that has no process yet."""

    at_s: float
    rules: Rules
    begins: bool


@dataclass(slots=True)
class Record:
    """`sends` in the order in which they came, `since` in that of time; `unreadable`: lines left
    out; `missing`: sends that the scheduler could not note."""

    sends: list[Send] = field(default_factory=list)
    since: list[Since] = field(default_factory=list)
    unreadable: int = 0
    missing: int = 0


def read(files: Iterable[Path], from_ns: int = 0, to_ns: int = 1 << 62) -> Record:
    """All lines of these files, in any order; of the sends those that came in a span."""
    record = Record()
    for path in files:
        try:
            with path.open("rb") as lines:
                for line in lines:
                    if line.strip():
                        _take(record, line, from_ns, to_ns)
        except OSError as error:
            raise BadRequest(reason=f"{path}: {error.strerror}") from error
    if not record.sends:
        raise BadRequest(reason="no send of that time is noted there; the files are "
                                "logs/SERVICE.sends.jsonl of a spool (and .1), while "
                                "qmgr_sends_bytes_max is not 0")
    record.sends.sort(key=lambda each: each.came_s)
    record.since.sort(key=lambda each: each.at_s)
    return record


def _take(record: Record, line: bytes, from_ns: int, to_ns: int) -> None:
    try:
        said = json.loads(line)
        if "rules" in said:
            record.since.append(_since(said))
        elif "missing" in said:
            record.missing += int(_number(said, "missing"))
        else:
            send = _send(said)
            if from_ns <= send.came_s * NS_PER_S < to_ns:
                record.sends.append(send)
    except (ValueError, TypeError, KeyError, RecursionError):
        record.unreadable += 1


def _send(said: Mapping[str, Any]) -> Send:
    priority = int(_number(said, "priority"))
    if not (isinstance(said["peer"], str) and isinstance(said["channel"], str)
            and priority < PRIORITIES):
        raise ValueError
    return Send(_number(said, "came_ns") / NS_PER_S, said["channel"], said["peer"], priority,
                _number(said, "wait_s"), _number(said, "spent_s"), said["reached"] is True)


def _since(said: Mapping[str, Any]) -> Since:
    """A rule that is not said is the usual one, one that is not known here counts for nothing."""
    known = {name: _number(said["rules"], name) for name in said["rules"] if name in _RULES}
    usual = Rules()
    return Since(_number(said, "at_ns") / NS_PER_S, Rules(**{
        name: type(getattr(usual, name))(value) for name, value in known.items()}),
        said["begins"] is True)


def _number(said: Mapping[str, Any], name: str) -> float:
    value = said[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) \
            or value < 0:
        raise ValueError
    return value
