"""When a schedule is due: five fields of cron in a time zone, or an interval.

    0 3 * * *         of cron, by the package cronsim, which does what Debian's cron does at a clock
                      change: a job of a skipped hour is due right after it, one of an hour that
                      comes twice is due once, and one that is due each hour or minute has them all
    every 15 min      s, min, h or days of 24 hours, counted from when it was defined; no zone, and
                      no clock change alters it

Times are whole seconds, as ns since 1970. Invariant: `after` is later than what it is given, so a
sequence of planned times never repeats one. Errors: BadSchedule; ExtraMissing without cronsim.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from omq.base.clock import NS_PER_S
from omq.base.errors import BadSchedule, ExtraMissing
from omq.base.names import escape

_EVERY: Final = re.compile(r"every +([0-9]{1,9}) *(s|min|h|days?)")
_UNITS_S: Final = {"s": 1, "min": 60, "h": 3600, "day": 86400, "days": 86400}
EVERY_S_MAX: Final = 366 * 86400
FIELDS: Final = 5
LOOKED_MAX: Final = 1000
"""Planned times of cron that are counted or given at once."""


class Rule(Protocol):
    """Planned times."""

    def after(self, ns: int) -> int:
        """The first one after this time."""
        ...

    def newest(self, until_ns: int, low_ns: int, most: int) -> list[int]:
        """The last ones, `most` of them at most, from `low_ns` to `until_ns`, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """An interval, from `since_ns` on."""

    interval_s: int
    since_ns: int

    def after(self, ns: int) -> int:
        step = self.interval_s * NS_PER_S
        return self.since_ns + max(1, (ns - self.since_ns) // step + 1) * step

    def newest(self, until_ns: int, low_ns: int, most: int) -> list[int]:
        step, out = self.interval_s * NS_PER_S, deque[int]()
        at = self.after(until_ns) - step
        while at >= low_ns and len(out) < most:
            out.appendleft(at)
            at -= step
        return list(out)


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields, in a zone."""

    fields: str
    zone: ZoneInfo

    def after(self, ns: int) -> int:
        return _ns(next(self._walk(ns)))

    def newest(self, until_ns: int, low_ns: int, most: int) -> list[int]:
        """Backwards, so that a year of minutes costs as many steps as are wanted."""
        found = map(_ns, self._walk(until_ns + NS_PER_S, reverse=True))
        return list(islice(takewhile(lambda at: at >= low_ns, found), most))[::-1]

    def _walk(self, ns: int, *, reverse: bool = False) -> Iterator[datetime]:
        start = datetime.fromtimestamp(ns // NS_PER_S, UTC).astimezone(self.zone)
        found: Iterator[datetime] = _cronsim().CronSim(self.fields, start, reverse=reverse)
        return found


def rule(name: str, when: str, zone: str, since_ns: int) -> Rule:
    """What `when` says. BadSchedule with the reason, ExtraMissing."""
    interval = _EVERY.fullmatch(when.strip())
    if interval is not None:
        seconds = int(interval[1]) * _UNITS_S[interval[2]]
        if not 1 <= seconds <= EVERY_S_MAX:
            raise BadSchedule(name=name, reason=f"{when!r}: an interval has 1 s to 366 days")
        _zone(name, zone)
        return Every(seconds, since_ns - since_ns % NS_PER_S)
    if when.strip().startswith("every"):
        raise BadSchedule(name=name, reason=f"{escape(when)!r} is not an interval such as 'every "
                          "15 min': a whole number of s, min, h or days")
    fields = when.split()
    if len(fields) != FIELDS:
        raise BadSchedule(name=name, reason=f"{escape(when)!r} has {len(fields)} fields, cron has "
                          "5: minute hour day month weekday; or say 'every 15 min'")
    made = Cron(" ".join(fields), _zone(name, zone))
    try:
        made.after(since_ns)
    except _cronsim().CronSimError as error:
        raise BadSchedule(name=name, reason=f"{escape(when)!r}: {error}") from error
    except StopIteration:
        raise BadSchedule(
            name=name, reason=f"{escape(when)!r} is never due: there is no such day") from None
    return made


def shown(ns: int, zone: str) -> str:
    """A planned time in its zone, with the offset."""
    return (datetime.fromtimestamp(ns // NS_PER_S, UTC).astimezone(ZoneInfo(zone))
            .isoformat(timespec="seconds"))


def moment(ns: int) -> datetime:
    """In UTC."""
    return datetime.fromtimestamp(ns // NS_PER_S, UTC) + timedelta(
        microseconds=ns % NS_PER_S // 1000)


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * NS_PER_S


def _zone(name: str, zone: str) -> ZoneInfo:
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadSchedule(name=name, reason=f"there is no time zone {escape(zone)!r}: it is a name "
                          "of the IANA database, such as Europe/Berlin") from error


def _cronsim() -> Any:
    try:
        import cronsim
    except ImportError as error:
        raise ExtraMissing(command="a schedule with the fields of cron", package="cronsim",
                           extra="omq-base[schedules]") from error
    return cronsim
