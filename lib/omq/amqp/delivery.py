"""Deliveries: one message under way on a link.

Invariants: 1. a delivery is in the session's table of unsettled ones from its first transfer until
one side has settled it, or its link or session is over; 2. states are sent in the order in which
they were given; what is the same for neighbours is one frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from omq.amqp.links import Receiver, Sender


class Incoming:
    """What comes: its bytes are taken by `Receiver.recv`."""

    __slots__ = (
        "_state",
        "aborted",
        "chunks",
        "fields",
        "id",
        "link",
        "outcome",
        "over",
        "partial",
        "settled",
        "tag",
    )

    def __init__(self, link: Receiver, number: int, tag: bytes) -> None:
        self.link, self.id, self.tag = link, number, tag
        self.chunks: list[bytes] = []
        self.partial = True
        self.aborted = self.settled = self.over = False
        self.outcome, self.fields = -1, b""  # the state that its sender gave it
        self._state = b""

    @property
    def readable(self) -> bool:
        """There are bytes of it, or it is whole."""
        return not self.aborted and (bool(self.chunks) or not self.partial)

    @property
    def pending(self) -> int:
        """Bytes that came and were not taken."""
        return sum(map(len, self.chunks))

    def update(self, state: bytes) -> None:
        """What is to be said of it; `settle` says it."""
        self._state = state

    def settle(self) -> None:
        """Say its state, and be done with it; silently where its sender has settled it."""
        self.say(self._state)

    def say(self, state: bytes) -> None:
        """`update` and `settle`."""
        if not self.over:
            self.over = True
            self.link.session.settled_here(self, receives=True, state=state)


class Run(NamedTuple):
    """Deliveries of one link that came one after the other, each whole in one frame: `payloads` are
    their bytes, which have been taken. All are settled by their sender, or none is; one alone may
    have a state."""

    deliveries: list[Incoming]
    payloads: list[bytes]
    settled: bool


class Outgoing:
    """What goes: its bytes are given to `Sender.write`."""

    __slots__ = (
        "_state",
        "aborted",
        "fields",
        "id",
        "link",
        "outcome",
        "over",
        "settled",
        "started",
        "tag",
    )

    def __init__(self, link: Sender, tag: bytes, *, settled: bool) -> None:
        self.link, self.tag, self.settled = link, tag, settled
        self.id = -1  # given with its first transfer
        self.started = self.over = self.aborted = False
        self.outcome, self.fields = -1, b""  # what its receiver says of it
        self._state = b""

    def update(self, state: bytes) -> None:
        self._state = state

    def settle(self) -> None:
        """The receiver has said what happens to it, and waits for this; or nobody cares."""
        if self.over:
            return
        self.over = True
        if self.id >= 0:
            self.link.session.settled_here(self, receives=False, state=self._state)
