"""Telling somebody that an alarm began or is over: a program, a mail, a unit.

Invariants: 1. one notice of an alarm in every_s at most, whatever flutters and on however many
queues: what changed meanwhile goes into one notice; 2. nothing goes through a shell, and a notice
is printable ASCII; 3. a program that hangs is killed after alarms_run_timeout_s, one that fails is
an event (OM 1572) and keeps nobody from being notified the next time; 4. what is owed is sent by
the next watcher if this one ends before (run/alarms.json has it).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from omq.base import event_log, events
from omq.base.clock import NS_PER_S
from omq.base.event_log import EventLog
from omq.base.names import escape
from omq.base.settings import Settings
from omq.cli.watch.alarm_conf import Alarm
from omq.cli.watch.conditions import NOTHING, Condition, Key, Owed

_NAMED: Final = 5
_TEXT_MAX: Final = 4096  # five with their causes
Run = Callable[[Sequence[str], str, float], None]
"""A command, its standard input, the time that it has; OSError, subprocess.SubprocessError."""


def run_command(command: Sequence[str], text: str, timeout_s: float) -> None:
    """See Run."""
    subprocess.run(command, input=text.encode("ascii"), timeout=timeout_s, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=True)


class Notices:
    """`told_ns`: when the last notice of each alarm went out, by its name; `owed`: what the last
    watcher did not send; both outlive the process. `stopping`: nobody else is notified."""

    def __init__(self, settings: Settings, log: EventLog, told_ns: dict[str, int],
                 run: Run = run_command, owed: Owed = NOTHING,
                 stopping: Callable[[], bool] = lambda: False) -> None:
        self._settings, self._log, self._run = settings, log, run
        self._stopping = stopping
        self.told_ns = told_ns
        self._waiting: dict[str, tuple[dict[Key, Condition], dict[Key, Condition]]] = {}
        for at, found in enumerate((owed.begun, owed.over)):
            for each in found:
                self._waiting.setdefault(each.alarm, ({}, {}))[at][each.key] = each

    @property
    def owed(self) -> Owed:
        """What will be told when its time has come."""
        begun, over = zip(*self._waiting.values(), strict=True) if self._waiting else ((), ())
        return Owed(tuple(each for found in begun for each in found.values()),
                    tuple(each for found in over for each in found.values()))

    def changed(self, before: Mapping[Key, Condition], now: Mapping[Key, Condition]) -> None:
        """Events for what began and what is over; notices of it are owed."""
        was = {key: each for key, each in before.items() if each.raised}
        has = {key: each for key, each in now.items() if each.raised}
        for key in has.keys() - was.keys():
            self._log.event(events.ALARM_RAISED, event_log.WARNING, **_fields(has[key]))
            begun, over = self._waiting.setdefault(key[0], ({}, {}))
            if over.pop(key, None) is None:  # else its begin was told, and its end was not
                begun[key] = has[key]
        for key in was.keys() - has.keys():
            self._log.event(events.ALARM_CLEARED, event_log.REPORT, **_fields(was[key]))
            begun, over = self._waiting.setdefault(key[0], ({}, {}))
            if begun.pop(key, None) is None:  # what was never told of need not be called off
                over[key] = was[key]

    def tell(self, alarms: Iterable[Alarm], now_ns: int) -> None:
        """What is owed and may be told now."""
        known = {alarm.name: alarm for alarm in alarms}
        for name in tuple(self._waiting):
            if self._stopping():
                return
            alarm, last = known.get(name), self.told_ns.get(name)
            if alarm is None:
                del self._waiting[name]
            elif last is None or not 0 <= now_ns - last < alarm.every_s * NS_PER_S:
                begun, over = self._waiting.pop(name)
                if begun or over:
                    self.told_ns[name] = now_ns
                    self._one(alarm, "raise", begun.values())
                    self._one(alarm, "clear", over.values())

    def _one(self, alarm: Alarm, what: str, conditions: Iterable[Condition]) -> None:
        found = list(conditions)
        if not found:
            return
        begins = what == "raise"  # what is over needs nobody to do something
        text = escape("; ".join(each.text() if begins else each.what for each in found[:_NAMED])
                      + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""),
                      _TEXT_MAX)
        if alarm.run:
            self._try(alarm, [alarm.run, what, alarm.name, text], "")
        if alarm.mail:
            self._try(alarm, [self._settings.alarms_sendmail, "--", alarm.mail], (
                f"To: {alarm.mail}\nSubject: omq {what}: {alarm.name}\n"
                f"Auto-Submitted: auto-generated\n\n{text}\n"))
        if alarm.unit and what == "raise":
            self._try(alarm, ["systemctl", "--no-block", "start", alarm.unit], "")

    def _try(self, alarm: Alarm, command: Sequence[str], text: str) -> None:
        try:
            self._run(command, text, self._settings.alarms_run_timeout_s)
        except (OSError, subprocess.SubprocessError) as error:
            self._log.event(events.ALARM_NOT_TOLD, event_log.ERROR, alarm=alarm.name,
                            program=command[0], reason=str(error))


def _fields(condition: Condition) -> dict[str, str | float]:
    return {"alarm": condition.alarm, "queue": condition.queue, "severity": condition.severity,
            "value": condition.value}
