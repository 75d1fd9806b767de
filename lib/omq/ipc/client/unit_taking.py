"""What a unit of work takes from queues, and how it asks the queue manager (ipc.client.unit).

The requests of a unit are of the manager that knows what it took: with another one it was backed
out (UnitBackedOut). Errors: those of ipc.client.unit.

The rows of a reply as messages of a unit of work; a reader has its own (ipc.client.reader).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from omq.base import limits
from omq.base.clock import NS_PER_S as NS
from omq.base.errors import LeaseLost, OmqError, UnitBackedOut, UnitEnded, UnitTooLarge
from omq.fast.handed_messages import Rows
from omq.format.journal import FRAME
from omq.format.wire import Operation, Settlement
from omq.ipc.client.ids_asked import STRANGER, STRANGER_S, IdAsked, wish
from omq.ipc.client.message import Message
from omq.ipc.client.touching import lease_lost, row_of
from omq.ipc.client.unit_parts import Taken, rows_max
from omq.ipc.wire import arguments
from omq.ipc.wire.exchange import Answer
from omq.ipc.wire.outgoing import Encoded, Outgoing

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire
    from omq.ipc.client.message import Holder


def handed_out(holder: Holder, wire: Wire, count: int) -> list[Message]:
    """The messages of the reply that lies in the channel, in order."""
    rows = Rows(holder, {}, wire, wire.bodies.files, Message)
    return rows.take(wire.link.reply, count, wire.bodies.by_files)


_OPEN: Final = ""
_TOLD_MAX: Final = 4000
"""So many fit into a line of the control connection, with all else."""


class Taking(ABC):
    """See the module; the base of omq.Unit."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._link = wire, wire.link
        self._taken: list[Message] = []
        self._new: list[tuple[Encoded, Outgoing | bytes]] = []
        self._bytes = 0
        self._unsure = False  # the manager may know of something that is not here
        self._ended = _OPEN
        self._manager = self._link.registrations
        self.ids: list[str] = []
        self.prepared = ""  # its id, from prepare on

    def _begin_again(self) -> None:
        """It has taken nothing: any manager may carry it out."""
        self._manager, self._ended = self._link.registrations, _OPEN

    @property
    def open(self) -> bool:
        """It was neither committed nor backed out."""
        return self._ended == _OPEN

    def __len__(self) -> int:
        return len(self._taken) + len(self._new)

    def get(self, queue: str, timeout_s: float | None = None, *,
            correlation: bytes | str | None = None, message_id: bytes | str | None = None
            ) -> Message | None:
        """One message of a queue; see `next`."""
        found = self.next(queue, 1, timeout_s, correlation=correlation, message_id=message_id)
        return found[0] if found else None

    def next(self, queue: str, n: int = 1, timeout_s: float | None = None, *,
             correlation: bytes | str | None = None, message_id: bytes | str | None = None
             ) -> list[Message]:
        """Up to `n` messages of a queue, which belong to the unit then. Waits up to `timeout_s`
        (None: for ever), an empty list when the time is over. `correlation`, `message_id`: only
        those with this id, as Reader.next has them. UnknownQueue, NoAuthority,
        UnitTooLarge, UnitBackedOut, UnitEnded."""
        self._check_open()
        arguments.queue(queue)
        n = arguments.whole(n, "n", 1, limits.BATCH_MAX)
        wait = -1.0 if timeout_s is None else arguments.seconds(timeout_s, "timeout_s")
        self._check_messages(1)
        wanted = wish(correlation, message_id, self._link.id_prefix)
        number, ends = self._wire.queue_number(queue), time.monotonic() + wait
        while True:
            meant = found = self._take(queue, number, n, wait, wanted)
            if wanted is not None:
                meant = [each for each in found if wanted.meant(each)]
                for stranger in found:
                    if stranger not in meant:
                        self._leave(stranger)
            if meant or not found:
                if wait != 0:
                    self._link.woken = False  # it ended this wait, or came too late for that
                return meant
            wait = max(0.0, ends - time.monotonic()) if wait >= 0 else wait

    def _wake(self) -> None:
        """Callable from another thread: the wait of `next` that is under way ends with what is
        there, or the next one does."""
        self._link.wake()

    def _forget_wake(self) -> None:
        """By the thread that uses the unit: the next wait is not the one that was meant."""
        self._link.woken = False

    def _take(self, queue: str, number: int, n: int, wait: float, wanted: IdAsked | None
              ) -> list[Message]:
        n, unsure = min(n, self._link.unit_messages - len(self)), self._unsure
        while True:
            answer = self._ask(Operation.TAKE, queue=number, want=n, wait_s=wait,
                               argument=-1 if wait < 0 else int(wait * 1000),
                               flags=wanted.by if wanted else 0,
                               correlation=wanted.key if wanted else 0)
            if not answer.recovered:  # else what was handed out is free again
                break
        holder = Taken(queue, self._touch, self._put_for)
        messages = handed_out(holder, self._wire, answer.count)
        self._taken, self._bytes = self._taken + messages, self._bytes + len(messages) * FRAME.size
        self._unsure = unsure  # a signal has not ended this wait, an earlier one perhaps
        return messages

    def _leave(self, stranger: Message) -> None:
        """It has another id than was asked for, and the same key: not the unit's, out of the way
        of who asks."""
        text = STRANGER.encode()
        row = row_of(stranger, Settlement.DEFER, STRANGER_S * NS, text)
        self._ask(Operation.SETTLE, row, count=1, length=len(text))
        self._taken.remove(stranger)
        self._bytes -= FRAME.size

    def _give_back(self, unseen: Message) -> None:
        """To its old place, out of the unit: nobody has seen it."""
        self._ask(Operation.SETTLE, row_of(unseen, Settlement.RELEASE), count=1)
        self._taken.remove(unseen)
        self._bytes -= FRAME.size

    def part_with(self, messages: Sequence[Message], *, done: bool) -> None:
        """These are no part of the unit any more. `done`: they have left their queue, at once and
        whatever happens to the unit; else they are back at their old places, no attempt counted.
        LeaseLost: the manager has taken one back before; the others have gone as said.
        BadArgument: one is not of this unit."""
        self._check_open()
        gone = {id(each) for each in messages}
        if len(gone) < len(messages) or not gone <= {id(each) for each in self._taken}:
            raise arguments.wrong("messages", len(messages), "of this unit, each once")
        kind = Settlement.DONE if done else Settlement.RELEASE
        rows = [row_of(each, kind) for each in messages]
        size, lost = rows_max(self._link.room), 0
        for at in range(0, len(rows), size):
            some = rows[at : at + size]
            lost += self._ask(Operation.SETTLE, b"".join(some), count=len(some)).lost
        self._taken = [each for each in self._taken if id(each) not in gone]
        self._bytes -= len(gone) * FRAME.size
        if lost:
            raise LeaseLost(qpool_id=messages[0].qpool_id)

    @abstractmethod
    def _put_for(self, reply: Outgoing) -> None:
        """A message that it took is answered."""

    def _touch(self, message: Message, progress: bytes) -> None:
        """See Message.touch."""
        self._check_open()
        if self._ask(Operation.TOUCH, row_of(message, text=progress), count=1,
                     length=len(progress)).lost:
            raise lease_lost(self._link, message)

    def _ask(self, operation: Operation, data: bytes = b"", *, queue: int = 0, parts: int = 0,
             count: int = 0, length: int = 0, want: int = 0, argument: int = 0, flags: int = 0,
             correlation: int = 0, wait_s: float | None = None) -> Answer:
        """A request of this unit, of the manager that knows it."""
        link, nothing = self._link, operation is Operation.TAKE and not self._taken
        if nothing:
            self._manager = link.registrations
        link.reader.unit = self._unsure = True
        link.reader.took = self._leases
        try:
            if link.registrations != self._manager:
                raise UnitBackedOut
            answer = link.request(operation, data, queue=queue, parts=parts, count=count,
                                  length=length, want=want, argument=argument, wait_s=wait_s,
                                  flags=flags, correlation=correlation, once=not nothing)
        except UnitBackedOut as error:
            self._lose(error)
            raise
        if nothing:
            self._manager = link.registrations
        return answer

    def _leases(self) -> list[tuple[int, int]]:
        """What a new manager gets; of more it has to find the rest."""
        return [(each.qpool_id, each.lease) for each in self._taken[:_TOLD_MAX]]

    def _check_open(self) -> None:
        if not self.open:
            raise UnitEnded(how=self._ended)

    def _check_messages(self, more: int) -> None:
        limit = self._link.unit_messages
        if len(self) + more > limit:
            raise UnitTooLarge(limit=limit, what="messages", key="unit_messages_max")

    def _lose(self, error: BaseException) -> None:
        """It ended without a commit."""
        if isinstance(error, OmqError):
            self._forget(error)
        self._end("backed out")

    def _forget(self, error: OmqError) -> None:
        """Containers that nobody names."""
        self._wire.bodies.refused(error, *(new for new, _ in self._new))

    def _end(self, how: str) -> None:
        self._ended = how
        self._link.reader.unit = False
