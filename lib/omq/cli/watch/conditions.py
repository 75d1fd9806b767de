"""A condition of an alarm: what is at its threshold, or was and is not over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from omq.base import clock
from omq.base.amounts import number

Key = tuple[str, str]
"""Name of the alarm, queue (empty: the instance)."""
CONDITIONS_MAX: Final = 10_000
"""Of all alarms and queues together; it bounds run/alarms.json."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One that is not calm. `since_ns`: when this state, or its hold time, began."""

    alarm: str
    queue: str
    severity: str
    value: float
    since_ns: int
    raised: bool
    clearing_ns: int = 0  # raised, but below `clear` since then
    why: str = ""  # cause and evidence, as they were when it was looked at last
    hints: tuple[str, ...] = ()  # what to do

    @property
    def key(self) -> Key:
        return self.alarm, self.queue

    def record(self) -> dict[str, object]:
        """The JSON object of one that is raised: a contract, keys are only added."""
        return {"alarm": self.alarm, "queue": self.queue or None, "severity": self.severity,
                "value": self.value, "since": clock.iso_time(self.since_ns), "why": self.why,
                "hints": list(self.hints)}

    def text(self) -> str:
        """One line for people: which alarm, why, and the first thing to do."""
        return self.what + (f" -> {self.hints[0]}" if self.hints else "")

    @property
    def what(self) -> str:
        """Which alarm, and why."""
        of = f" of {self.queue}" if self.queue else ""
        return f"{self.severity}: {self.alarm}{of}: {self.why or number(self.value)}"

    def lines(self) -> Iterator[str]:
        """All that is known of it, for people."""
        yield self.what
        yield from (f"    -> {hint}" for hint in self.hints)


@dataclass(frozen=True, slots=True)
class Owed:
    """What nobody was told of yet, for it was told of others a moment ago."""

    begun: tuple[Condition, ...] = ()
    over: tuple[Condition, ...] = ()


NOTHING: Final = Owed()


def raised(conditions: Iterable[Condition]) -> list[Condition]:
    """The raised ones: critical first, then by name."""
    return sorted((each for each in conditions if each.raised),
                  key=lambda each: (each.severity != "critical", each.key))
