"""A put whose reply nobody waits for in semop(2): it is sent, and finished when the manager rings
(ipc.server.bell). So an event loop puts without a thread.

    parked_puts.wanted(connection)                    # False: an older manager
    count = parked_puts.begin(connection, "ORDERS", messages)    # so many of them went; 0: none can
    ... parked_puts.descriptor(connection) can be read ...
    parked_puts.are_put(connection)                   # False: not yet, or something has happened
    parked_puts.finish(connection)                    # the same; it meets what has happened

Messages of one request are put all or none. A connection has one request under way, parked or not
(ConnectionBusy), and here no reader. `begin` never waits: what would have the manager asked (a name
that is not known here, a queue for replies), a container written, or a message refused for what it
says, does not go this way. A manager that goes away lets the descriptor be read; `finish` then
registers with the next one, which may take as long as the connection waits for it, and puts what
was not put: exactly once.

Errors of `finish`: those of Client.put. A refusal is of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from omq.base import limits
from omq.base.errors import BadRequest, OmqError
from omq.fast.batch import alike_bodies, bodies_of, marks_of, part_bytes
from omq.format.journal import FRAME
from omq.format.wire import BELL
from omq.ipc.client.connection import Client
from omq.ipc.wire.alike import Alike
from omq.ipc.wire.outgoing import Encoded, Outgoing, alike_head, by_itself

_NORMAL: Final = limits.PRIORITY_NORMAL
_QUESTION: Final = {"op": BELL}


def wanted(connection: Client) -> bool:
    """Before the first of them: puts are to be parked. Whether they can be."""
    link = connection._wire.link
    if not link.trusted:  # its requests go over a line that may make it wait
        return False
    try:
        link.control(_QUESTION)
    except BadRequest:
        return False
    link.reader.bell = link.rings = True
    return True


def begin(connection: Client, queue: str, messages: Sequence[Outgoing]) -> int:
    """See the module; the first so many went, as many as one request has room for."""
    wire = connection._wire
    link, facts = wire.link, wire.direct.get(queue)
    if facts is None or not link.rings or link.descriptor < 0:
        return 0
    try:
        if len(messages) > 1 and facts.plain:
            own = _bodies_alone(messages, link.threshold)
            listed = list(messages[:1] if own else messages)
            batch, bodies = wire._batch, bodies_of(listed, Outgoing, queue, link.threshold)
            head: tuple[int, int, bytes] = _NORMAL, 1, b""
            marks = None
            if bodies is None:
                bodies = alike_bodies(listed, Outgoing, queue, link.threshold)
                if bodies is not None:
                    head, marks = alike_head(listed[0], wire.name), marks_of(listed)
            if bodies is not None:
                count: int = batch.take(facts.number, own or bodies, 0, link.room, *head, marks)
                if count:
                    link.park_put(batch.data, None, facts.number, count)
                return count
        rows = _encoded(connection, queue, messages)
    except OmqError:  # of what it says: who may wait meets it, and tells it
        return 0
    if len(rows) == 1:
        link.park_put(rows[0].payload, rows[0], facts.number, 1)
    elif rows:
        link.park_put(part_bytes([], rows)[0], None, facts.number, len(rows))
    return len(rows)


def _bodies_alone(messages: Sequence[Outgoing], size_max: int) -> list[bytes] | None:
    """Those of messages of which one says what all do. None: each is looked at."""
    if isinstance(messages, Alike) and max(map(len, messages.bodies)) <= size_max:
        return messages.bodies
    return None


def _encoded(connection: Client, queue: str, messages: Sequence[Outgoing]) -> list[Encoded]:
    """The first of them, as many as one request takes. OmqError."""
    wire, rows = connection._wire, list[Encoded]()
    room, threshold = wire.link.room, wire.link.threshold
    for message in messages[: limits.BATCH_MAX]:
        if message.reply_to or message.queues or len(message.body) > threshold or (
                by_itself(queue, message)):
            break
        encoded = wire.encode(message, (queue,))
        room -= len(encoded.payload) + FRAME.size
        if room < 0:
            break
        rows.append(encoded)
    return rows


def descriptor(connection: Client) -> int:
    """What can be read when there is news; another one after `finish` has registered anew. -1: the
    manager is away, and `finish` looks for it."""
    return connection._wire.link.descriptor


def sent(connection: Client) -> bool:
    """Whether what was begun went; else `finish` does it, and may have to wait for that."""
    return connection._wire.link.on_its_way


def hear(connection: Client) -> bool:
    """Between two of them, when the descriptor can be read: bells of what was waited for. False: it
    can be read because the manager has gone."""
    return connection._wire.link.hear()


def are_put(connection: Client) -> bool:
    """See the module. It never waits, as `finish` may; a refusal is met by that."""
    return connection._wire.link.at_once() is not None


def finish(connection: Client, *, now: bool = False) -> bool:
    """See the module. `now`: it is waited for, as any request is."""
    return connection._wire.link.collect(now=now) is not None
