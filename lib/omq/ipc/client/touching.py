"""How who works on a message says that the work goes on, and learns that it has been taken away.

Errors: LeaseLost, MessageCancelled.
"""

from __future__ import annotations

from typing import Any, Protocol

from omq.base.errors import LeaseLost, MessageCancelled, OmqError
from omq.fast.handed_messages import Facts
from omq.format.wire import SETTLE


class Asks(Protocol):
    """A link to the queue manager."""

    def control(self, question: dict[str, Any]) -> dict[str, Any]: ...


def touching(message: Facts, progress: bytes) -> bytes:
    """What the request TOUCH carries for one message."""
    return SETTLE.pack(0, 0, len(progress), message.entry, message.qpool_id, message.lease, 0, 0, 0
                       ) + progress


def lease_lost(link: Asks, message: Facts) -> LeaseLost:
    """The error of one who does not hold it any more; MessageCancelled where the queue manager
    remembers that it was taken away."""
    try:
        told = link.control({"op": "lost", "message": message.qpool_id, "lease": message.lease})
    except OmqError:  # an earlier version, or away: why is not known, and lost it is
        told = {}
    return (MessageCancelled if told.get("taken") else LeaseLost)(qpool_id=message.qpool_id)
