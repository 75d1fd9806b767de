"""A channel as a model: two sides that may die between any two steps, a line that may break.

What is durable is plain data; what is in memory are the product's own Sending and Receiving. Each
step is one that the product does without being interrupted, so a death between two steps is a death
at any instruction that matters: everything that leaves a process (a request to a queue manager, a
frame) is a step of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

from omq.services.channel.protocol import Receiving, Sending

Message = int
Frame = tuple[int, int, int, tuple[Message, ...]]  # batch, number of the first, count, messages


@dataclass
class World:
    """See the module. `faults`: deaths and cuts that may still happen; `bundle`: so many messages
    of a batch travel together."""

    batch_size: int
    bundle: int
    faults: int
    # durable
    queue: list[Message]
    doubt: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    record: int = 0
    target: list[Message] = field(default_factory=list)
    # in memory of the sending side; None: it is dead
    sending: Sending | None = None
    batches: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    outbox: list[Frame] = field(default_factory=list)
    todo: list[tuple[str, int]] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    taken: tuple[Message, ...] = ()  # by the other thread: off the queue, not in doubt yet
    # in memory of the receiving side; None: it has no connection
    receiving: Receiving | None = None
    parts: list[Message] = field(default_factory=list)
    whole: list[tuple[int, tuple[Message, ...]]] = field(default_factory=list)
    # the line
    there: list[Frame] = field(default_factory=list)
    back: list[int] = field(default_factory=list)

    def key(self) -> str:
        return repr(self)

    def copy(self) -> World:
        return copy.deepcopy(self)

    @property
    def settled(self) -> bool:
        """Nothing is left to do."""
        return not self.queue and not self.doubt

    # what can happen

    def steps(self) -> Iterator[str]:
        if self.sending is not None and self.sending.room and self.queue and not self.taken:
            yield "take"
        if self.sending is None:
            yield "start"
        elif not self.sending.connected:
            yield "connect"
        elif self.todo:
            yield "resync"
        else:
            if self.taken:
                yield "prepare"
            if self.outbox:
                yield "send"
            if self.back:
                yield "hear"
            if self.acked:
                yield "commit"
        if self.receiving is not None:
            if self.there:
                yield "receive"
            if self.whole:
                yield "put"
                yield "put and die"
        if self.faults:
            yield "kill sender"
            yield "kill receiver"
            yield "cut"

    def do(self, step: str) -> None:
        getattr(self, step.replace(" ", "_"))()

    # the sending side

    def start(self) -> None:
        self.sending = Sending()

    def connect(self) -> None:
        """The receiving side answers with its record."""
        assert self.sending is not None
        self._lose_line()
        self.receiving = Receiving(self.record)
        said = self.sending.resync(self.record, self.doubt)
        self.todo = [*(("commit", n) for n in said.commit),
                     *(("back out", n) for n in reversed(said.back_out)),
                     *(("resend", n) for n in said.resend)]

    def resync(self) -> None:
        assert self.sending is not None
        what, number = self.todo.pop(0)
        if what == "resend":
            self._send(number)
        else:
            messages = self.doubt.pop(number)
            if what == "back out":
                self.queue = [*messages, *self.queue]
            self.batches.pop(number, None)
            self.sending.settled(number)

    def take(self) -> None:
        """The other thread does this at any time when there is room."""
        self.taken = tuple(self.queue[: self.batch_size])
        del self.queue[: self.batch_size]

    def prepare(self) -> None:
        """What was taken is in doubt. It waits for a resync that is under way (Shared.doubt)."""
        assert self.sending is not None
        some, self.taken = self.taken, ()
        number = self.sending.prepared()
        assert number not in self.doubt, "a name of a unit is taken"
        self.doubt[number] = self.batches[number] = some
        self._send(number)

    def _send(self, number: int) -> None:
        assert self.sending is not None
        self.sending.send(number)
        some = self.batches[number]
        self.outbox += [(number, at + 1, len(some), some[at : at + self.bundle])
                        for at in range(0, len(some), self.bundle)]

    def send(self) -> None:
        self.there.append(self.outbox.pop(0))

    def hear(self) -> None:
        assert self.sending is not None
        number = self.back.pop(0)
        self.sending.confirmed(number)
        self.acked.append(number)

    def commit(self) -> None:
        assert self.sending is not None
        number = self.acked.pop(0)
        del self.doubt[number], self.batches[number]
        self.sending.settled(number)

    # the receiving side

    def receive(self) -> None:
        assert self.receiving is not None
        batch, first, count, some = self.there.pop(0)
        self.parts += some
        if [self.receiving.arrived(batch, first + at, count) for at in range(len(some))][-1]:
            self.whole.append((batch, tuple(self.parts)))
            self.parts = []

    def put(self) -> None:
        assert self.receiving is not None
        number, messages = self.whole.pop(0)
        self.target += messages
        self.record = number
        self.receiving.committed(number)
        self.back.append(number)

    def put_and_die(self) -> None:
        """The unit of work is carried out, and nobody hears of it."""
        number, messages = self.whole.pop(0)
        self.target += messages
        self.record = number
        self._lose_line()

    # faults

    def kill_sender(self) -> None:
        self.faults -= 1
        self.sending, self.batches, self.todo, self.acked = None, {}, [], []
        self.queue, self.taken = [*self.taken, *self.queue], ()  # before another one connects
        self._lose_line()

    def kill_receiver(self) -> None:
        self.faults -= 1
        self._lose_line()

    def cut(self) -> None:
        self.faults -= 1
        self._lose_line()

    def _lose_line(self) -> None:
        self.receiving, self.parts, self.whole = None, [], []
        self.there, self.back, self.outbox, self.todo, self.acked = [], [], [], [], []
        if self.sending is not None:
            self.sending.cut()
