"""Units of work: messages taken from queues and put on queues, all or nothing.

What is put is kept here until the commit: nobody sees it, and it costs the manager nothing. What is
taken was handed out like any message; others do not get it, and it is gone with the commit. The
commit is one request, and those before it that only carry what does not fit into one
(ipc.server.units).

The end of the manager backs out a unit that has taken something: the next call of it says so
(UnitBackedOut), and the program does it again. A commit that was under way is answered as a put is:
by token and number the next manager knows whether it was carried out. A unit that only puts is
repeated without notice.

Invariants: 1. a unit is committed or backed out once, and is over then; 2. containers of a unit
that was not committed are removed, in doubt they stay.

Errors: UnitEnded, UnitTooLarge, UnitsFull, UnitBackedOut, MessageInUnit; those of put and next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from omq.base.errors import (
    ManagerUnavailable,
    OmqError,
    TimedOut,
    UnitBackedOut,
    UnitEnded,
    UnitTooLarge,
)
from omq.fast.batch import part_bytes
from omq.fast.handed_messages import done_rows
from omq.format.journal import FRAME
from omq.format.members import before_text
from omq.format.property_values import Value
from omq.format.wire import Operation
from omq.ipc.client import in_doubt
from omq.ipc.client.barriers import as_barrier, barrier_message
from omq.ipc.client.put_arguments import outgoing_of
from omq.ipc.client.unit_parts import parts_of, rows_max
from omq.ipc.client.unit_taking import Taking
from omq.ipc.wire import arguments
from omq.ipc.wire.exchange import Answer
from omq.ipc.wire.outgoing import Encoded, Outgoing


class Unit(Taking):
    """A unit of work of a connection, made by `Connection.unit`; a context manager.

        with connection.unit() as unit:
            order = unit.get("ORDERS", timeout_s=10)
            if order is not None:
                unit.put("INVOICES", order.body)
                unit.put(["AUDIT", "SHIPPING"], order.body)

    The end of `with` commits, leaving it by an exception backs out. `ids`: of what was put, in that
    order, after the commit. `done`, `fail` and so on of a message that it took are MessageInUnit:
    it ends with the unit; `reply` puts its answer in the unit. Backed out, it is at its old place
    with a failed attempt counted, or on POISON at the queue's attempts_max."""

    # putting

    def put(self, queues: str | Sequence[str], body: bytes = b"", *,
            priority: int | str | None = None, properties: Mapping[str, Value] | None = None,
            persistent: bool | None = None, correlation_id: bytes | str = b"",
            message_id: bytes | str = b"", expiry_s: float | None = None,
            reply_to: str = "", delay_s: float = 0.0, at: datetime | None = None,
            group_id: bytes | str = b"", group_sequence: int = 0, last_in_group: bool = False,
            unique_key: bytes | str | None = None, outgoing: Outgoing | None = None) -> None:
        """As Connection.put, but it happens with the commit, which also says what only the manager
        knows (QueueFull, NoAuthority, MessageTooLong ...). UnitTooLarge, UnitEnded."""
        self._check_open()
        self._check_messages(1)
        if outgoing is None and properties is None and (plain := self._wire.body_alone(
                queues, body, priority, persistent, group_id,
                (correlation_id, message_id, expiry_s, reply_to, delay_s, at, group_sequence,
                 last_in_group, unique_key))) is not None:
            self._add(plain, body)
            return
        message, listed = outgoing_of(
            self._wire, queues, body, priority=priority, properties=properties,
            persistent=persistent, correlation_id=correlation_id, message_id=message_id,
            expiry_s=expiry_s, reply_to=reply_to, delay_s=delay_s, at=at,
            group_id=group_id, group_sequence=group_sequence, last_in_group=last_in_group,
            unique_key=unique_key, outgoing=outgoing)
        self._add(self._wire.encode(message, listed), message)

    def _add(self, encoded: Encoded, message: Outgoing | bytes) -> None:
        size = FRAME.size + len(encoded.payload)
        if self._bytes + size > self._link.unit_bytes:
            error = UnitTooLarge(limit=self._link.unit_bytes, what="bytes", key="unit_bytes_max")
            self._wire.bodies.refused(error, encoded)
            raise error
        self._bytes += size
        self._new.append((encoded, message))

    def barrier(self, queue: str, body: bytes = b"", *, within_s: float | None = None,
                properties: Mapping[str, Value] | None = None,
                priority: int | str | None = None, message_id: bytes | str = b"") -> None:
        """A barrier (Connection.barrier) for all that this unit has put so far: none of them can
        end before it is there. BadArgument: nothing was put. Such a unit ends in one phase."""
        self._check_open()
        self._check_messages(1)
        if not self._new:
            raise arguments.wrong("queue", queue, "a barrier comes behind what the unit puts")
        message = barrier_message(queue, before_text(len(self._new)), body, within_s, properties,
                                  priority, message_id)
        self._add(as_barrier(self._wire.encode(message)), message)

    def _put_for(self, reply: Outgoing) -> None:
        self.put(reply.queues, outgoing=reply)

    # the end

    def prepare(self, name: str = "") -> str:
        """The first phase of two; the id. It is in doubt from now on, over every crash, until
        `commit` or `backout`, Connection.commit_unit or `omq units`; the end of `with` leaves it
        so. `name`: of yours, to find it by. A refusal leaves it open: UnitNotPrepared,
        UnitNameTaken, TooManyInDoubt, and what `commit` raises."""
        self._check_open()
        raw = in_doubt.name_bytes(name)
        first = self._commit(Operation.PREPARE, raw)
        self.ids += self._wire.id_texts(first + 1, [message for _, message in self._new])
        self._end("prepared")
        self.prepared = self._link.id_prefix + f"{first:016x}"
        return self.prepared

    def commit(self) -> list[str]:
        """All of it has happened, and is on the disk, when this returns; `ids`. A refusal leaves it
        as it was: mend it or back out. UnitBackedOut: it has ended, and nothing of it happened.
        UnitResolved, UnitUnknown: it was prepared, and somebody else has ended it."""
        if self.prepared:
            self._resolve("committed")
            return self.ids
        self._check_open()
        if not len(self) and not self._unsure:
            self._end("committed")
            return self.ids
        first = self._commit()
        self.ids += self._wire.id_texts(first, [message for _, message in self._new])
        self._end("committed")
        return self.ids

    def backout(self) -> None:
        """Nothing of it has happened: what was taken is back at its old place."""
        if self.prepared:
            self._resolve("backed out")
            return
        self._check_open()
        rows = done_rows(self._taken)
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

    def _resolve(self, how: str) -> None:
        if self._ended != "prepared":
            raise UnitEnded(how=self._ended)
        in_doubt.resolve(self._wire, self.prepared, commit=how == "committed")
        self._ended = how

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

    def _commit(self, operation: Operation = Operation.COMMIT, name: bytes = b"") -> int:
        """The first new QPoolId."""
        while True:
            try:
                return self._send(operation, name).qpool
            except UnitBackedOut:
                if self._taken or any(new.container for new, _ in self._new):
                    raise
                self._begin_again()  # it only puts

    def _send(self, operation: Operation, name: bytes) -> Answer:
        """All parts of the unit; the last one commits or prepares it."""
        new, room = [new for new, _ in self._new], self._link.room - len(name)
        parts = list(parts_of(self._taken, new, room))
        for part in parts[:-1]:
            self._part(Operation.STAGE, *part)
        return self._part(operation, *parts[-1], name)

    def _part(self, operation: Operation, rows: list[bytes], new: list[Encoded], name: bytes = b""
              ) -> Answer:
        data, length = part_bytes(rows, new)
        return self._ask(operation, data + name, queue=len(name), parts=len(rows), count=len(new),
                         length=length, want=len(self._new), argument=len(self._taken))
