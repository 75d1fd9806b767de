"""What a payload says of its message: ids, properties, the queue for replies, the body. The same
for a message in hand and for one that is only looked at.

The payload is read and checked against the submitter's CRC on first use.
Errors: BodyUnavailable, BodyDamaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from omq.base import names
from omq.base.errors import BodyDamaged
from omq.fast.handed_messages import Facts
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.message import DESCRIPTOR, NO_ID, Descriptor
from omq.format.property_values import carried, values_of
from omq.format.wire import GivenFlag
from omq.ipc.client.bodies import pieces_of
from omq.ipc.client.failures import Failure, failure_of

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire

_CONTAINER: Final = int(GivenFlag.CONTAINER)
_SIZE_AT: Final = DESCRIPTOR.offset("body")
_BESIDE_AT: Final = _SIZE_AT + 8
_KEPT_BYTES_MAX: Final = 4096
"""Properties up to this size are decoded once; larger ones whenever they are wanted, so that those
who hold many messages hold little of each."""


class Ids(NamedTuple):
    """As the properties of the same names have them; `replies`: there is a `reply_to`; `own`: the
    id is the instance's, for none was given."""

    message_id: str
    correlation: str
    group_id: str
    expiry_ns: int
    replies: bool
    own: bool


class PayloadFacts(Facts):
    """See the module. A subclass knows how its payload is read, and its CRC."""

    __slots__ = ("_failed", "_found", "_named")  # what was learnt: outlives the payload
    _wire: Wire
    _found: dict[str, str]
    _named: str
    _failed: Failure | None

    @property
    def queue(self) -> str:
        """The queue that it is on."""
        raise NotImplementedError

    def _where(self) -> str:
        raise NotImplementedError

    def _damaged(self, got: int) -> BodyDamaged:
        return BodyDamaged(qpool_id=self.qpool_id, where=self._where(), expected=self._crc, got=got)

    def _descriptor(self) -> Descriptor:
        payload = message_format.decode(self._load())
        if isinstance(payload, Finding):
            raise BodyDamaged(qpool_id=self.qpool_id, where="its descriptor", expected=self._crc,
                              got=0)
        return payload.descriptor

    @property
    def noted(self) -> bool:
        """Whether `failure` had more than the queue to say when the manager gave it."""
        raise NotImplementedError

    @property
    def failure(self) -> Failure | None:
        """How it came to the dead-letter queue (or POISON) that it is on; None on other queues, and
        when it did not fail its way there. The manager is asked once, when this is wanted first."""
        if not hasattr(self, "_failed"):
            self._failed = failure_of(self._wire, self.queue, self.qpool_id)
        return self._failed

    @property
    def body(self) -> bytes:
        """The bytes that were put. BodyUnavailable, BodyDamaged."""
        raw = self._load()
        content = raw[self._body_at :]
        if self._flags & _CONTAINER:
            reference = content.decode("ascii", "replace")
            content = self._wire.bodies.container(
                reference, self.size, self._descriptor().body_crc, self.qpool_id)
        return content

    def pieces(self) -> Iterator[bytes]:
        """The same in pieces, of 1 MiB at most where it lies in a container: never all of it in
        memory. Its checksum is known after the last one (BodyDamaged): what was made of them until
        then counts only if it did not come. BodyUnavailable."""
        raw = self._load()
        content = raw[self._body_at :]
        if not self._flags & _CONTAINER:
            yield content
            return
        from omq.ipc.client.body_pieces import descriptor_of

        reference, bodies = content.decode("ascii", "replace"), self._wire.bodies
        descriptor = descriptor_of(bodies, reference, self.size, self.qpool_id)
        yield from pieces_of(descriptor, self.size, self._descriptor().body_crc, self.qpool_id,
                             reference)

    @property
    def properties(self) -> dict[str, Any]:
        """What the submitter said of it: a str, int, float, bool, datetime or bytes each, as it was
        put; the caller's own."""
        return values_of(self._said())

    @property
    def texts(self) -> dict[str, str]:
        """The same as texts, with their types (format.property_values); the caller's own.
        Names that no property may have by now are in `amqp.named`."""
        return dict(carried(self._said()))

    @property
    def properties_bytes(self) -> bytes:
        """The same as it lies in the message: where these are equal, so is all that they say."""
        raw = self._load()
        return raw[self._properties_at : self._body_at]

    @property
    def parted(self) -> tuple[bytes, bytes, bytes] | None:
        """All that the payload says but its body and that one's size, before and after this: where
        these are equal, so are ids that were given, properties, the end and the group. Then the
        body. None: that lies in a container file."""
        raw, at = self._load(), self._body_at
        return None if self._flags & _CONTAINER else (raw[:_SIZE_AT], raw[_BESIDE_AT:at], raw[at:])

    @property
    def own_id(self) -> str:
        """`message_id` where the submitter gave none: it is the instance's."""
        return f"{self._wire.link.id_prefix}{self.qpool_id:016x}"

    def _said(self) -> dict[str, str]:
        """As it lies in the message; the caller's own."""
        kept: dict[str, str] | None = getattr(self, "_found", None)
        if kept is not None:
            return kept.copy()
        raw = self._load()
        found = message_format.decode_properties(raw[self._properties_at : self._body_at])
        if isinstance(found, Finding):
            raise BodyDamaged(qpool_id=self.qpool_id, where="its properties", expected=self._crc,
                              got=0)
        if self._body_at - self._properties_at <= _KEPT_BYTES_MAX:
            self._found = found.copy()
        return found

    @property
    def ids(self) -> Ids:
        """All that its descriptor says of ids, and when it ends, read once: who wants several of
        them asks for these."""
        expiry, given, correlation, group, reply_to = message_format.ids_of(self._load())
        if not (named := getattr(self, "_named", "")):
            named = self._named = self._id_text(given)
        return Ids(named, names.message_id_text(correlation) if correlation != NO_ID else "",
                   names.message_id_text(group) if group != NO_ID else "", expiry,
                   replies=bool(reply_to), own=given == NO_ID)

    @property
    def said(self) -> int:
        """Which of its id, priority and persistence its publisher gave (format.message.Said), where
        it came by a protocol that leaves them open; 0: by another way."""
        return message_format.said_of(self._load())

    def _id_text(self, given: bytes) -> str:
        return names.message_id_text(given) if given != NO_ID else self.own_id

    @property
    def message_id(self) -> str:
        """As `put` returned it: 48 hexadecimal digits, or the text that the submitter gave."""
        named: str = getattr(self, "_named", "")
        if not named:
            named = self._named = self._id_text(message_format.ids_of(self._load())[1])
        return named

    @property
    def correlation_id(self) -> bytes:
        """The bytes that the submitter gave, b"" if none."""
        return message_format.ids_of(self._load())[2].rstrip(b"\0")

    @property
    def correlation(self) -> str:
        """The same as text: of a reply, the `message_id` of what it answers; "" if none."""
        given = message_format.ids_of(self._load())[2]
        return names.message_id_text(given) if given != NO_ID else ""

    @property
    def expiry_ns(self) -> int:
        """When its time is over, wall clock; 0 if never."""
        return message_format.ids_of(self._load())[0]

    @property
    def group_id(self) -> str:
        """Its group, as text like `correlation`; "" if none."""
        given = message_format.ids_of(self._load())[3]
        return names.message_id_text(given) if given != NO_ID else ""

    @property
    def group_sequence(self) -> int:
        """Its number in the group, from 1; 0 if none."""
        return self._descriptor().number

    @property
    def last_in_group(self) -> bool:
        """It is the last one of its group."""
        return self._descriptor().last

    @property
    def reply_to(self) -> str:
        """The queue that wants the reply; "" if none."""
        number = message_format.ids_of(self._load())[4]
        return self._wire.queue_name(number, self.qpool_id) if number else ""
