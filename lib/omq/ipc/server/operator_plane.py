"""Operator commands over the control connection, carried out by the manager's main loop.

    operate  {"action", "items": [[qpool, queue, lsn], ...], "targets": [queue, ...], "priority",
              "keep_s" (null: operator_undo_s), "force", "command", "reason"}
             -> {"done": [qpool, ...], "lsn": of the command, "refused": [[qpool, status, text]]}
    note     {"targets", "messages", "things", "command", "reason"}: what follows is puts (a copy),
             or concerns so many other things (services)  -> {"lsn"}
    resolve  {"unit", "commit", "command", "reason"}: end a unit of work in doubt  -> {"unit", ...}
    free     {"queue", "pid", "command", "reason"}: let go of a reader  -> {"freed": clients}
    recall   {"queue", "qpools": [qpool, ...]}: what its reader had put off is ready; or
             {"queue", "within_ns", "before"}: all that is due by then, if it was put off before
             that LSN (0: now)  -> {"recalled": messages, "before": LSN, "passed": those of qpools
             that were not put off any more}. Not an order: not logged

The answers wait for the commit of their group, as every acknowledgement does: `release`.

Who may: `admin` on the queue that a message is on (for free: on the reader's queue), `put` on the
queues that it goes to. Every command is journaled with uid, pid, command and reason, and logged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from omq.base import events, names
from omq.base.errors import BadRequest, UnknownQueue
from omq.base.event_log import REPORT, EventLog
from omq.core.engine.engine import Engine
from omq.core.engine.operate import Action, Item, Order
from omq.core.engine.state import IDEL, POISON
from omq.ipc.server.doors import Door
from omq.ipc.server.held_replies import HeldReplies
from omq.ipc.server.sessions import Session, Sessions, say

Question = dict[str, Any]
TEXT_BYTES_MAX = 2048
THINGS_CHARACTERS_MAX = 32
MESSAGES = "messages"
KEEP_S_MAX = 30 * 86400
WITHIN_S_MAX = 30 * 86400
_S = 1_000_000_000


class OperatorPlane:
    """See the module. `number` finds the number of a queue; `end` ends a client that is freed;
    `undo_s`: as operator_undo_s has it, for who says nothing else."""

    def __init__(self, engine: Engine, sessions: Sessions, log: EventLog,
                 number: Callable[[str], int], end: Callable[[Session], None], undo_s: int
                 ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._log = log
        self._number = number
        self._end = end
        self._undo_s = undo_s
        self._answers: list[tuple[Door, Question]] = []
        self.later: dict[str, Callable[[Session, Question], None]] = {
            "operate": self.operate, "free": self.free, "note": self.note,
            "resolve": self.resolve, "recall": self.recall}

    def release(self, held: HeldReplies | None) -> None:
        """After the commit: the answers of this group; those that wait for standbys, with them."""
        if not self._answers:
            return
        for door, answer in self._answers:
            if held is not None:
                held.answer(door, {"status": 0, **answer})
            elif not door.closed:
                say(door, {"status": 0, **answer})
        self._answers.clear()
        if held is not None:
            held.add([])

    def answer_later(self, session: Session, answer: Question) -> None:
        """With `release`."""
        self._answers.append((session.door, answer))

    def operate(self, session: Session, question: Question) -> None:
        """One order; its answer goes out with `release`."""
        order = self._order(session, question)
        for queue in {item.queue for item in order.items}:
            self._may(session, "admin", queue)
        for queue in set(order.targets) - {item.queue for item in order.items}:
            self._sessions.check(session, "put", queue)
        outcome = self._engine.operate(session.party, order)
        if outcome.done:
            self._say(session, order.text, action=order.action.value, messages=len(outcome.done))
        refused = [[qpool, error.status, str(error)] for qpool, error in outcome.refused]
        self._answers.append((session.door, {
            "done": outcome.done, "lsn": outcome.lsn, "refused": refused}))

    def note(self, session: Session, question: Question) -> None:
        """Say in the journal who puts the messages that follow, and why."""
        queues = {self._number(str(queue)) for queue in question["targets"]}
        if not queues and not session.trusted:  # no authority says who may
            raise BadRequest(reason="what is noted goes on a queue")
        for queue in queues:
            self._sessions.check(session, "put", queue)
        text, count = order_text(question), min(max(0, int(question["messages"])), 1 << 40)
        party = session.party
        lsn = self._engine.books.operator(party, 0, count, text)
        self._log.event(events.OPERATOR_COMMAND, REPORT, uid=party.uid, pid_of_operator=party.pid,
                        **_said(text), **_counted(question, count))
        self._answers.append((session.door, {"lsn": lsn}))

    def free(self, session: Session, question: Question) -> None:
        """Let go of the readers of a queue that have this pid: as if they had died."""
        queue, pid = self._number(str(question["queue"])), int(question["pid"])
        self._may(session, "admin", queue)
        text = order_text(question)
        freed = [other for other in list(self._sessions.by_id.values())
                 if other.queue == queue and other.party.pid == pid]
        if freed:
            self._engine.books.operator(session.party, queue, pid, text)
            self._say(session, text, action="free", pid_of_reader=pid)
        for other in freed:
            self._end(other)
        self._answers.append((session.door, {"freed": len(freed)}))

    def recall(self, session: Session, question: Question) -> None:
        """A service has room again for what it had put off."""
        queue, qpools = self._number(str(question["queue"])), question.get("qpools")
        self._may(session, "admin", queue)
        recall, party = self._engine.recall, session.party
        before = int(question.get("before", 0)) or self._engine.last_lsn + 1
        passed = list[int]()
        if qpools is None:
            within_ns = min(max(0, int(question["within_ns"])), WITHIN_S_MAX * _S)
            count = recall.due(party, queue, within_ns, before)
        else:
            wanted = {int(each) for each in qpools}
            passed = recall.these(party, queue, wanted)
            count = len(wanted) - len(passed)
        self._answers.append((session.door, {"recalled": count, "before": before,
                                             "passed": passed}))

    def resolve(self, session: Session, question: Question) -> None:
        """End a unit of work in doubt in the place of its program: `admin` on all of its queues, on
        POISON if it has none."""
        in_doubt, party = self._engine.in_doubt, session.party
        said, commit, text = str(question["unit"]), question["commit"], order_text(question)
        if not isinstance(commit, bool):
            raise BadRequest(reason="commit is true or false")
        unit = in_doubt.find(said, party) or in_doubt.by_id(said)
        if unit is None:
            raise in_doubt.ended(said, party)
        for queue in in_doubt.queues(unit) or (POISON,):
            self._may(session, "admin", queue)
        name, how = in_doubt.name_of(unit), "committed" if commit else "backed out"
        gets, puts = in_doubt.counts(unit)
        in_doubt.end(unit, party, 0, commit=commit, order=text)
        self._log.event(events.UNIT_ENDED, REPORT, uid=party.uid, pid_of_operator=party.pid,
                        unit=name, how=how, gets=gets, puts=puts, **_said(text))
        self._answers.append((session.door, {"unit": name, "how": how, "gets": gets,
                                             "puts": puts}))

    def _may(self, session: Session, action: str, queue: int) -> None:
        if queue not in self._engine.rules:
            raise UnknownQueue(queue=queue)
        self._sessions.check(session, action, queue)

    def _order(self, session: Session, question: Question) -> Order:
        try:
            action = Action(str(question["action"]))
        except ValueError as error:
            raise BadRequest(reason=f"unknown action {names.escape(str(question['action']))}"
                             ) from error
        items = tuple(Item(int(qpool), self._number(str(queue)), int(lsn))
                      for qpool, queue, lsn in question["items"])
        targets = tuple(self._number(str(queue)) for queue in question.get("targets", ()))
        if len(set(targets)) != len(targets):
            raise BadRequest(reason="a target is named twice")
        if action is Action.RESTORE and any(item.queue in (IDEL, POISON) for item in items):
            raise BadRequest(reason="nothing is restored to IDEL or POISON")
        priority = question.get("priority")
        said = question.get("keep_s")
        keep_s = float(self._undo_s if said is None else said)
        if not 0 <= keep_s <= KEEP_S_MAX:
            raise BadRequest(reason=f"keep_s is 0 to {KEEP_S_MAX}")
        return Order(action, items, order_text(question), targets,
                     None if priority is None else names.check_priority(int(priority)),
                     int(keep_s * _S), bool(question.get("force")))

    def _say(self, session: Session, text: bytes, **fields: Any) -> None:
        self._log.event(events.OPERATOR_COMMAND, REPORT, uid=session.party.uid,
                        pid_of_operator=session.party.pid, **_said(text), **fields)


def order_text(question: Question) -> bytes:
    """What the journal keeps: the command as it was typed, why, and what its count counts, unless
    that is messages."""
    things = str(question.get("things", MESSAGES))
    counted = {} if things == MESSAGES else {"things": things[:THINGS_CHARACTERS_MAX]}
    text = json.dumps({"command": str(question.get("command", ""))[:512],
                       "reason": str(question.get("reason", ""))[:512], **counted},
                      sort_keys=True).encode()
    if len(text) > TEXT_BYTES_MAX:
        text = json.dumps({"command": "", "reason": "(too long)"}).encode()
    return text


def _said(text: bytes) -> dict[str, str]:
    """The command and the reason, for the event log."""
    words = json.loads(text)
    return {name: words[name] for name in ("command", "reason")}


def _counted(question: Question, count: int) -> dict[str, Any]:
    """`messages` = N of what is put; of anything else `count` = N and what it counts."""
    things = str(question.get("things", MESSAGES))
    if things == MESSAGES:
        return {"action": "put", "messages": count}
    return {"count": count, "things": names.escape(things[:THINGS_CHARACTERS_MAX])}
