"""logs/SERVICE.sends.jsonl: what the scheduler was given, when, and what came of it, so that it can
be asked later what other rules would have done (`omq-spark whatif --sends`).

Lines of JSON, in ASCII (and empty ones, before which a line may be torn):

    {"rules": {"maxchans": 20, ...}, "at_ns": wall, "begins": true}
        the rules from now on (omq.services.delivery.rules), first in each file; `begins`: of a
        scheduler that has no process yet
    {"came_ns": wall, "channel": "smtp", "peer": "mx.example.org:25", "priority": 4,
     "wait_s": 0.2, "spent_s": 0.05, "reached": true, "message": "..."}
        an Mlist that a channel process had: when the scheduler got it, how long it waited until the
        process began with it, how long that took, whether the peer was reached
    {"missing": 12}
        lines that could not be written before this one

What was not tried (its peer was down or held, or has more than its share) has no line: it comes
again with its message. Neither has what a channel process died with.

Invariants: 1. the lines of a turn are one write, appended; 2. a side file: never synced, and one
that cannot be written stops nothing. How it is bounded and renamed: base.log_file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omq.base import clock
from omq.base.log_file import LogFile

if TYPE_CHECKING:
    from omq.services.delivery.mlist import Mlist
    from omq.services.delivery.rules import Rules
    from omq.services.delivery.worker import Report
    from omq.services.readers.service import ServiceContext

SUFFIX: Final = ".sends.jsonl"


class Sends:
    """The record of one scheduler. `bytes_max` 0: there is none."""

    def __init__(self, logs: Path, service: str, bytes_max: int) -> None:
        self._file = LogFile(logs / f"{service}{SUFFIX}", bytes_max, lambda reason: None) \
            if bytes_max else None
        self._lines: list[Mapping[str, Any]] = []
        self._rules: dict[str, Any] = {}
        self._files = self._missing = 0

    @classmethod
    def of(cls, context: ServiceContext, rules: Rules, *, begins: bool) -> Sends:
        """As omq.conf says, with the rules from now on."""
        made = cls(context.paths.logs, context.conf.name, context.settings.qmgr_sends_bytes_max)
        made.has(rules, begins=begins)
        return made

    def has(self, rules: Rules, *, begins: bool) -> None:
        """The rules from now on."""
        self._rules = {"rules": asdict(rules), "at_ns": clock.wall_ns()}
        if self._file is not None:
            self._lines.append(self._rules | {"begins": begins})

    def sent(self, mlist: Mlist, report: Report, message_id: str, now: float) -> None:
        """A process is done with it. `now`: monotonic, as `mlist.since`."""
        if self._file is not None:
            came_ns = clock.wall_ns() - int((now - mlist.since) * clock.NS_PER_S)
            self._lines.append({
                "came_ns": came_ns, "channel": mlist.channel, "peer": mlist.peer,
                "priority": mlist.priority,
                "wait_s": round(max(0.0, report.begun - mlist.since), 6),
                "spent_s": round(report.spent_s, 6), "reached": report.reached,
                "message": message_id})

    def write(self) -> None:
        """What was told since the last time."""
        if not self._lines or self._file is None:
            return
        lines, self._lines = self._lines, []
        if self._missing:
            lines.insert(0, {"missing": self._missing})
        try:
            lost = lines[self._append(lines) if self._file.ready() else 0:]
        except OSError:
            lost = lines
        self._missing = sum(each.get("missing", "came_ns" in each) for each in lost)
        if any("rules" in each for each in lost):
            self._files = 0

    def _append(self, lines: list[Mapping[str, Any]]) -> int:
        """How many of them are whole in the file."""
        assert self._file is not None
        begun = self._file.files != self._files
        if begun and not any("rules" in each for each in lines):
            lines.insert(0, self._rules | {"begins": False})
        # What somebody has left there may end in the middle of a line, too.
        ahead = begun or self._file.cut
        data = b"\n" * ahead + b"".join(
            json.dumps(each).encode("ascii") + b"\n" for each in lines)
        written = self._file.write(data)
        whole = data[:written].count(b"\n") - ahead
        self._files = self._file.files
        return max(0, whole)

    def close(self) -> None:
        """The end of the scheduler."""
        self.write()
        if self._file is not None:
            self._file.close()
