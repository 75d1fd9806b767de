"""The record of a channel on its receiving side: a message on SYSTEM.CHANNELS.

    {"batch": 17, "messages": 803, "channel": "EAST", "manager": "WEST", "spool": "...",
     "user": "west", "mark": "0011223344556677", "reset": "8899aabbccddeeff"}

`reset` is the token of the last order of its sending side to set the number (names.Reset), if there
was one: such an order may come twice, the second time from a line that was given up long ago.

Its correlation id is a hash of who sends: the user that was proved, the spool that was said, the
channel. So nobody can change the record of another user. It is got and put with the messages of a
batch in one unit of work (`arrival`), so there is one for each channel, and it says what is there.

Crash argument for `found`: the question stands behind all that earlier connections have asked of
the queue manager, those of a process that was killed, too; the manager carries out requests in the
order in which they came, and what had not come never will. A record of batch 0 that was made twice
(in a process that was killed while it made it) says nothing, whichever of the two counts: `found`
and `take` look for the one with the highest number.

Errors: RecordLost; those of a unit of work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Final

from omq.base.errors import OmqError, UnknownQueue
from omq.ipc.client.browsed import Browsed
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.ipc.client.unit import Unit
from omq.services.channel.names import RECORDS, Reset

_SAME_MAX: Final = 8
_TAKE_S: Final = 5.0
"""A process that was killed with the record in hand has given it back by then."""


class RecordLost(Exception):
    """A record is not there that was, or is nobody's."""


@dataclass(frozen=True, slots=True)
class Record:
    """See the module."""

    channel: str
    manager: str
    spool: str
    user: str
    batch: int = 0
    messages: int = 0
    mark: str = ""
    reset: str = ""

    @property
    def key(self) -> bytes:
        """Its correlation id."""
        told = "\0".join((self.user, self.spool, self.channel))
        return hashlib.sha256(told.encode()).digest()[:24]

    def body(self) -> bytes:
        said = asdict(self)
        if not self.reset:  # an older omq reads what it knows
            del said["reset"]
        return json.dumps(said, sort_keys=True).encode()


def read_record(body: bytes) -> Record | None:
    """What a message says; None: it is not a record."""
    try:
        told = json.loads(body)
        record = Record(**told)
    except (ValueError, TypeError):
        return None
    texts = (record.channel, record.manager, record.spool, record.user, record.mark,
             record.reset)
    numbers = (record.batch, record.messages)
    good = all(type(each) is str for each in texts) and all(
        type(each) is int and each >= 0 for each in numbers)
    return record if good else None


def all_records(native: Client) -> Iterator[tuple[Browsed, Record]]:
    """Those that are there, in any state. What does not stand under its own key is none: the other
    side of a channel cannot choose that."""
    for row in native.browse(RECORDS):
        try:
            record, key = read_record(row.body), row.correlation_id
        except OmqError:  # it was replaced while we looked
            continue
        if record is not None and record.key.rstrip(b"\0") == key:
            yield row, record


def come_in(native: Client) -> list[Record]:
    """For operators: `all_records`, and none where the queue for them was never defined: no channel
    comes in there, but others may send from there."""
    try:
        return [record for _row, record in all_records(native)]
    except UnknownQueue:
        return []


def found(native: Client, asked: Record, most: int, *, make: bool) -> Record:
    """The record of this channel. `make`: when there is none; a user has up to `most`. RecordLost:
    that was one more."""
    native.units_in_doubt()  # the answer stands behind all that was asked before
    of_user = [record for _row, record in all_records(native) if record.user == asked.user]
    mine = [record for record in of_user if record.key == asked.key]
    if not mine and make:
        if len(of_user) >= most:
            raise RecordLost(f"{asked.user} has {most} channels here (channels_max)")
        native.put(RECORDS, asked.body(), correlation_id=asked.key, persistent=True)
    return max(mine, key=lambda record: record.batch, default=asked)


def reset(native: Client, asked: Record, order: Reset) -> Record:
    """The record says from now on what its sending side was ordered to make of it; once.
    RecordLost, those of a unit of work: the order stands, and is sent again."""
    with native.unit() as unit:
        message, record = take(unit, asked.key)
        if record.reset == order.token:
            unit.part_with([message], done=False)
            unit.backout()
            return record
        record = replace(record, batch=order.batch, mark="", reset=order.token)
        put(unit, record)
    return record


def take(unit: Unit, key: bytes) -> tuple[Message, Record]:
    """The record, in a unit of work. RecordLost."""
    best: tuple[Message, Record] | None = None
    # More than one: see above; all but the best end with the unit.
    for message in unit.next(RECORDS, _SAME_MAX, _TAKE_S, correlation=key):
        record = read_record(message.body)
        if record is None or record.key != key:
            continue
        if best is None or record.batch > best[1].batch:
            best = message, record
    if best is None:
        raise RecordLost("its record is not there, or another process has it")
    return best


def put(unit: Unit, record: Record) -> None:
    """In its place."""
    unit.put(RECORDS, record.body(), correlation_id=record.key, persistent=True)
