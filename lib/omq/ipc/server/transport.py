"""The way to one client, as a session sees it: memory, a wake-up call, and an end (ADR 0046).

A session reads its client's request in `view`, writes the reply there, and says that it is there.
Today the memory is a System V segment and the call a semaphore (ipc.server.objects). Another way,
a connection of TCP or AMQP, has memory of its own, puts what came over the wire into the request
part, and sends the reply part when it is woken: neither the engine nor the server knows.

Invariants: 1. `view` is one piece (session.split_channel cuts it) and does not move until `close`;
2. `wake` never blocks, and raises only what ipc.wire.errnos knows or nothing; 3. `close` comes
once, after the last reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Transport(Protocol):
    """See the module."""

    @property
    def view(self) -> memoryview:
        """Reply, request and note (format.wire.halves)."""

    @property
    def semaphore_id(self) -> int:
        """The System V semaphore that the compiled path may raise itself; -1: it calls `wake`."""

    @property
    def wake(self) -> Callable[[], None]:
        """A reply is there. Asked for once, so that each reply costs one call."""

    def told(self) -> dict[str, Any]:
        """What the client gets at its registration, to find this."""

    def close(self) -> None:
        """The client is gone; nothing is written any more."""
