"""The operator's side of the control connection: hold, release, move, delete, restore, free.

    with omq.connect(name="omqdump") as c:
        report = Operator(c, command="omhold ORDERS").hold(items, reason="customer asked")

Items come from the index (omq.core.index.view): QPoolId, queue and, when what was looked at must
not have changed since, the LSN. Long lists go in orders of ITEMS_MAX; each order is one unit in the
journal. After a lost manager an order is sent again: messages that it had changed are then refused
(they are no longer where the order says), never changed twice.

Errors: NoAuthority, UnknownQueue, BadRequest for a whole order; single messages are in
`Report.refused`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self

from omq.core.engine.operate import ITEMS_MAX, Action
from omq.ipc.client.connection import Client

Target = tuple[int, str, int]  # QPoolId, queue, LSN (0: whatever it is now)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One message that was left as it is, and why."""

    qpool: int
    status: int
    text: str


@dataclass(slots=True)
class Report:
    """What a command did: QPoolIds, refusals, and the LSN of each order in the journal."""

    done: list[int] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    lsns: list[int] = field(default_factory=list)

    def __iadd__(self, other: Report) -> Self:
        """What was done later, too."""
        self.done += other.done
        self.refused += other.refused
        self.lsns += other.lsns
        return self


class Operator:
    """See the module. `command` is what the journal keeps as typed."""

    def __init__(self, connection: Client, command: str,
                 progress: Callable[[int], None] = lambda done: None) -> None:
        self._connection = connection
        self._command = command
        self._progress = progress

    def hold(self, items: Iterable[Target], *, reason: str = "", force: bool = False) -> Report:
        """Nobody gets these messages until they are released."""
        return self._order(Action.HOLD, items, reason, force=force)

    def release(self, items: Iterable[Target], *, reason: str = "") -> Report:
        """Held or deferred messages are ready at their old place."""
        return self._order(Action.RELEASE, items, reason)

    def move(self, items: Iterable[Target], queues: Sequence[str], *, priority: int | None = None,
             reason: str = "", force: bool = False) -> Report:
        """Off their queue and on these, each in one step; no queues: back to where they came to
        POISON from."""
        return self._order(Action.MOVE, items, reason, queues, priority, force=force)

    def delete(self, items: Iterable[Target], *, keep_s: float | None = None, reason: str = "",
               force: bool = False) -> Report:
        """Off their queue; for `keep_s` they can be restored (0: at once gone; None: as the
        manager's operator_undo_s has it)."""
        return self._order(Action.DELETE, items, reason, keep_s=keep_s, force=force)

    def restore(self, items: Iterable[Target], *, priority: int | None = None, reason: str = ""
                ) -> Report:
        """On these queues again, after a delete."""
        return self._order(Action.RESTORE, items, reason, (), priority)

    def note(self, targets: Sequence[str], count: int, *, reason: str = "",
             things: str = "messages") -> int:
        """Say in the journal who puts the messages that follow on these queues, or changes so many
        other `things` (`services`); its LSN."""
        answer = self._connection.control({
            "op": "note", "targets": list(targets), "messages": count, "things": things,
            "command": self._command, "reason": reason})
        return int(answer["lsn"])

    def free_reader(self, queue: str, pid: int, *, reason: str = "") -> int:
        """Let go of the readers of a queue with this pid; how many there were."""
        answer = self._connection.control({
            "op": "free", "queue": queue, "pid": pid, "command": self._command, "reason": reason})
        return int(answer["freed"])

    def end_unit(self, unit: str, *, commit: bool, reason: str = "") -> dict[str, Any]:
        """Commit a unit of work in doubt, or back it out; what it was. UnitUnknown, UnitResolved:
        also when a lost answer is asked for again."""
        answer = self._connection.control({
            "op": "resolve", "unit": unit, "commit": commit, "command": self._command,
            "reason": reason})
        return {key: answer[key] for key in ("unit", "how", "gets", "puts")}

    def _order(self, action: Action, items: Iterable[Target], reason: str,
               queues: Sequence[str] = (), priority: int | None = None, *,
               keep_s: float | None = None, force: bool = False) -> Report:
        report, source = Report(), iter(items)
        while some := list(islice(source, ITEMS_MAX)):
            answer = self._connection.control({
                "op": "operate", "action": action.value, "items": some, "targets": list(queues),
                "priority": priority, "keep_s": keep_s, "force": force, "command": self._command,
                "reason": reason})
            report.done += answer["done"]
            report.refused += [Refusal(*row) for row in answer["refused"]]
            if answer["lsn"]:
                report.lsns.append(int(answer["lsn"]))
            self._progress(len(report.done) + len(report.refused))
        return report
