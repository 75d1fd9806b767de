"""Readers: messages handed out by the queue manager, and how the work on each of them ends.

A disposition (done, defer, fail, release) is recorded and travels with the next request for messages,
so that "done with these and give me more" is one request; `flush` sends what is recorded. `move` is
sent at once: it is one atomic operation of its own. Leaving the reader sends what is recorded and
gives back what is still held.

A message that comes again after its reader died is flagged `redelivered`: at least once for whatever
the reader does outside, exactly once for what happens on queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from omq.base import limits
from omq.base.checksum import crc32c
from omq.base.errors import (
    BadRequest,
    BodyDamaged,
    BodyUnavailable,
    LeaseLost,
    MessageTooLong,
    OmqError,
)
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.journal import FrameType
from omq.format.location import number_of
from omq.format.message import PART, Payload
from omq.format.wire import GIVEN, REPLY, SETTLE, GivenFlag, Operation, Settlement
from omq.ipc.link import Link
from omq.ipc.outgoing import Outgoing
from omq.storage import containers

if TYPE_CHECKING:
    from omq.ipc.client import Connection

NS = 1_000_000_000


class Message:
    """A message in hand. The body is read and checked against the submitter's CRC on first use."""

    __slots__ = ("_body", "_crc", "_entry", "_flags", "_length", "_offset", "_payload", "_raw",
                 "_reader", "_word", "attempts", "defers", "lease", "priority", "put_time_ns",
                 "qpool_id", "size")

    def __init__(self, reader: Reader, row: tuple[int, ...]) -> None:
        (self._entry, _, self.priority, self._flags, self.qpool_id, self.lease, self._word,
         self._offset, self._length, self._crc, self.size, self.put_time_ns, self.attempts,
         self.defers, _) = row
        self._reader = reader
        self._raw: bytes | None = None
        self._payload: Payload | None = None
        self._body: bytes | None = None

    @property
    def queue(self) -> str:
        return self._reader.queue

    @property
    def redelivered(self) -> bool:
        """It was handed out before, and that reader did not finish with it."""
        return bool(self._flags & GivenFlag.REDELIVERED) or self.defers > 0

    @property
    def persistent(self) -> bool:
        return bool(self._flags & GivenFlag.PERSISTENT)

    def _load(self) -> tuple[bytes, Payload]:
        if self._payload is None or self._raw is None:
            raw = self._raw
            if raw is None:
                raw = self._reader.read_payload(self._word, self._offset, self._length,
                                                self.qpool_id)
            got = crc32c(raw)
            where = f"file {number_of(self._word)} offset {self._offset}"
            payload = message_format.decode(raw)
            if got != self._crc or isinstance(payload, Finding):
                raise BodyDamaged(qpool_id=self.qpool_id, where=where, expected=self._crc, got=got)
            self._raw, self._payload = raw, payload
        return self._raw, self._payload

    @property
    def body(self) -> bytes:
        """The bytes that were put. BodyUnavailable, BodyDamaged."""
        if self._body is None:
            raw, payload = self._load()
            content = raw[payload.body_at : payload.end]
            if self._flags & GivenFlag.CONTAINER:
                reference = content.decode("ascii", "replace")
                content = containers.read_item(self._reader.paths, reference, self.size,
                                               self.qpool_id)
                expected, got = payload.descriptor.body_crc, crc32c(content)
                if expected != got:
                    raise BodyDamaged(qpool_id=self.qpool_id, where=reference, expected=expected,
                                      got=got)
            self._body = content
        return self._body

    @property
    def properties(self) -> dict[str, str]:
        raw, payload = self._load()
        found = message_format.decode_properties(raw[payload.properties_at : payload.body_at])
        if isinstance(found, Finding):
            raise BodyDamaged(qpool_id=self.qpool_id, where="its properties", expected=self._crc,
                              got=0)
        return found

    @property
    def message_id(self) -> str:
        """48 hex digits; the submitter's own if it gave one."""
        return self._given_id(self._load()[1]) or self._reader.id_prefix + f"{self.qpool_id:016x}"

    @staticmethod
    def _given_id(payload: Payload) -> str:
        given = payload.descriptor.message_id
        return given.hex() if any(given) else ""

    @property
    def correlation_id(self) -> bytes:
        return self._load()[1].descriptor.correlation_id.rstrip(b"\0")

    @property
    def path(self) -> Path | None:
        """The container file of a large body, None when the body travels with the message."""
        if not self._flags & GivenFlag.CONTAINER:
            return None
        raw, payload = self._load()
        reference = raw[payload.body_at : payload.end].decode("ascii", "replace")
        return self._reader.paths.root / containers.relative_path(reference)

    # dispositions

    def done(self) -> None:
        """Finished: the message leaves this queue."""
        self._reader.record(Settlement.DONE, self)

    def defer(self, seconds: float, reason: str = "") -> None:
        """Hand it out again after `seconds`; no failed attempt is counted."""
        self._reader.record(Settlement.DEFER, self, max(0, int(seconds * NS)), reason)

    def fail(self, reason: str = "") -> None:
        """A failed attempt: deferred, and POISON at the queue's limit."""
        self._reader.record(Settlement.FAIL, self, 0, reason)

    def release(self) -> None:
        """Give it back untouched, to its old place; no attempt is counted."""
        self._reader.record(Settlement.RELEASE, self)

    def move(self, queues: str | Sequence[str], new: Sequence[Outgoing] = ()) -> None:
        """Off this queue, onto `queues` (none = finished), and put `new`: all or nothing, now."""
        listed = (queues,) if isinstance(queues, str) else tuple(queues)
        self._reader.move(self, listed, tuple(new))

    @property
    def entry(self) -> int:
        return self._entry


class Reader:
    """A registered reader of one queue: a context manager and an iterator over messages."""

    def __init__(self, connection: Connection, link: Link, queue: str, *, batch: int,
                 auxiliary: bool) -> None:
        if not 1 <= batch <= limits.BATCH_MAX:
            raise BadRequest(reason=f"a batch is 1 to {limits.BATCH_MAX} messages")
        self._connection = connection
        self._link = link
        self.queue = queue
        self.paths = connection.paths
        self.batch = batch
        self.lost = 0  # dispositions that came too late: the manager had taken the message back
        self._held: dict[int, Message] = {}
        self._records: list[tuple[Settlement, Message, int, bytes]] = []
        self._sending: list[tuple[Settlement, Message, int, bytes]] = []  # not answered yet
        link.control({"op": "reader", "queue": queue, "auxiliary": auxiliary})
        link.reader.queue, link.reader.auxiliary = queue, auxiliary
        link.reader.messages = self._holding

    @property
    def id_prefix(self) -> str:
        return self._link.id_prefix

    def _holding(self) -> list[tuple[int, int]]:
        recorded = [(m.qpool_id, m.lease) for _, m, _, _ in (*self._records, *self._sending)]
        return [(m.qpool_id, m.lease) for m in self._held.values()] + recorded

    def next(self, n: int = 0, timeout_s: float | None = None) -> list[Message]:
        """Up to `n` messages (default: the batch), after sending what is recorded. Waits up to
        `timeout_s` (None: for ever); an empty list when the time is over or on `interrupt`."""
        n = n or self.batch
        if self._link.interrupted:
            self.flush()
            return []
        wait = -1.0 if timeout_s is None else timeout_s
        pieces, count, length = self._take_records()
        try:
            answer = self._link.request(
                Operation.NEXT, pieces, count=count, length=length, want=n, wait_s=wait,
                argument=-1 if wait < 0 else int(wait * 1000))
        finally:
            self._sending = []
        if answer.recovered:  # the settlements were carried out; what was handed out is free again
            return self.next(n, timeout_s)
        self.lost += answer.lost
        return self._rows(answer.count)

    def _rows(self, count: int) -> list[Message]:
        reply = self._link.reply
        out = []
        for i in range(count):
            row = GIVEN.unpack_from(reply, REPLY.size + i * GIVEN.size)
            message = Message(self, row)
            if row[3] & GivenFlag.INLINE:
                message._raw = bytes(reply[row[14] : row[14] + row[8]])
            self._held[message.qpool_id] = message
            out.append(message)
        return out

    def record(self, kind: Settlement, message: Message, argument: int = 0, reason: str = ""
               ) -> None:
        """Note how the work on a message ended. LeaseLost when it is not held."""
        if self._held.pop(message.qpool_id, None) is None:
            raise LeaseLost(qpool_id=message.qpool_id)
        text = reason.encode()[: limits.REASON_BYTES_MAX] if reason else b""
        self._records.append((kind, message, argument, text))

    def _take_records(self) -> tuple[list[bytes], int, int]:
        records, self._records = self._records, []
        self._sending = records
        if not records:
            return [], 0, 0
        at, heads, texts = 0, [], []
        for kind, message, argument, text in records:
            heads.append(SETTLE.pack(kind, 0, len(text), message.entry, message.qpool_id,
                                     message.lease, argument, at, 0))
            if text:
                texts.append(text)
                at += len(text)
        return [b"".join(heads), *texts], len(records), at

    def flush(self) -> None:
        """Send what is recorded; what came too late is counted in `lost`."""
        pieces, count, length = self._take_records()
        if count:
            try:
                answer = self._link.request(Operation.SETTLE, pieces, count=count, length=length)
            finally:
                self._sending = []
            self.lost += answer.lost

    def move(self, message: Message, queues: tuple[str, ...], new: tuple[Outgoing, ...]) -> None:
        """See Message.move."""
        if message.qpool_id not in self._held:
            raise LeaseLost(qpool_id=message.qpool_id)
        numbers = [self._connection.queue_number(name) for name in queues]
        parts = b"".join(PART.pack(n, message.priority, 0, 0) for n in numbers)
        encoded = [self._connection.encode(item) for item in new]
        heads, at = [], 0
        for item in encoded:
            heads.append(item.head(FrameType.PUT, at))
            at += len(item.payload)
        head = SETTLE.pack(0, 0, 0, message.entry, message.qpool_id, message.lease, 0, 0, 0)
        pieces = [head, parts, *heads, *(item.payload for item in encoded)]
        size = sum(map(len, pieces))
        if size > self._link.room:
            raise MessageTooLong(size=size, queue=self.queue, limit=self._link.room)
        try:
            self._link.request(Operation.MOVE, pieces, count=len(encoded), parts=len(numbers),
                               length=at)
        except OmqError as error:
            self._connection.refused(error, *encoded)
            raise
        self._held.pop(message.qpool_id, None)

    def read_payload(self, word: int, offset: int, length: int, qpool: int) -> bytes:
        """Payload bytes; where they lie is asked anew when they have moved meanwhile."""
        bodies = self._connection.bodies
        try:
            return bodies.read(word, offset, length, qpool)
        except BodyUnavailable:
            facts = self._link.control({"op": "locate", "qpool": qpool})
            moved = (int(facts["location"]), int(facts["offset"]))
            if moved == (word, offset):
                raise
            return bodies.read(*moved, length, qpool)

    def interrupt(self) -> None:
        """Callable from a signal handler: `next` returns soon, now and from then on."""
        self._link.interrupt()

    def __iter__(self) -> Iterator[Message]:
        while True:
            batch = self.next()
            if not batch and self._link.interrupted:
                return
            yield from batch

    def close(self) -> None:
        """Send what is recorded and give back what is held."""
        for message in list(self._held.values()):
            message.release()
        self.flush()
        self._link.reader.messages = list
        self._link.reader.queue = ""
        self._link.control({"op": "unread"})

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        # After an error nothing is settled: closing the connection gives everything back.

