"""The rows of a reply to "next" as messages. Payloads that lie back to back in one file are read
with one call when the first of them is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omq.format.wire import GIVEN, REPLY, GivenFlag
from omq.ipc.message import Copied, Extent, Message

if TYPE_CHECKING:
    from omq.ipc.client_wire import Wire
    from omq.ipc.message import Holder

EXTENT_BYTES_MAX: Final = 1 << 20  # payloads read at once
_INLINE = int(GivenFlag.INLINE)


def handed_out(holder: Holder, wire: Wire, count: int) -> list[Message]:
    """The messages of the reply that lies in the channel, in order."""
    reply = wire.link.reply
    out: list[Message] = []
    if count == 1:
        out.append(_message(holder, wire, GIVEN.unpack_from(reply, REPLY.size), None))
        return out
    extent: Extent | None = None
    by_files = wire.bodies.by_files
    word = -1
    end = REPLY.size + count * GIVEN.size
    for row in GIVEN.iter_unpack(reply[REPLY.size : end]):
        offset, length = row[7], row[8]
        if row[3] & _INLINE or not by_files:
            out.append(_message(holder, wire, row, None))
            continue
        if (extent is not None and row[6] == word and offset == extent.end
                and length < EXTENT_BYTES_MAX - (extent.end - extent.start)):
            extent.end += length
        else:
            word = row[6]
            extent = Extent(wire.bodies, word, offset, offset + length)
        out.append(_message(holder, wire, row, extent))
    return out


def _message(holder: Holder, wire: Wire, row: tuple[int, ...], extent: Extent | None) -> Message:
    pieces = extent if not row[3] & _INLINE else Copied(
        bytes(wire.link.reply[row[14] : row[14] + row[8]]))
    return Message(holder, wire, row, pieces)
