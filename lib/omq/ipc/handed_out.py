"""The rows of a reply as messages of a unit of work; a reader has its own (ipc.reader)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omq.fast.handed import Rows
from omq.ipc.message import Message

if TYPE_CHECKING:
    from omq.ipc.client_wire import Wire
    from omq.ipc.message import Holder


def handed_out(holder: Holder, wire: Wire, count: int) -> list[Message]:
    """The messages of the reply that lies in the channel, in order."""
    rows = Rows(holder, {}, wire, wire.bodies.files, Message)
    return rows.take(wire.link.reply, count, wire.bodies.by_files)
