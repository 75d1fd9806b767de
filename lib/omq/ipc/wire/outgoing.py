"""A message on its way in: what a program says of it, and its encoded form.

Bodies above the container threshold become container files, durable before the put: the spool's
owner writes them itself, for others the manager does it (ipc.client.bodies). If the put is then
refused the container is removed; an owner that dies in between leaves an orphan, which omscan
finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any

from omq.base import clock
from omq.base.checksum import crc32c
from omq.base.clock import NS_PER_S as NS
from omq.base.errors import BadRequest
from omq.base.paths import SpoolPaths
from omq.format import message as message_format
from omq.format.journal import FRAME, FrameType
from omq.format.message import DESCRIPTOR, NO_ID, Descriptor, Part
from omq.format.wire import PutFlag
from omq.ipc.wire import arguments
from omq.storage import containers

Contain = Callable[[bytes], tuple[str, int, int]]


@dataclass(frozen=True, slots=True, init=False)
class Outgoing:
    """A message to put. `queues` may be empty where the operation names the queue. What is None is
    as queues.conf has it for the (first) queue. BadArgument names what cannot be."""

    body: bytes
    queues: tuple[str, ...]
    priority: int | None  # 0 to 9
    properties: Mapping[str, Any]  # kept as format.property_values
    persistent: bool | None
    correlation_id: bytes | str  # up to 24 bytes, a text, or what `put` returned
    message_id: bytes | str  # the same; empty = the manager's
    expiry_s: float | None  # seconds from now; then it leaves its queues
    reply_to: str
    delay_s: float  # not handed out before that time has passed, to 10 ms
    at: datetime | None  # or not before then; without a time zone it is local time
    group_id: bytes | str  # of one group: to one reader at a time, in order
    group_sequence: int  # its number in the group, from 1; 0 = none
    last_in_group: bool  # it has the highest number
    unique_key: bytes | str | None  # its id; a queue with dedupe_s takes it once
    said: int  # format.message.Said, of servers of other protocols; 0 = nothing of that

    def __init__(self, body: bytes = b"", queues: tuple[str, ...] = (),
                 priority: int | None = None, properties: Mapping[str, Any] | None = None,
                 persistent: bool | None = None,  # noqa: FBT001 (as the fields are)
                 correlation_id: bytes | str = b"", message_id: bytes | str = b"",
                 expiry_s: float | None = None, reply_to: str = "", delay_s: float = 0.0,
                 at: datetime | None = None, group_id: bytes | str = b"", group_sequence: int = 0,
                 last_in_group: bool = False,  # noqa: FBT001, FBT002
                 unique_key: bytes | str | None = None, said: int = 0) -> None:
        """Each is looked at before anything is set, and set by its slot: what a dataclass does
        costs twice as much, for each message that is put."""
        if type(body) is not bytes:
            body = arguments.body(body)
        listed = () if queues == () else arguments.queues(queues)
        if priority is not None:
            priority = arguments.priority(priority)
        texts = ({} if properties is None or properties == {}
                 else arguments.properties(properties))
        if persistent is not None:
            arguments.flag(persistent, "persistent")
        if correlation_id != b"":
            arguments.identifier(correlation_id, "correlation_id")
        if message_id != b"":
            arguments.own_message_id(message_id)
        if expiry_s is not None:
            arguments.seconds(expiry_s, "expiry_s")
        if reply_to != "":
            arguments.queue(reply_to, "reply_to")
        if delay_s != 0.0:
            arguments.seconds(delay_s, "delay_s")
        if at is not None:
            arguments.moment(at, "at")
            if delay_s:
                raise arguments.wrong("at", at, "it cannot be combined with delay_s")
        if unique_key is not None:
            made = arguments.unique_key(unique_key)
            if message_id not in (b"", "", made):
                raise arguments.wrong("unique_key", unique_key, "it is the message's id: "
                                      "it cannot be combined with message_id")
            message_id = made
        if group_id not in (b"", "") or group_sequence != 0 or last_in_group is not False:
            arguments.group(group_id, group_sequence, last_in_group)
        if said != 0:
            arguments.said(said)
        _SET_BODY(self, body)
        _SET_QUEUES(self, listed)
        _SET_PRIORITY(self, priority)
        _SET_PROPERTIES(self, texts)
        _SET_PERSISTENT(self, persistent)
        _SET_CORRELATION_ID(self, correlation_id)
        _SET_MESSAGE_ID(self, message_id)
        _SET_EXPIRY_S(self, expiry_s)
        _SET_REPLY_TO(self, reply_to)
        _SET_DELAY_S(self, delay_s)
        _SET_AT(self, at)
        _SET_GROUP_ID(self, group_id)
        _SET_GROUP_SEQUENCE(self, group_sequence)
        _SET_LAST_IN_GROUP(self, last_in_group)
        _SET_UNIQUE_KEY(self, unique_key)
        _SET_SAID(self, said)

    def with_body(self, body: bytes) -> Outgoing:
        """The same with this body. What else it says was looked at, and is shared."""
        made = _NEW(Outgoing)
        _SET_BODY(made, body)
        _SET_QUEUES(made, self.queues)
        _SET_PRIORITY(made, self.priority)
        _SET_PROPERTIES(made, self.properties)
        _SET_PERSISTENT(made, self.persistent)
        _SET_CORRELATION_ID(made, self.correlation_id)
        _SET_MESSAGE_ID(made, self.message_id)
        _SET_EXPIRY_S(made, self.expiry_s)
        _SET_REPLY_TO(made, self.reply_to)
        _SET_DELAY_S(made, self.delay_s)
        _SET_AT(made, self.at)
        _SET_GROUP_ID(made, self.group_id)
        _SET_GROUP_SEQUENCE(made, self.group_sequence)
        _SET_LAST_IN_GROUP(made, self.last_in_group)
        _SET_UNIQUE_KEY(made, self.unique_key)
        _SET_SAID(made, self.said)
        return made

    @property
    def given_id(self) -> bytes:
        """The bytes of `message_id`."""
        return arguments.identifier(self.message_id, "message_id")


_NEW = object.__new__
_SETS = [Outgoing.__dict__[each.name].__set__ for each in fields(Outgoing)]
(_SET_BODY, _SET_QUEUES, _SET_PRIORITY, _SET_PROPERTIES, _SET_PERSISTENT, _SET_CORRELATION_ID,
 _SET_MESSAGE_ID, _SET_EXPIRY_S, _SET_REPLY_TO, _SET_DELAY_S, _SET_AT, _SET_GROUP_ID,
 _SET_GROUP_SEQUENCE, _SET_LAST_IN_GROUP, _SET_UNIQUE_KEY, _SET_SAID) = _SETS


@dataclass(slots=True)
class Encoded:
    """A message as the wire carries it."""

    queue: int  # 0 when it goes on several
    priority: int
    flags: int
    size: int
    crc: int
    correlation: int
    key: int
    expiry: int
    parts: int
    payload: bytes
    container: str = ""

    def head(self, offset: int = 0) -> bytes:
        """A frame header with what the submitter says; the manager fills in the rest. A client has
        it from fast.batch, which is compared with this."""
        return FRAME.pack(FrameType.PUT, self.priority, self.flags, self.queue, 0, 0, 0, 0,
                          self.size, len(self.payload), self.crc, offset, 0, 0, 0, 0, self.parts,
                          0, 0, self.key, 0, 0, self.correlation, self.expiry, 0, 0, 0, 0)


_NORMAL = 4
_PERSISTENT, _GIVEN_ID, _GROUPED, _UNIQUE, _CONTAINER = (
    int(PutFlag.PERSISTENT), int(PutFlag.GIVEN_ID), int(PutFlag.GROUPED), int(PutFlag.UNIQUE),
    int(PutFlag.CONTAINER))
_PLAIN = Descriptor().encode()
_BODY_AT = DESCRIPTOR.offset("body")
_PLAIN_HEAD, _PLAIN_TAIL = _PLAIN[:_BODY_AT], _PLAIN[_BODY_AT + 8 :]


def plain_payload(body: bytes) -> bytes:
    """The payload of a message that has nothing but a body."""
    return b"".join((_PLAIN_HEAD, len(body).to_bytes(8, "little"), _PLAIN_TAIL, body))


def encode_plain(queue: int, body: bytes) -> Encoded:
    """A persistent message of normal priority with nothing but a body."""
    payload = plain_payload(body)
    return Encoded(queue, _NORMAL, 1, len(body), crc32c(payload), 0, 0, 0, 0, payload)


def alike_head(message: Outgoing, application: str) -> tuple[int, int, bytes]:
    """Of messages that differ in nothing but their bodies: priority, flags, and what precedes
    a body. They have properties, or leave something open (`said`), and are put on one queue, now.
    BadProperty."""
    raw = message_format.encode_properties(message.properties)
    descriptor = Descriptor(flags=message.said, application=application.encode()[:12])
    persistent = message.persistent is None or message.persistent
    priority = _NORMAL if message.priority is None else message.priority
    return (priority, _PERSISTENT if persistent else 0,
            descriptor.sized(0, len(raw), 0, 0) + raw)


def encode_outgoing(message: Outgoing, queues: Sequence[int], reply_to: int, paths: SpoolPaths,
                    threshold: int, application: str, contain: Contain | None = None,
                    defaults: tuple[int, bool] = (_NORMAL, True)) -> Encoded:
    """Encode a message for the queues with these numbers; what it leaves open of priority and
    persistence is `defaults`. BadRequest, BadPriority, BadProperty."""
    body = message.body
    priority = defaults[0] if message.priority is None else message.priority
    persistent = defaults[1] if message.persistent is None else message.persistent
    if (len(queues) == 1 and len(body) <= threshold and not message.properties
            and not message.correlation_id and not message.message_id and message.expiry_s is None
            and not reply_to and not message.delay_s and message.at is None
            and not message.group_id and not message.said):
        payload = plain_payload(body)
        return Encoded(queues[0], priority, _PERSISTENT if persistent else 0,
                       len(body), crc32c(payload), 0, 0, 0, 0, payload)
    return _encode_full(message, queues, reply_to, threshold, application,
                        contain or partial(own_container, paths), priority, persistent)


def own_container(paths: SpoolPaths, body: bytes, spares: containers.Spares | None = None
                  ) -> tuple[str, int, int]:
    """A container of the spool's owner: (reference, bytes, CRC-32C)."""
    view = memoryview(body)
    size = containers.CHUNK_BYTES
    return containers.create(
        paths, (view[at : at + size] for at in range(0, len(body), size)), spares, len(body))


def _encode_full(message: Outgoing, queues: Sequence[int], reply_to: int, threshold: int,
                 application: str, contain: Contain, priority: int, persistent: bool  # noqa: FBT001
                 ) -> Encoded:
    if not queues:
        raise BadRequest(reason="a message needs a queue")
    correlation = _identifier(message.correlation_id, "correlation_id")
    given = _identifier(message.message_id, "message_id")
    expiry = until = 0
    if message.expiry_s is not None:
        expiry = clock.wall_ns() + int(message.expiry_s * NS)
    if message.delay_s > 0:  # what is later than the records know waits until then
        until = min(clock.wall_ns() + int(message.delay_s * NS), int(arguments.SECONDS_MAX) * NS)
    if message.at is not None:
        until = arguments.moment(message.at, "at")
        until = until if until > clock.wall_ns() else 0
    parts: list[Part] = []
    if len(queues) > 1 or until:
        parts = [Part.later(queue, priority, until, moment=message.at is not None)
                 for queue in queues]
    descriptor = Descriptor(
        flags=message.said, expiry=expiry, message_id=given, correlation_id=correlation,
        reply_to=reply_to, application=application.encode()[:12],
        group_id=_identifier(message.group_id, "group_id"),
        group_sequence=message.group_sequence | (
            message_format.LAST_IN_GROUP if message.last_in_group else 0))
    properties = message_format.encode_properties(message.properties)
    flags = ((_PERSISTENT if persistent else 0) | (_GIVEN_ID if given != NO_ID else 0)
             | (_GROUPED if message.group_id else 0) | (_UNIQUE if message.unique_key else 0))
    container, size = "", len(message.body)
    content: bytes = message.body
    body_crc = 0
    if size > threshold:
        if not persistent:
            raise BadRequest(reason=f"a non-persistent body has at most {threshold} bytes")
        container, size, body_crc = contain(message.body)
        content = container.encode()
        flags |= _CONTAINER
    payload = message_format.encode(descriptor, parts, properties, content, size, body_crc)
    return Encoded(
        queues[0], priority, flags, size, crc32c(payload),
        message_format.id_hash(correlation) if correlation is not NO_ID else 0,
        message_format.id_hash(given) if given is not NO_ID else 0, expiry, len(parts),
        payload, container)


def _identifier(said: bytes | str, argument: str) -> bytes:
    return arguments.identifier(said, argument).ljust(len(NO_ID), b"\0") if said else NO_ID


# what put_many is given


def body_bytes(message: Outgoing | bytes) -> int:
    """Of its body."""
    return len(message if isinstance(message, bytes) else message.body)


def as_outgoing(message: Outgoing | bytes) -> Outgoing:
    """A body alone is a message, too."""
    return Outgoing(body=message) if isinstance(message, bytes) else message


def names_queues(message: Outgoing | bytes) -> bool:
    """It says itself where it goes."""
    return isinstance(message, Outgoing) and message.queues != ()


def names_id(message: Outgoing | bytes) -> bool:
    """It has an id of its own, so it may be a duplicate."""
    return isinstance(message, Outgoing) and message.message_id != b""


def by_itself(queue: str, message: Outgoing | bytes) -> bool:
    """It is not only for this queue and at once: no batch has it."""
    return isinstance(message, Outgoing) and bool(
        message.delay_s or message.at is not None or message.queues not in ((), (queue,)))
