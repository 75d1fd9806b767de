"""A message of a transmission queue as a message of AMQP 1.0, and back.

What AMQP has a place for is there: durable, priority, ttl (what is left of the expiry), ids,
group, application properties, one section of data. Delivery annotations, which are for one hop, say
the place in a batch: `x-opt-omq-batch` = [batch, number in it, how many], `x-opt-omq-mark` = its
mark (names.BatchName). Messages that follow one another in a batch may travel together, as one
transfer: these annotations once, [batch, number of the first, how many, how many here], then a
section of data for each message, in which it is encoded as it would go by itself. So a transfer
and its frame cost a batch what one message had cost. Message annotations say the rest:

    x-opt-omq-to      [queue manager, queue]      where it goes in the end
    x-opt-omq-from    [queue manager, queue]      where it was put first, and for which queue
    x-opt-omq-reply   [queue manager, queue]      where its reply goes
    x-opt-omq-hops    channels that it has crossed, with this one
    x-opt-omq-last    it is the last of its group
    x-opt-omq-open    what its publisher left open (format.message.Said), if it did
    x-opt-omq-again   (to foreign peers) they may have it already

Invariant: `opened(packed(message))` is the message, with the time that its expiry has left (up to
AMQP_TTL_MAX_S).
Errors: NotAParcel: what came is not a message of a channel.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from omq.base.clock import NS_PER_S
from omq.base.errors import BadArgument, BadName, BadProperty
from omq.base.limits import AMQP_TTL_MAX_S
from omq.base.names import check_queue_name
from omq.format import amqp_values as values
from omq.format.property_values import carried
from omq.ipc.client.message import Message as Native
from omq.ipc.client.remote_header import REMOTE_MANAGER, REMOTE_QUEUE, REPLY_MANAGER, REPLY_QUEUE
from omq.ipc.wire.outgoing import Outgoing
from omq.services.channel.names import FROM_MANAGER, FROM_QUEUE, HOPS, MARKS

BATCH: Final = "x-opt-omq-batch"
MARK: Final = "x-opt-omq-mark"
TO: Final = "x-opt-omq-to"
FROM: Final = "x-opt-omq-from"
REPLY: Final = "x-opt-omq-reply"
HOPS_SAID: Final = "x-opt-omq-hops"
LAST: Final = "x-opt-omq-last"
OPEN: Final = "x-opt-omq-open"
AGAIN: Final = "x-opt-omq-again"
_HEADER: Final = frozenset((REMOTE_MANAGER, REMOTE_QUEUE, REPLY_MANAGER, REPLY_QUEUE, FROM_MANAGER,
                            FROM_QUEUE, HOPS))
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, IndexError, OverflowError)
_NUMBER_MAX: Final = 1 << 62
_SECTIONS: Final = frozenset((
    values.HEADER, values.DELIVERY_ANNOTATIONS, values.MESSAGE_ANNOTATIONS, values.PROPERTIES,
    values.APPLICATION, values.DATA, values.FOOTER))
_YEARS_S: Final = 100 * 366 * 86400.0


class NotAParcel(Exception):
    """See the module."""


@dataclass(frozen=True, slots=True)
class Address:
    """A queue of a queue manager; an empty manager is the one that reads it."""

    manager: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Spot:
    """Its place: batch (0: none), number in it, how many there are, mark of the batch."""

    batch: int = 0
    sequence: int = 0
    count: int = 0
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What came. `message` has no queue yet. Fast ones are in no batch."""

    message: Outgoing
    to: Address
    origin: Address
    reply: Address
    hops: int
    spot: Spot = Spot()


def destination(properties: Mapping[str, str]) -> Address | None:
    """Where a message of a transmission queue goes; None: it does not say it."""
    queue = properties.get(REMOTE_QUEUE, "")
    return Address(properties.get(REMOTE_MANAGER, ""), queue) if queue else None


def hops_of(properties: Mapping[str, str]) -> int:
    """Channels that it has crossed."""
    said = properties.get(HOPS, "0")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 6 else 0


def packed(message: Native, own: str, reply_to: str, *, again: bool = False) -> bytes:
    """The bytes of a message in hand. `own`: our name; `reply_to`: its queue here that wants the
    reply. BodyUnavailable, BodyDamaged; OverflowError, ValueError."""
    properties = message.texts
    to = destination(properties) or Address()
    notes = {TO: _pair(to.manager, to.queue),
             FROM: _pair(properties.get(FROM_MANAGER, own), properties.get(FROM_QUEUE, to.queue)),
             HOPS_SAID: values.long(hops_of(properties) + 1)}
    if REPLY_QUEUE in properties:
        notes[REPLY] = _pair(properties.get(REPLY_MANAGER, ""), properties[REPLY_QUEUE])
    elif reply_to:
        notes[REPLY] = _pair(own, reply_to)
    said = [_text_or_null(message.message_id), *[values.NULL] * 4,
            _text_or_null(message.correlation)]
    if group := message.group_id:
        said += [*[values.NULL] * 4, values.text(group), values.uint(message.group_sequence)]
        notes[LAST] = values.TRUE if message.last_in_group else values.FALSE
    if left_open := message.said:
        notes[OPEN] = values.long(left_open)
    if again:
        notes[AGAIN] = values.TRUE
    kept = {values.text(name): values.text(text) for name, text in properties.items()
            if name not in _HEADER}
    return b"".join((
        values.section(values.HEADER, _header(message)),
        values.section(values.MESSAGE_ANNOTATIONS, values.annotation_map(notes)),
        values.section(values.PROPERTIES, values.items(said)),
        values.section(values.APPLICATION, values.pairs(kept)) if kept else b"",
        values.data_section(message.body)))


def _header(message: Native) -> bytes:
    ttl_ms = 0
    if expiry := message.expiry_ns:
        left_s = min(max(0.001, (expiry - time.time_ns()) / NS_PER_S), AMQP_TTL_MAX_S)
        ttl_ms = int(left_s * 1000)
    return values.items((
        values.TRUE if message.persistent else values.FALSE, b"\x50%c" % message.priority,
        values.uint(ttl_ms) if ttl_ms else values.NULL, values.FALSE,
        values.uint(message.attempts)))


def _pair(manager: str, queue: str) -> bytes:
    return values.items((values.text(manager), values.text(queue)))


def _text_or_null(text: str) -> bytes:
    return values.text(text) if text else values.NULL


def spotted(data: bytes, spot: Spot) -> bytes:
    """A packed message that goes by itself, with its place in its batch."""
    ends = 5 + data[4]  # of its header, a short list
    return data[:ends] + _place(spot, 0) + data[ends:]


def bundled(some: Sequence[bytes], spot: Spot) -> bytes:
    """Packed messages that follow one another in a batch, as one transfer. `spot`: of the first."""
    return _place(spot, len(some)) + b"".join(map(values.data_section, some))


def _place(spot: Spot, here: int) -> bytes:
    numbers = [values.long(spot.batch), values.long(spot.sequence), values.long(spot.count)]
    if here:
        numbers.append(values.long(here))
    return values.section(values.DELIVERY_ANNOTATIONS, values.annotation_map({
        BATCH: values.items(numbers), MARK: values.text(spot.mark)}))


def opened(data: bytes, most: int) -> list[Parcel]:
    """The messages that these bytes of one transfer are; one at least, and up to `most`: a few
    bytes may be a message, and each costs memory. NotAParcel."""
    try:
        said = [*islice(values.sections(data), max(most + 2, len(_SECTIONS) + 1))]
        instructions = next((value for number, value in said
                             if number == values.DELIVERY_ANNOTATIONS), None)
        spot, here = _spot(instructions or {})
        if not here:
            return [_opened(said, spot)]
        if here > most:
            raise ValueError(f"{here} messages travel together, and a batch has {most} at most")
        if len(said) != 1 + here or said[0][0] != values.DELIVERY_ANNOTATIONS or any(
                number != values.DATA for number, _ in said[1:]):
            raise ValueError(f"a bundle says that {here} are in it, and has something else")
        return [_bundled(inner, replace(spot, sequence=spot.sequence + at) if spot.batch else spot)
                for at, (_, inner) in enumerate(said[1:])]
    except (*_UNREADABLE, BadArgument, BadName, BadProperty) as error:
        raise NotAParcel(f"not a message of a channel: {error}") from error


def _bundled(data: bytes, spot: Spot) -> Parcel:
    """One of those that travel together."""
    sections = [*islice(values.sections(data), len(_SECTIONS) + 1)]
    if any(number == values.DELIVERY_ANNOTATIONS for number, _ in sections):
        raise ValueError("a message in a bundle says its own place")
    return _opened(sections, spot)


def _opened(sections: Iterable[tuple[int, Any]], spot: Spot) -> Parcel:
    found: dict[int, Any] = {}
    for number, value in sections:
        if number in found or number not in _SECTIONS:
            raise ValueError(f"there is no room for a section {number:#04x}")
        found[number] = value
    body = found.get(values.DATA)
    if not isinstance(body, bytes):
        raise ValueError("its body is not data")
    properties = found.get(values.APPLICATION) or {}
    if any(type(name) is not str or type(text) is not str for name, text in properties.items()):
        raise ValueError("its properties are not text")
    notes = found.get(values.MESSAGE_ANNOTATIONS) or {}
    hops = notes.get(HOPS_SAID, 0)
    if type(hops) is not int or not 0 <= hops < 1 << 16:
        raise ValueError("its hops are not a number")
    durable, priority, ttl = _padded(found.get(values.HEADER), 3)
    said = _padded(found.get(values.PROPERTIES), 12)
    group, sequence = _text(said[10]), said[11] or 0
    return Parcel(
        Outgoing(
            body=body, properties=carried(properties),
            priority=4 if priority is None else min(_whole(priority), 9),
            persistent=durable is True, message_id=_text(said[0]), correlation_id=_text(said[5]),
            group_id=group, group_sequence=_whole(sequence) if group else 0,
            last_in_group=notes.get(LAST) is True, said=_whole(notes.get(OPEN, 0)),
            expiry_s=min(_whole(ttl) / 1000, _YEARS_S) if ttl else None),
        _address(notes.get(TO)), _address(notes.get(FROM)),
        _address(notes.get(REPLY)), hops, spot)


def _spot(instructions: Mapping[str, Any]) -> tuple[Spot, int]:
    """Its place, and how many are in this transfer (0: one, which is not a bundle)."""
    said, mark = instructions.get(BATCH), instructions.get(MARK, "")
    if said is None:
        return Spot(), 0
    batch, sequence, count, here = (*map(_whole, said), *[0] * (4 - len(said)))
    if not here or batch:
        if not (0 < batch < _NUMBER_MAX and 0 < sequence <= count):
            raise ValueError("its place in the batch is none")
        if sequence + max(1, here) - 1 > count:
            raise ValueError("there are more than the batch has")
    if not isinstance(mark, str) or (mark and not MARKS.fullmatch(mark)):
        raise ValueError("the mark of its batch is none")
    return (Spot(batch, sequence, count, str(mark)) if batch else Spot()), here


def _padded(said: Any, count: int) -> list[Any]:
    """The first fields of a list, which may have fewer."""
    some = said[:count] if isinstance(said, list) else []
    return some + [None] * (count - len(some))


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("a number is none")
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if type(value) is not str:
        raise TypeError("an id is not text")
    return value


def _address(said: Any) -> Address:
    if said is None:
        return Address()
    manager, queue = said
    if type(manager) is not str or type(queue) is not str or max(
            len(manager), len(queue)) > 255:
        raise ValueError("an address is not text")
    return Address(manager, queue)


def is_name(text: str) -> bool:
    """It may be the name of a queue, or of a queue manager."""
    try:
        check_queue_name(text)
    except BadName:
        return False
    return True
