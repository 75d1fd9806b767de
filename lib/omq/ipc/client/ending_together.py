"""Messages that a reader holds, finished together with messages that are put: all or nothing.

What Message.move does in one request this does in as many as it takes: the parts of a unit of work
(ipc.client.unit), sent by the connection of the reader. So a daemon whose reader was given a
message before anybody knew that it belongs to a unit can make it part of one. With a `name` the
unit is prepared, and in doubt until somebody ends it (ipc.client.in_doubt).

A reader that outlives its manager still holds its messages, and all of the unit is here: what the
end of a manager has cut off is sent again from its first part. By token and number the next manager
knows whether the last part was carried out.

Invariants: 1. after an error the reader holds what it held, and nothing was put; 2. containers of
what was not put are removed, in doubt they stay.

Errors: LeaseLost, UnitTooLarge, those of Unit.commit and Unit.prepare.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final

from omq.base.errors import ContainerUnknown, LeaseLost, OmqError, QueueGone, UnitBackedOut
from omq.fast.batch import part_bytes
from omq.format.wire import Operation
from omq.ipc.client import in_doubt
from omq.ipc.client.bodies import PIECE_BYTES
from omq.ipc.client.body_pieces import Poured
from omq.ipc.client.unit_parts import parts_of
from omq.ipc.wire.outgoing import Encoded, Outgoing

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire
    from omq.ipc.client.message import Message
    from omq.ipc.client.reader import Reader

New = tuple[Outgoing, BinaryIO | None]
"""A message to put; its body may lie in a file instead."""
_RESTARTS_MAX: Final = 5
"""Managers that may end in the middle of one unit, before that is an error."""


def end_together(wire: Wire, reader: Reader | None, messages: Sequence[Message],
                 new: Sequence[New], name: str = "") -> str:
    """Finish these and put those. `name`: prepare it under this name; the id of the unit."""
    raw = in_doubt.name_bytes(name)
    for message in messages:
        if reader is None or not reader.holds(message):
            raise LeaseLost(qpool_id=message.qpool_id)
    for left in reversed(range(_RESTARTS_MAX)):
        encoded: list[Encoded] = []
        try:
            for each, file in new:
                encoded.append(_encoded(wire, each, file))
            first = _sent(wire, messages, encoded, raw)
            break
        except OmqError as error:
            wire.bodies.refused(error, *encoded)
            if not left or not isinstance(error, ContainerUnknown | QueueGone | UnitBackedOut):
                raise
            wire.forget()
    if reader is not None:
        reader.have_moved(messages)
    return wire.link.id_prefix + f"{first:016x}" if raw else ""


def _encoded(wire: Wire, message: Outgoing, file: BinaryIO | None) -> Encoded:
    if file is None:
        return wire.encode(message)
    file.seek(0)
    poured = Poured(wire.bodies, message.queues[0], iter(partial(file.read, PIECE_BYTES), b""))
    try:
        return wire.encode(message, (), poured.contain)
    finally:
        poured.close()


def _sent(wire: Wire, messages: Sequence[Message], new: Sequence[Encoded], name: bytes) -> int:
    """All parts of it to one manager; the QPoolId that it answered. UnitBackedOut: another one
    has come in between."""
    link = wire.link
    began = link.registrations
    parts = list(parts_of(messages, new, link.room - len(name)))
    last = Operation.PREPARE if name else Operation.COMMIT
    for number, (rows, heads) in enumerate(parts, 1):
        if link.registrations != began:
            raise UnitBackedOut
        data, length = part_bytes(rows, heads)
        ends = number == len(parts)
        answer = link.request(
            last if ends else Operation.STAGE, data + (name if ends else b""),
            queue=len(name) if ends else 0, parts=len(rows), count=len(heads), length=length,
            want=len(new), argument=len(messages), once=True)
    return answer.qpool
