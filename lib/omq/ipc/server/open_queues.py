"""Names of queues that clients open: resolved here, once a connection (ADR 0050).

    open  {"queue"} -> its number, what its messages are that do not say it, and `queues`: those
          that the name stands for; `remote`: queue manager and queue that it goes to in the end
    name  {"queue": number, "message": QPoolId that names it} -> {"name", "stays"}
    selects  {"where"}: what a reader chooses by from now on, for operators to see

What a client has learnt about a number is noted in its session: when the number is another queue's
later, or a name stands for another one, its next put is refused with QueueGone
(ipc.server.sessions).

Errors: UnknownQueue, WrongKind, QueueGone.
"""

from __future__ import annotations

from typing import Any

from omq.base import names
from omq.base.errors import QueueGone, UnknownQueue, WrongKind
from omq.core.engine.engine import Engine
from omq.ipc.server.sessions import Session

Question = dict[str, Any]


class Opening:
    """See the module."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def open(self, session: Session, question: Question) -> Question:
        name = names.escape(str(question["queue"]))
        listed, remote = self._engine.queues.resolve(name)
        numbers = [self._engine.queues.number(each) for each in listed]
        for number, each in zip(numbers, listed, strict=True):
            session.opened[number] = each
            session.rights.pop(("put", number), None)  # judged under the name that it has now
        if listed != [name]:
            session.aliases[name] = tuple(numbers)
        rules = self._engine.rules[numbers[0]]
        header = {} if remote is None else {
            "remote": [remote.keys["remote_manager"], remote.keys["remote_queue"]]}
        return {"queue": numbers[0], "queues": listed, **header,
                "max_length": rules.max_length, "max_depth": rules.max_depth,
                "priority": rules.priority, "persistent": rules.persistent}

    def name(self, session: Session, question: Question) -> Question:
        number = int(question["queue"])
        rules = self._engine.rules.get(number)
        if rules is None:
            raise UnknownQueue(queue=f"number {number}")
        if rules.born > int(question.get("message", rules.born)):
            raise QueueGone(queue=f"number {number}")
        return {"name": rules.name, "stays": not rules.born}

    def selects(self, session: Session, question: Question) -> Question:
        """The selector is tested by the reader itself (ADR 0052): it means nothing here."""
        self._engine.clients.selects(session.party, str(question.get("where", "")))
        return {}

    def read(self, name: str, known: int) -> int:
        """The queue that a reader means; one that has outlived its manager goes on with the queue
        that it read, which may have been rolled over."""
        rules = self._engine.rules.get(known)
        if rules is not None and rules.drains:
            return known
        listed, remote = self._engine.queues.resolve(name)
        if len(listed) != 1 or remote is not None:
            raise WrongKind(queue=name, kind="alias or remote",
                            reason="a reader reads one queue of this queue manager")
        return self._engine.queues.number(listed[0])
