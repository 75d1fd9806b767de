"""Many messages: what fits goes in batches, the rest by itself, in the order given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from omq.base import limits
from omq.base.errors import MessageTooLong
from omq.fast.batch import alike_bodies, bodies_of, marks_of
from omq.format.journal import FRAME
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import (
    Encoded,
    Outgoing,
    alike_head,
    as_outgoing,
    body_bytes,
    by_itself,
    encode_plain,
    names_id,
    names_queues,
)

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire


def put_many(put: Callable[..., str], wire: Wire, queue: str, messages: Iterable[Outgoing | bytes]
             ) -> list[str]:
    """As Connection.put_many, which calls it. `put`: Connection.put."""
    arguments.queue(queue)
    if isinstance(messages, str | bytes | Outgoing) or not isinstance(messages, Iterable):
        raise arguments.wrong("messages", messages, "it is a list of bytes or omq.Outgoing")
    number = wire.queue_number(queue)
    plain = wire.queues[queue].plain
    ids: list[str] = []
    batch: list[Outgoing | bytes] = []
    rows: list[Encoded] = []
    room, size, threshold = wire.link.room, 0, wire.link.threshold
    owns = wire.link.owns
    if plain and isinstance(messages, list):
        bodies = bodies_of(messages, Outgoing, queue, threshold)
        if bodies is not None:
            while len(ids) < len(bodies):
                ids += wire.put_plain_batch(number, bodies, len(ids))
            return ids
        bodies = alike_bodies(messages, Outgoing, queue, threshold)
        if bodies is not None:
            head, marks = alike_head(messages[0], wire.name), marks_of(messages)
            while len(ids) < len(bodies):
                ids += wire.put_plain_batch(number, bodies, len(ids), *head, marks)
            return ids
    for i, message in enumerate(messages):
        if type(message) is not bytes and not isinstance(message, Outgoing):
            message = arguments.body(message, f"messages[{i}]")
        large = body_bytes(message) > threshold
        if (large and (not owns or names_id(message))) or by_itself(queue, message) \
                or queue not in wire.direct:
            ids += wire.put_batch(number, rows, batch)
            rows, batch, size = [], [], 0
            ids.append(put(() if names_queues(message) else queue,
                                outgoing=as_outgoing(message)))
            continue
        if plain and isinstance(message, bytes) and len(message) <= threshold:
            encoded = encode_plain(number, message)
        else:
            encoded = wire.encode(as_outgoing(message), (queue,))
        need = FRAME.size + len(encoded.payload)
        if need > room:
            raise MessageTooLong(size=len(encoded.payload), queue=queue, limit=room)
        if rows and (size + need > room or len(rows) >= limits.BATCH_MAX):
            ids += wire.put_batch(number, rows, batch)
            rows, batch, size = [], [], 0
        rows.append(encoded)
        batch.append(message)
        size += need
    ids += wire.put_batch(number, rows, batch)
    return ids
