"""The raised alarms as omstat and omtop show them, from run/alarms.json, while a watcher runs."""

from __future__ import annotations

from typing import Final

from omq.base.names import escape
from omq.cli.watch import alarm_file
from omq.cli.watch.conditions import Condition, raised
from omq.services.daemon.options import Location

_SHOWN: Final = 5
_LINE_MAX: Final = 1024


def alarms(location: Location) -> list[Condition]:
    """The raised ones; none while no watcher runs."""
    kept = alarm_file.read(location.paths)
    return raised(kept.conditions.values()) if kept.living else []


def alarm_records(location: Location) -> list[dict[str, object]]:
    """As `omq health --json` has them."""
    return [each.record() for each in alarms(location)]


def alarm_lines(location: Location) -> list[str]:
    """A line each; of many the number of the rest."""
    found = alarms(location)
    lines = [f"ALARM {escape(each.text(), _LINE_MAX)}" for each in found[:_SHOWN]]
    return lines + ([f"ALARM and {len(found) - _SHOWN} more: omq health"]
                    if len(found) > _SHOWN else [])
