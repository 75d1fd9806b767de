"""A message that came in on a link and waits to be put.

What says the same as a message before it has that one's pattern and a body of its own
(translation.Patterns), so that the message itself is made only where somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from omq.amqp.delivery import Incoming as Delivery
from omq.ipc.wire.alike import Alike
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp.arrival import Arrived


@dataclass(slots=True)
class Transfer:
    """A message that is whole here: `said`, or that with this body. `size`: bytes in memory;
    `arrived`: what else may be held for it, of one that came in pieces."""

    delivery: Delivery
    said: Outgoing
    body: bytes | None
    size: int
    settled: bool
    arrived: Arrived | None = None

    @property
    def message(self) -> Outgoing:
        return self.said if self.body is None else self.said.with_body(self.body)

    @property
    def file(self) -> BinaryIO | None:
        return None if self.arrived is None else self.arrived.file


def messages(some: list[Transfer]) -> Sequence[Outgoing]:
    """What is to be put. Of those that say the same none is made yet."""
    said = some[0].said
    if not said.group_id:
        bodies = [each.body for each in some if each.body is not None and each.said is said]
        if len(bodies) == len(some):
            return Alike(said, bodies)
    return [each.message for each in some]
