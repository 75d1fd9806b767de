"""What a connection is made of: its link, what it knows of queues, its bodies, and messages as the
wire carries them. Tools and the other modules of the client use it; programs use omq.Connection.

Errors: those of the link; UnknownQueue, MessageTooLong, ContainerUnknown.

What a client knows of a queue: asked once a connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from omq.base import limits, names
from omq.base.checksum import crc32c
from omq.base.errors import (
    BadRequest,
    ContainerUnknown,
    MessageTooLong,
    OmqError,
    QueueGone,
)
from omq.base.paths import SpoolPaths
from omq.fast.batch import Batch, Marks, group_mark, headed, id_texts, part_bytes, plain_head
from omq.format.message import Descriptor
from omq.format.wire import Operation, PutFlag
from omq.ipc.client.bodies import Bodies
from omq.ipc.client.manager_absence import Waiting
from omq.ipc.client.parking_link import ParkingLink
from omq.ipc.client.remote_header import REMOTE_MANAGER, REMOTE_QUEUE
from omq.ipc.wire.arguments import NOTHING_SAID
from omq.ipc.wire.exchange import Answer
from omq.ipc.wire.outgoing import Contain, Encoded, Outgoing, encode_outgoing


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What a client knows of a queue: its number, and what its messages are that do not say it."""

    number: int
    priority: int
    persistent: bool
    length_max: int  # bytes of a body
    queues: tuple[str, ...] = ()  # that the name stands for, if that is not itself
    remote: tuple[str, str] | None = None  # queue manager and queue that it goes to in the end

    @property
    def plain(self) -> bool:
        return (self.priority == limits.PRIORITY_NORMAL and self.persistent
                and not self.remote and len(self.queues) < 2)


_RESTARTS_MAX: Final = 3  # of the manager between a large body and its put
T = TypeVar("T")
_PUT, _PUT_MANY, _PERSISTENT, _GROUPED = (
    int(Operation.PUT), int(Operation.PUT_MANY), int(PutFlag.PERSISTENT), int(PutFlag.GROUPED))
_NORMAL: Final = limits.PRIORITY_NORMAL
_ID_BYTES: Final = limits.MESSAGE_ID_BYTES


class Wire:
    """See the module. Of one connection."""

    def __init__(self, paths: SpoolPaths, name: str, timeout_s: float,
                 waiting: Waiting | None = None) -> None:
        self.paths = paths
        self.name = name
        self.link = ParkingLink(paths, name, timeout_s, waiting)
        self.queues: dict[str, QueueFacts] = {}
        self._asked_s = 0.0  # when the first of these was
        self.direct: dict[str, QueueFacts] = {}  # those of one queue that is here
        self._names: dict[int, str] = {}
        self.bodies = Bodies(paths, self.link)
        self._batch = Batch()
        self._pattern = Descriptor(application=name.encode()[:12]).encode()

    # queues

    def facts(self, queue: str) -> QueueFacts:
        """Asked once a connection, with the defaults of queues.conf. UnknownQueue."""
        known = self.queues.get(queue)
        if known is None:
            names.check_queue_name(queue)
            facts = self.link.control({"op": "open", "queue": queue})
            listed, remote = tuple(facts["queues"]), facts.get("remote")
            known = QueueFacts(
                int(facts["queue"]), int(facts["priority"]), bool(facts["persistent"]),
                int(facts["max_length"]), () if listed == (queue,) else listed,
                (str(remote[0]), str(remote[1])) if remote else None)
            if not self.queues:
                self._asked_s = time.monotonic()
            self.queues[queue] = known
            self.link.opened[known.number] = listed[0]
            if not remote and len(listed) == 1:
                self.direct[queue] = known
        return known

    def forget(self, after_s: float = 0.0) -> None:
        """Names may stand for other queues now: they are asked for again. `after_s`: not before
        that time has passed since the first of them was asked for."""
        if after_s and (not self.queues or time.monotonic() < self._asked_s + after_s):
            return
        self.queues.clear()
        self.direct.clear()
        self._names.clear()

    def listed(self, queues: Sequence[str]) -> list[str]:
        """The queues that these names stand for, each once."""
        out: dict[str, None] = {}
        for name in queues:
            facts = self.facts(name)
            out.update(dict.fromkeys(facts.queues if len(facts.queues) > 1 else (name,)))
        return list(out)

    def header(self, queues: Sequence[str]) -> dict[str, str]:
        """What a message says that goes to a queue of another queue manager: where to."""
        remote = [facts.remote for name in queues if (facts := self.facts(name)).remote]
        if not remote:
            return {}
        if len(queues) > 1:
            raise BadRequest(reason="a message goes to one remote queue, and to no other queue")
        assert remote[0] is not None
        return {REMOTE_MANAGER: remote[0][0], REMOTE_QUEUE: remote[0][1]}

    def queue_number(self, queue: str) -> int:
        """UnknownQueue."""
        return self.facts(queue).number

    def queue_name(self, number: int, message: int = 0) -> str:
        """The name of a queue by its number, asked once a connection; UnknownQueue. `message`: the
        QPoolId of the one that names it; QueueGone when the number was another queue's then."""
        known = self._names.get(number)
        if known is None:
            more = {"message": message} if message else {}
            told = self.link.control({"op": "name", "queue": number, **more})
            known = str(told["name"])
            if told["stays"]:
                self._names[number] = known
        return known

    # putting

    def put_plain(self, encoded: Encoded, queue: str) -> str:
        """What `body_alone` has made for this queue, by the shortest way; its id. "": it cannot go
        that way."""
        link, payload = self.link, encoded.payload
        if len(payload) > link.room:
            raise MessageTooLong(size=encoded.size, queue=queue, limit=link.room)
        try:
            answer = link.request(_PUT, payload, encoded.priority, encoded.flags, encoded.queue, 1,
                                  len(payload), encoded.size, encoded.crc)
        except QueueGone:  # the other way opens it again
            self.forget()
            return ""
        return link.id_prefix + f"{answer.qpool:016x}"

    def body_alone(self, queue: Any, body: Any, priority: Any, persistent: Any, group: Any,
                   more: tuple[Any, ...]) -> Encoded | None:
        """A message that has nothing but a body, and perhaps the id of a group, by the shortest
        way. None: it needs the way that everything goes (`encode`), for it says more (`more`: the
        other arguments of `put`, from correlation_id to unique_key), or needs a container, or its
        queue is elsewhere, or these are no arguments at all."""
        if not (type(queue) is str and type(body) is bytes and more == NOTHING_SAID
                and (priority is None or type(priority) is int)
                and (persistent is None or type(persistent) is bool)
                and (group == b"" or (type(group) is bytes and len(group) <= _ID_BYTES
                                      and group.strip(b"\0")))
                and len(body) <= self.link.threshold):
            return None
        facts = self.direct.get(queue)
        if facts is None:
            self.facts(queue)
            facts = self.direct.get(queue)
            if facts is None:
                return None
        if persistent is None:
            persistent = facts.persistent
        flags, size = _PERSISTENT if persistent else 0, len(body)
        if group:
            head, crc = headed(self._pattern, size, group_mark(group, 0))
            flags |= _GROUPED
        else:
            head, crc = plain_head(size)
        return Encoded(
            facts.number, facts.priority if priority is None else names.check_priority(priority),
            flags, size, crc32c(body, crc), 0, 0, 0, 0, head + body)

    def put_one(self, encoded: Encoded, queue: str) -> Answer:
        """Any message."""
        if len(encoded.payload) > self.link.room:
            raise MessageTooLong(size=encoded.size, queue=queue, limit=self.link.room)
        return self.link.request(
            Operation.PUT, encoded.payload, priority=encoded.priority, flags=encoded.flags,
            queue=encoded.queue, count=1, length=len(encoded.payload), size=encoded.size,
            crc=encoded.crc, correlation=encoded.correlation, want=encoded.key,
            parts=encoded.parts, expiry=encoded.expiry)

    def put_batch(self, queue: int, rows: list[Encoded], messages: Sequence[Outgoing | bytes]
                  ) -> list[str]:
        """`rows` are `messages` encoded, on one queue; their ids."""
        if not rows:
            return []
        data, length = part_bytes([], rows)
        try:
            answer = self.link.request(
                Operation.PUT_MANY, data, queue=queue, count=len(rows), length=length)
        except OmqError as error:
            self.bodies.refused(error, *rows)
            if isinstance(error, QueueGone):
                self.forget()
            raise
        return self.id_texts(answer.qpool, messages)

    def put_plain_batch(self, queue: int, messages: list[bytes], start: int,
                        priority: int = _NORMAL, flags: int = _PERSISTENT,
                        pattern: bytes = b"", marks: Marks | None = None) -> list[str]:
        """The bodies from `start` on, as many as one request takes; their ids. None goes into a
        container; what else all of them have is as wire.outgoing.alike_head has it, of their
        groups as fast.batch.marks_of."""
        batch, link = self._batch, self.link
        if not batch.take(queue, messages, start, link.room, priority, flags, pattern, marks):
            # The first does not fit: the next manager may have a smaller channel and threshold.
            raise MessageTooLong(size=len(messages[start]), queue=self.queue_name(queue),
                                 limit=link.room)
        try:
            answer = link.request(_PUT_MANY, batch.data, 0, 0, queue, batch.count, batch.length)
        except QueueGone:
            self.forget()
            raise
        return id_texts(link.id_prefix, answer.qpool, batch.count)

    def with_bodies(self, messages: Sequence[Outgoing], queues: Sequence[str],
                    request: Callable[[list[Encoded]], T], contain: Contain | None = None) -> T:
        """Encode, ask, and tidy up what a refusal leaves. A manager that was started in between
        does not know its predecessor's containers (ContainerUnknown): then all of it again."""
        for left in reversed(range(_RESTARTS_MAX)):
            encoded: list[Encoded] = []
            try:
                for message in messages:
                    encoded.append(self.encode(message, queues, contain))
                return request(encoded)
            except OmqError as error:
                self.bodies.refused(error, *encoded)
                if not left or not isinstance(error, ContainerUnknown | QueueGone):
                    raise
                if isinstance(error, QueueGone):
                    self.forget()
        raise AssertionError("the last round returns or raises")

    def encode(self, message: Outgoing, queues: Sequence[str] = (),
               contain: Contain | None = None) -> Encoded:
        """A message as the wire carries it, for `queues` unless it names its own. `contain`: makes
        its container, whatever its body here."""
        listed = message.queues or tuple(queues)
        direct = self.direct.get(listed[0]) if len(listed) == 1 else None
        if direct is not None:
            numbers = [direct.number]
            defaults = direct.priority, direct.persistent
        else:
            if header := self.header(listed):
                message = replace(message, properties={**message.properties, **header})
            numbers = [self.queue_number(name) for name in self.listed(listed)]
            facts = self.queues[listed[0]] if listed else None
            defaults = (facts.priority, facts.persistent) if facts else (_NORMAL, True)
        reply_to = self.queue_number(message.reply_to) if message.reply_to else 0
        return encode_outgoing(
            message, numbers, reply_to, self.paths, self.link.threshold if contain is None else -1,
            self.name, contain or (lambda body: self.bodies.contain(listed[0], body)), defaults)

    def id_text(self, qpool: int, message: Outgoing | bytes) -> str:
        """The id of a message that was put."""
        if isinstance(message, Outgoing) and message.message_id:
            return names.message_id_text(message.given_id.ljust(24, b"\0"))
        return self.link.id_prefix + f"{qpool:016x}"

    def id_texts(self, first: int, messages: Sequence[Outgoing | bytes]) -> list[str]:
        """The ids of messages that were put; `first`: the QPoolId of the first one."""
        ids: list[str] = id_texts(self.link.id_prefix, first, len(messages))
        for i, message in enumerate(messages):
            if isinstance(message, Outgoing) and message.message_id:
                ids[i] = self.id_text(first + i, message)
        return ids

    # for tools

    def control(self, question: dict[str, Any]) -> dict[str, Any]:
        """One question over the control connection; the answer."""
        return self.link.control(question)

    def close(self) -> None:
        """Say good-bye."""
        self.link.close()
        self.bodies.close()
