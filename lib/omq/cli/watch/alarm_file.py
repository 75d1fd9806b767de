"""run/alarms.json: what `omq health --watch` has found, for omstat, omtop and the next watcher.

    {"boot", "pid", "started", "time_ns", "told_ns": {alarm: ns}, "conditions": [Condition ...],
     "owed": {"begun": [Condition ...], "over": [Condition ...]}}

Written by rename, not synced: after a reboot it means nothing, and says so by its boot id. The
watcher that wrote it is known by pid and start time; what a dead one left is taken up by the next
and shown by nobody. Foreign content counts as none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from omq.base import clock, modes, side_files
from omq.base.paths import SpoolPaths
from omq.cli.watch.conditions import Condition, Key, Owed

FILE_NAME: Final = "alarms.json"
_BYTES_MAX: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """What the file says. `living`: the watcher that wrote it runs."""

    living: bool = False
    conditions: dict[Key, Condition] = field(default_factory=dict)
    told_ns: dict[str, int] = field(default_factory=dict)  # last notice of each alarm
    owed: Owed = field(default_factory=Owed)


def write(paths: SpoolPaths, conditions: Mapping[Key, Condition], told_ns: Mapping[str, int],
          owed: Owed) -> None:
    """As this process sees it."""
    record = {
        "boot": clock.boot_id().hex(), "pid": os.getpid(),
        "started": clock.process_start_ticks(os.getpid()), "time_ns": clock.wall_ns(),
        "told_ns": dict(told_ns), "conditions": [asdict(each) for each in conditions.values()],
        "owed": asdict(owed)}
    side_files.replace(paths.run / FILE_NAME, (json.dumps(record) + "\n").encode("ascii"),
                       modes.PUBLIC)


def read(paths: SpoolPaths) -> Kept:
    """What is there; nothing where there is no such file, it is none, or it is of another boot."""
    found = _load(paths.run / FILE_NAME)
    try:
        if found["boot"] != clock.boot_id().hex():
            return Kept()
        living = clock.process_start_ticks(int(found["pid"])) == found["started"]
        rows = _conditions(found["conditions"])
        owed = Owed(_conditions(found["owed"]["begun"]), _conditions(found["owed"]["over"]))
        told = {str(name): int(when) for name, when in found["told_ns"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return Kept()
    return Kept(living, {each.key: each for each in rows}, told, owed)


def _conditions(rows: Iterable[Mapping[str, Any]]) -> tuple[Condition, ...]:
    return tuple(Condition(
        str(row["alarm"]), str(row["queue"]), str(row["severity"]), float(row["value"]),
        int(row["since_ns"]), bool(row["raised"]), int(row["clearing_ns"]),
        str(row.get("why", "")), tuple(map(str, row.get("hints", ())))) for row in rows)


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
        found = json.loads(data) if len(data) <= _BYTES_MAX else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
