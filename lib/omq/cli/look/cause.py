"""A cause: why something does not move, what shows it, and the command that helps.

Every tool that says why (omqwhy, omstat, omq health, the console) shows causes; none has rules of
its own. `omq.cli.look.finding_causes` finds them.

Invariants: 1. `text` carries its evidence: a process, a time, a count, a file; what is not seen is
not said; 2. `hints` begin with what to do first. Codes are a contract for programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How much of a fault it is."""

    CRITICAL = "critical"  # the instance does not work
    WARNING = "warning"  # something waits that nobody meant to wait
    NOTE = "note"  # as somebody wants it: held, deferred, off


ORDER = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Cause:
    """See the module. `queue`: that stands still by it; empty: the instance."""

    code: str
    text: str
    hints: tuple[str, ...] = ()
    severity: Severity = Severity.WARNING
    queue: str = ""
    service: str = ""

    def record(self) -> dict[str, Any]:
        """The JSON object: a contract, keys are only added."""
        return {"code": self.code, "text": self.text, "hints": list(self.hints),
                "severity": self.severity.value, "queue": self.queue or None,
                "service": self.service or None}

    def lines(self) -> Iterator[str]:
        """For people: the cause, and below it what to do."""
        yield (f"{self.queue}: " if self.queue else "") + self.text
        yield from (f"    -> {hint}" for hint in self.hints)


@dataclass(frozen=True, slots=True)
class Causes:
    """All that were found in an instance; `queues`: of those on which messages wait."""

    instance: tuple[Cause, ...] = ()
    queues: dict[str, tuple[Cause, ...]] = field(default_factory=dict)

    def all(self) -> list[Cause]:
        """The gravest first; of equal ones those of the instance, then by queue."""
        found = [*self.instance, *(each for name in sorted(self.queues)
                                   for each in self.queues[name])]
        return sorted(found, key=lambda each: ORDER.index(each.severity))

    def with_code(self, codes: Iterable[str]) -> list[Cause]:
        """Those of the instance with one of these codes."""
        wanted = frozenset(codes)
        return [each for each in self.instance if each.code in wanted]
