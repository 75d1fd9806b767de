"""The client of the queue manager: connect, put, read, browse. This is omq's public Python API.

    with omq.connect() as c:
        c.put("ORDERS", b"body", priority=7, properties={"customer": "42"})
        with c.reader("ORDERS", batch=10) as reader:
            for message in reader:
                work(message.body)
                message.done()

A Connection has one request under way and is not for several threads: one connection a thread.

A put is acknowledged when it is on the disk. If the manager ends in between, the client waits for
the next one (up to `timeout_s`), asks it what became of the request under way, and repeats it only
if it was not carried out: exactly once, with the same message id. Settlements (done, defer, ...)
likewise; a reader that outlives the manager keeps the messages that it holds.

Errors: the classes of omq.base.errors; above all ManagerUnavailable, TimedOut, QueueFull,
NoAuthority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from omq.base import limits, names
from omq.base.checksum import crc32c
from omq.base.errors import BadRequest, ContainerUnknown, MessageTooLong, OmqError
from omq.base.paths import SpoolPaths, chosen_spool, existing_spool
from omq.format.journal import FRAME
from omq.format.wire import Operation, PutFlag
from omq.ipc.absence import Waiting
from omq.ipc.bodies import Bodies
from omq.ipc.exchange import Answer
from omq.ipc.link import Link
from omq.ipc.message import Message
from omq.ipc.outgoing import (
    Encoded,
    Outgoing,
    encode_outgoing,
    encode_plain,
    plain_payload,
    with_defaults,
)
from omq.ipc.queue_facts import QueueFacts
from omq.ipc.reader import Reader

if TYPE_CHECKING:
    from omq.core.index.view import EntryRow

__all__ = ["Connection", "Message", "Outgoing", "Reader", "connect"]

TIMEOUT_S = 60.0
_RESTARTS_MAX: Final = 3  # of the manager between a large body and its put
T = TypeVar("T")
_PUT, _PERSISTENT = int(Operation.PUT), int(PutFlag.PERSISTENT)


def _body_bytes(message: Outgoing | bytes) -> int:
    return len(message if isinstance(message, bytes) else message.body)


def connect(spool: Path | str | None = None, instance: str | None = None, name: str = "python",
            timeout_s: float = TIMEOUT_S, waiting: Waiting | None = None) -> Connection:
    """Connect to the queue manager of a spool: `spool`, else that of `instance`
    (/var/lib/omq-INSTANCE), else OMQ_SPOOL, else /var/lib/omq.

    `timeout_s`: how long to wait for a manager that is away, now and later. `waiting`: called with
    a line for the user when a wait has lasted a second. SpoolMissing at once where there is no such
    directory; ManagerUnavailable, ManagerHung, AccessDenied; BadRequest when spool and instance
    contradict each other."""
    paths = existing_spool(chosen_spool(spool, instance))
    return Connection(paths, names.check_client_name(name), timeout_s, waiting)


class Connection:
    """A registered client; see the module. Use it as a context manager."""

    def __init__(self, paths: SpoolPaths, name: str, timeout_s: float,
                 waiting: Waiting | None = None) -> None:
        self.paths = paths
        self.name = name
        self._link = Link(paths, name, timeout_s, waiting)
        self._queues: dict[str, QueueFacts] = {}
        self.bodies = Bodies(paths, self._link)

    # putting

    def put(self, queues: str | Sequence[str], body: bytes = b"", *,
            priority: int | str | None = None, properties: Mapping[str, str] | None = None,
            persistent: bool | None = None,
            correlation_id: bytes = b"", message_id: bytes = b"", expiry_s: float | None = None,
            reply_to: str = "", delay_s: float = 0.0, outgoing: Outgoing | None = None) -> str:
        """Put one message on one queue, or on several at once; its id (48 hex digits).

        Priority and persistence are those of queues.conf for the (first) queue unless said.
        `expiry_s` is kept with the message and not acted on yet. It returns when the message is on
        the disk (not for persistent=False)."""
        if isinstance(priority, str):
            priority = names.parse_priority(priority)
        if (isinstance(queues, str) and outgoing is None and not properties and expiry_s is None
                and not (correlation_id or message_id or reply_to or delay_s)
                and len(body) <= self._link.threshold):
            return self._put_plain(queues, body, priority, persistent=persistent)
        listed = (queues,) if isinstance(queues, str) else tuple(queues)
        message = outgoing
        if message is None:
            if not listed:
                raise BadRequest(reason="a message needs a queue")
            facts = self._facts(listed[0])
            message = Outgoing(
                body=body, queues=listed, properties=properties or {}, reply_to=reply_to,
                priority=facts.priority if priority is None else priority,
                persistent=facts.persistent if persistent is None else persistent,
                correlation_id=correlation_id, message_id=message_id, expiry_s=expiry_s,
                delay_s=delay_s)
        answer = self.with_bodies((message,), listed, lambda new: self._put_one(new[0], listed[0]))
        return self._id(answer.qpool, message)

    def _put_one(self, encoded: Encoded, queue: str) -> Answer:
        if len(encoded.payload) > self._link.room:
            raise MessageTooLong(size=encoded.size, queue=queue, limit=self._link.room)
        return self._link.request(
            Operation.PUT, encoded.payload, priority=encoded.priority, flags=encoded.flags,
            queue=encoded.queue, count=1, length=len(encoded.payload), size=encoded.size,
            crc=encoded.crc, correlation=encoded.correlation, want=encoded.key,
            parts=encoded.parts, expiry=encoded.expiry)

    def _put_plain(self, queue: str, body: bytes, priority: int | None, *,
                   persistent: bool | None) -> str:
        """A message that has nothing but a body, by the shortest way."""
        facts = self._queues.get(queue) or self._facts(queue)
        link = self._link
        payload = plain_payload(body)
        if len(payload) > link.room:
            raise MessageTooLong(size=len(body), queue=queue, limit=link.room)
        if persistent is None:
            persistent = facts.persistent
        answer = link.request(
            _PUT, payload, facts.priority if priority is None else names.check_priority(priority),
            _PERSISTENT if persistent else 0, facts.number, 1, len(payload), len(body),
            crc32c(payload))
        return link.id_prefix + f"{answer.qpool:016x}"

    def with_bodies(self, messages: Sequence[Outgoing], queues: Sequence[str],
                    request: Callable[[list[Encoded]], T]) -> T:
        """Encode, ask, and tidy up what a refusal leaves. A manager that was started in between
        does not know its predecessor's containers (ContainerUnknown): then all of it again."""
        for left in reversed(range(_RESTARTS_MAX)):
            encoded: list[Encoded] = []
            try:
                for message in messages:
                    encoded.append(self.encode(message, queues))
                return request(encoded)
            except OmqError as error:
                self.bodies.refused(error, *encoded)
                if not left or not isinstance(error, ContainerUnknown):
                    raise
        raise AssertionError("the last round returns or raises")

    def put_many(self, queue: str, messages: Sequence[Outgoing | bytes]) -> list[str]:
        """Put many messages on one queue; their ids. Each request of a batch is all or nothing; a
        sequence too long for one request goes in several."""
        number = self.queue_number(queue)
        plain = self._queues[queue].plain
        ids: list[str] = []
        rows: list[Encoded] = []
        start, room, size, threshold = 0, self._link.room, 0, self._link.threshold
        owns = self._link.owns
        for i, message in enumerate(messages):
            if not owns and _body_bytes(message) > threshold:  # its body goes by itself
                ids += self._put_batch(number, rows, messages[start:i])
                rows, start, size = [], i + 1, 0
                ids.append(self.put(queue, outgoing=self._one_queue(queue, message)))
                continue
            if plain and isinstance(message, bytes) and len(message) <= threshold:
                encoded = encode_plain(number, message)
            else:
                encoded = self.encode(self._one_queue(queue, message), (queue,))
            need = FRAME.size + len(encoded.payload)
            if need > room:
                raise MessageTooLong(size=len(encoded.payload), queue=queue, limit=room)
            if rows and (size + need > room or len(rows) >= limits.BATCH_MAX):
                ids += self._put_batch(number, rows, messages[start:i])
                rows, start, size = [], i, 0
            rows.append(encoded)
            size += need
        if rows:
            ids += self._put_batch(number, rows, messages[start:])
        return ids

    @staticmethod
    def _one_queue(queue: str, message: Outgoing | bytes) -> Outgoing:
        if isinstance(message, bytes):
            message = Outgoing(body=message)
        if message.delay_s or message.queues not in ((), (queue,)):
            raise BadRequest(reason="put_many takes messages for one queue, without a delay")
        return message

    def _put_batch(self, queue: int, rows: list[Encoded], messages: Sequence[Outgoing | bytes]
                   ) -> list[str]:
        if not rows:
            return []
        heads = [row.head() for row in rows]
        payloads = [row.payload for row in rows]
        try:
            answer = self._link.request(
                Operation.PUT_MANY, b"".join([*heads, *payloads]), queue=queue, count=len(rows),
                length=sum(map(len, payloads)))
        except OmqError as error:
            self.bodies.refused(error, *rows)
            raise
        first = answer.qpool
        return [self._id(first + i, message) for i, message in enumerate(messages)]

    def encode(self, message: Outgoing, queues: Sequence[str] = ()) -> Encoded:
        """A message as the wire carries it, for `queues` unless it names its own."""
        listed = message.queues or tuple(queues)
        numbers = [self.queue_number(name) for name in listed]
        reply_to = self.queue_number(message.reply_to) if message.reply_to else 0
        if listed and (message.priority is None or message.persistent is None):
            first = self._queues[listed[0]]
            message = with_defaults(message, first.priority, persistent=first.persistent)
        return encode_outgoing(message, numbers, reply_to, self.paths, self._link.threshold,
                               self.name, lambda body: self.bodies.contain(listed[0], body))

    def _id(self, qpool: int, message: Outgoing | bytes) -> str:
        if isinstance(message, Outgoing) and message.message_id:
            return names.message_id_text(message.message_id.ljust(24, b"\0"))
        return self._link.id_prefix + f"{qpool:016x}"

    # reading

    def reader(self, queue: str, *, batch: int = 1, auxiliary: bool = False) -> Reader:
        """Register as a reader of a queue: main, or auxiliary (gets messages when there is a
        backlog). One reader a connection."""
        return Reader(self, self._link, queue, batch=batch, auxiliary=auxiliary)

    def browse(self, queue: str, limit: int = 0) -> Iterator[EntryRow]:
        """The messages of a queue in the order in which they would be handed out, without touching
        them (rows of omq.core.index.view). For operators: NotOperator."""
        from omq.core.index.view import IndexView

        with IndexView.attach(self.paths) as view:
            rows = list(view.entries(queue, limit or limits.BROWSE_MAX))
        return iter(rows)

    def body(self, qpool_id: int) -> bytes:
        """The body of a message that this client holds, or that lies on a queue where it has the
        right to browse; the message is not touched. NoMessage, BodyUnavailable, BodyDamaged."""
        return self.bodies.body(qpool_id)

    def queue_number(self, queue: str) -> int:
        """UnknownQueue."""
        return self._facts(queue).number

    def length_max(self, queue: str) -> int:
        """Bytes of the longest body that the queue takes; UnknownQueue."""
        return self._facts(queue).length_max

    def _facts(self, queue: str) -> QueueFacts:
        """Asked once a connection, with the defaults of queues.conf."""
        known = self._queues.get(queue)
        if known is None:
            names.check_queue_name(queue)
            facts = self.control({"op": "open", "queue": queue})
            known = self._queues[queue] = QueueFacts(
                int(facts["queue"]), int(facts["priority"]), bool(facts["persistent"]),
                int(facts["max_length"]))
        return known

    def control(self, question: dict[str, Any]) -> dict[str, Any]:
        """One question over the control connection, for tools; the answer."""
        return self._link.control(question)

    def relocate(self, rows: bytes) -> int:
        """pool.writer: bodies have moved (rows of format.wire.MOVED); how many were taken."""
        return self._link.request(Operation.RELOCATE, rows, length=len(rows)).count

    def close(self) -> None:
        """Unregister. Messages still held come back to their queue."""
        self._link.close()
        self.bodies.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


