"""How who works on a message says that the work goes on, and learns that it has been taken away.

Errors: LeaseLost, MessageCancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omq.base.errors import LeaseLost, MessageCancelled, OmqError
from omq.fast.handed_messages import Facts
from omq.format.wire import SETTLE

if TYPE_CHECKING:
    from omq.ipc.client.link import Link


def row_of(message: Facts, kind: int = 0, argument: int = 0, text: bytes = b"") -> bytes:
    """The row of a request for a message that is held, and the text that goes with it."""
    return SETTLE.pack(kind, 0, len(text), message.entry, message.qpool_id, message.lease, argument,
                       0, 0) + text


def lease_lost(link: Link, message: Facts) -> LeaseLost:
    """The error of one who does not hold it any more; MessageCancelled where the queue manager
    remembers that it was taken away."""
    try:
        told = link.control({"op": "lost", "message": message.qpool_id, "lease": message.lease})
    except OmqError:  # an earlier version, or away: why is not known, and lost it is
        told = {}
    return (MessageCancelled if told.get("taken") else LeaseLost)(qpool_id=message.qpool_id)
