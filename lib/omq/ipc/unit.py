"""Units of work: messages taken from queues and put on queues, all or nothing.

What is put is kept here until the commit: nobody sees it, and it costs the manager nothing. What is
taken was handed out like any message; others do not get it, and it is gone with the commit. The
commit is one request, and those before it that only carry what does not fit into one
(ipc.serving.units).

The end of the manager backs out a unit that has taken something: the next call of it says so
(UnitBackedOut), and the program does it again. A commit that was under way is told as a put is: by
token and number the next manager knows whether it was carried out. A unit that only puts is
repeated without notice.

Invariants: 1. a unit is committed or backed out once, and is over then; 2. containers of a unit
that was not committed are removed, in doubt they stay.

Errors: UnitEnded, UnitTooLarge, UnitsFull, UnitBackedOut, MessageInUnit; those of put and next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from omq.base import limits
from omq.base.errors import (
    LeaseLost,
    ManagerUnavailable,
    OmqError,
    TimedOut,
    UnitBackedOut,
    UnitEnded,
    UnitTooLarge,
)
from omq.format.journal import FRAME
from omq.format.wire import SETTLE, Operation
from omq.ipc import arguments
from omq.ipc.exchange import Answer
from omq.ipc.handed_out import handed_out
from omq.ipc.message import Message
from omq.ipc.outgoing import Encoded, Outgoing
from omq.ipc.saying import outgoing_of
from omq.ipc.unit_parts import Taken, part_bytes, parts_of, rows_max, taken_row

if TYPE_CHECKING:
    from omq.ipc.client_wire import Wire

_OPEN: Final = ""


class Unit:
    """A unit of work of a connection, made by `Connection.unit`; a context manager.

        with connection.unit() as unit:
            order = unit.get("ORDERS", timeout_s=10)
            if order is not None:
                unit.put("INVOICES", order.body)
                unit.put(["AUDIT", "SHIPPING"], order.body)

    The end of `with` commits, leaving it by an exception backs out. `ids`: of what was put, in that
    order, behind the commit. `done`, `fail` and so on of a message that it took are MessageInUnit:
    it ends with the unit. Backed out, it is at its old place with a failed attempt counted, or on
    POISON at the queue's attempts_max."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._link = wire, wire.link
        self._taken: list[Message] = []
        self._new: list[tuple[Encoded, Outgoing]] = []
        self._bytes = 0
        self._unsure = False  # the manager may know of something that is not here
        self._ended = _OPEN
        self._manager = self._link.registrations
        self.ids: list[str] = []

    @property
    def open(self) -> bool:
        """It was neither committed nor backed out."""
        return self._ended == _OPEN

    def __len__(self) -> int:
        return len(self._taken) + len(self._new)

    # work

    def put(self, queues: str | Sequence[str], body: bytes = b"", *,
            priority: int | str | None = None, properties: Mapping[str, str] | None = None,
            persistent: bool | None = None, correlation_id: bytes | str = b"",
            message_id: bytes | str = b"", expiry_s: float | None = None,
            reply_to: str = "", delay_s: float = 0.0, at: datetime | None = None,
            outgoing: Outgoing | None = None) -> None:
        """As Connection.put, but it happens with the commit, which also says what only the manager
        knows (QueueFull, NoAuthority, MessageTooLong ...). UnitTooLarge, UnitEnded."""
        self._check_open()
        self._check_messages(1)
        message, listed = outgoing_of(
            self._wire, queues, body, priority=priority, properties=properties,
            persistent=persistent, correlation_id=correlation_id, message_id=message_id,
            expiry_s=expiry_s, reply_to=reply_to, delay_s=delay_s, at=at,
            outgoing=outgoing)
        encoded = self._wire.encode(message, listed)
        size = FRAME.size + len(encoded.payload)
        if self._bytes + size > self._link.unit_bytes:
            error = UnitTooLarge(limit=self._link.unit_bytes, what="bytes", key="unit_bytes_max")
            self._wire.bodies.refused(error, encoded)
            raise error
        self._bytes += size
        self._new.append((encoded, message))

    def get(self, queue: str, timeout_s: float | None = None) -> Message | None:
        """One message of a queue; see `next`."""
        found = self.next(queue, 1, timeout_s)
        return found[0] if found else None

    def next(self, queue: str, n: int = 1, timeout_s: float | None = None) -> list[Message]:
        """Up to `n` messages of a queue, which belong to the unit then. Waits up to `timeout_s`
        (None: for ever), an empty list when the time is over. UnknownQueue, NoAuthority,
        GetInhibited; UnitTooLarge, UnitBackedOut, UnitEnded."""
        self._check_open()
        arguments.queue(queue)
        n = arguments.whole(n, "n", 1, limits.BATCH_MAX)
        wait = -1.0 if timeout_s is None else arguments.seconds(timeout_s, "timeout_s")
        self._check_messages(1)
        number = self._wire.queue_number(queue)
        n, unsure = min(n, self._link.unit_messages - len(self)), self._unsure
        while True:
            answer = self._ask(Operation.TAKE, queue=number, want=n, wait_s=wait,
                               argument=-1 if wait < 0 else int(wait * 1000))
            if not answer.recovered:  # else what was handed out is free again
                break
        messages = handed_out(Taken(queue, self._touch), self._wire, answer.count)
        self._taken += messages
        self._unsure = unsure  # a signal has not ended this wait, an earlier one perhaps
        self._bytes += len(messages) * FRAME.size
        return messages

    def _touch(self, message: Message) -> None:
        """See Message.touch."""
        self._check_open()
        row = SETTLE.pack(0, 0, 0, message.entry, message.qpool_id, message.lease, 0, 0, 0)
        if self._ask(Operation.TOUCH, row, count=1).lost:
            raise LeaseLost(qpool_id=message.qpool_id)

    # the end

    def commit(self) -> list[str]:
        """All of it has happened, and is on the disk, when this returns; `ids`. A refusal leaves
        the unit open: mend it or back out. UnitBackedOut: it has ended, and nothing of it
        happened."""
        self._check_open()
        if not len(self) and not self._unsure:
            self._end("committed")
            return self.ids
        first = self._commit()
        for i, (_, message) in enumerate(self._new):
            self.ids.append(self._wire.id_text(first + i, message))
        self._end("committed")
        return self.ids

    def backout(self) -> None:
        """Nothing of it has happened: what was taken is back at its old place."""
        self._check_open()
        rows = [taken_row(message) for message in self._taken]
        size = rows_max(self._link.room)
        try:
            for at in range(0, max(len(rows), self._unsure), size):
                part = rows[at : at + size]
                self._ask(Operation.BACKOUT, b"".join(part), parts=len(part),
                          want=at + len(part) == len(rows))
        except UnitBackedOut:  # which was wanted
            return
        except (ManagerUnavailable, TimedOut) as error:
            self._lose(error)
            raise
        self._forget(UnitBackedOut())
        self._end("backed out")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if not self.open:
            return
        if error is not None:
            self._leave_by(error)
            return
        try:
            self.commit()
        except OmqError as refused:
            if self.open:
                self._leave_by(refused)
            raise

    def _leave_by(self, error: BaseException) -> None:
        """Back out, unless the manager is away: it is not waited for once more, and takes the
        messages back by itself."""
        if isinstance(error, ManagerUnavailable | TimedOut):
            self._lose(error)
            return
        try:
            self.backout()
        except OmqError as second:
            error.add_note(f"omq: the unit of work could not be backed out: {second}")

    # requests

    def _commit(self) -> int:
        """The first new QPoolId."""
        while True:
            try:
                return self._send().qpool
            except UnitBackedOut:
                if self._taken or any(new.container for new, _ in self._new):
                    raise
                self._manager, self._ended = self._link.registrations, _OPEN  # it only puts

    def _send(self) -> Answer:
        """All parts of the unit; the last one commits it."""
        parts = list(parts_of(self._taken, [new for new, _ in self._new], self._link.room))
        for rows, new in parts[:-1]:
            self._part(Operation.STAGE, rows, new)
        return self._part(Operation.COMMIT, *parts[-1])

    def _part(self, operation: Operation, rows: list[bytes], new: list[Encoded]) -> Answer:
        data, length = part_bytes(rows, new)
        return self._ask(operation, data, parts=len(rows), count=len(new), length=length,
                         want=len(self._new), argument=len(self._taken))

    def _ask(self, operation: Operation, data: bytes = b"", *, queue: int = 0, parts: int = 0,
             count: int = 0, length: int = 0, want: int = 0, argument: int = 0,
             wait_s: float | None = None) -> Answer:
        """A request of this unit, of the manager that knows it."""
        link, nothing = self._link, operation is Operation.TAKE and not self._taken
        if nothing:
            self._manager = link.registrations
        link.reader.unit = self._unsure = True
        try:
            if link.registrations != self._manager:
                raise UnitBackedOut
            answer = link.request(operation, data, queue=queue, parts=parts, count=count,
                                  length=length, want=want, argument=argument, wait_s=wait_s,
                                  once=not nothing)
        except UnitBackedOut as error:
            self._lose(error)
            raise
        if nothing:
            self._manager = link.registrations
        return answer

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
