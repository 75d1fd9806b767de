"""What comes over a channel is put on its queues: a batch in one unit of work, with its record.

A message goes to its queue here; for another queue manager it goes on, to the transmission queue of
that name or `default_transmission`, with the same header. What cannot be put is a dead letter, with
the reason in its properties: a queue that is not there or that the other side's user may not put
on, one that stays full, a queue manager that nobody knows, a circle (`channel_hops_max`).

Invariants: 1. a batch and its record are one unit of work; 2. a batch that is there already, by its
record, is not put again, so `put_batch` may be asked any number of times; 3. order is kept.

Errors: Later: not now, the same again; OutOfStep, RecordLost: never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from omq.base import fault
from omq.base.errors import (
    BadProperty,
    IndexFull,
    ManagerHung,
    ManagerUnavailable,
    OmqError,
    PutInhibited,
    QueueFull,
    QueueGone,
    ShuttingDown,
    SpoolFull,
    TimedOut,
    UnitBackedOut,
    UnitsFull,
)
from omq.format.message import encode_properties
from omq.ipc.client.connection import Client
from omq.ipc.client.unit import Unit
from omq.ipc.wire.outgoing import Outgoing
from omq.services.channel import records
from omq.services.channel.destinations import Destinations, Terms
from omq.services.channel.names import DEAD, FROM_MANAGER, FROM_QUEUE, HOPS
from omq.services.channel.parcel import Parcel
from omq.services.channel.protocol import OutOfStep
from omq.services.channel.records import Record

_PASSES: Final = (QueueFull, PutInhibited)
_AWAY: Final = (IndexFull, SpoolFull, ShuttingDown, ManagerUnavailable, ManagerHung, TimedOut,
                UnitBackedOut, UnitsFull, QueueGone)


class Later(Exception):
    """It cannot be put now. `queue`: one that does not take it; "": the manager takes nothing."""

    def __init__(self, error: OmqError, queue: str = "") -> None:
        super().__init__(str(error))
        self.queue = queue


def put_batch(native: Client, asked: Record, number: int, parcels: Sequence[Parcel], terms: Terms,
              mark: str = "") -> None:
    """All of a batch and its number, once. Later, OutOfStep, RecordLost."""
    unit = native.unit()
    destinations = Destinations(native, terms)
    terms.dead.clear()
    try:
        message, record = records.take(unit, asked.key)
        try:
            if record.batch == number:
                if mark and record.mark and mark != record.mark:
                    raise OutOfStep(f"batch {number} is here already, of another sender: there are "
                                    "two with one spool")
                unit.part_with([message], done=False)
                return
            if record.batch != number - 1:
                raise OutOfStep(f"batch {number} is whole, and the record says {record.batch}")
            for parcel in parcels:
                _put(unit, parcel, destinations)
            records.put(unit, replace(asked, batch=number, mark=mark, reset=record.reset,
                                      messages=record.messages + len(parcels)))
            fault.point("channel.before_put")
            unit.commit()
            fault.point("channel.after_put")
        except BaseException:  # untouched: no attempt of the record is counted
            if unit.open and len(unit):
                unit.part_with([message], done=False)
            raise
    except _PASSES as error:
        raise Later(error, str(error.fields.get("queue", ""))) from error
    except _AWAY as error:
        native.forget()
        raise Later(error) from error
    finally:
        _leave(unit)


def _leave(unit: Unit) -> None:
    if unit.open:
        try:
            unit.backout()
        except OmqError as error:  # it ends with the manager that is away
            raise Later(error) from error


def put_fast(native: Client, parcels: Sequence[Parcel], terms: Terms) -> int:
    """Those that belong to no batch: at most once. How many were lost because not even the
    dead-letter queue takes them."""
    lost, destinations = 0, Destinations(native, terms)
    for parcel in parcels:
        try:
            queue, message = _placed(parcel, destinations)
            native.put(queue, outgoing=message)
        except OmqError as error:
            queue, message = _dead(parcel, str(error), terms)
            try:
                native.put(queue, outgoing=message)
            except OmqError:
                lost += 1
    return lost


def _put(unit: Unit, parcel: Parcel, destinations: Destinations) -> None:
    try:
        queue, message = _placed(parcel, destinations)
        unit.put(queue, outgoing=message)
    except (*_PASSES, *_AWAY):
        raise
    except OmqError as error:  # the message cannot be there: too long, a kind that holds none
        queue, message = _dead(parcel, str(error), destinations.terms)
        unit.put(queue, outgoing=message)


def _placed(parcel: Parcel, destinations: Destinations) -> tuple[str, Outgoing]:
    """Where a message goes, and what goes there."""
    terms, message = destinations.terms, parcel.message
    way, (reply_to, reply) = destinations.of(parcel.to), destinations.back(parcel.reply)
    why = way.why
    if not why and parcel.hops > terms.settings.channel_hops_max:
        why = f"it has crossed {parcel.hops} channels: a circle"
    if why := why or way.refused:
        return _dead(parcel, why, terms)
    return way.queue, replace(
        message, reply_to=reply_to,
        persistent=message.persistent or len(message.body) > destinations.native.threshold,
        properties={**message.properties, **reply, **way.properties, HOPS: str(parcel.hops),
                    FROM_MANAGER: parcel.origin.manager, FROM_QUEUE: parcel.origin.queue})


def _dead(parcel: Parcel, reason: str, terms: Terms) -> tuple[str, Outgoing]:
    letter = dead_letter(
        parcel.message, reason, parcel.to.manager, parcel.to.queue, parcel.origin.manager)
    terms.dead.append(reason_of(letter))
    return terms.settings.channel_dead_letter, letter


def dead_letter(message: Outgoing, reason: str, manager: str, queue: str, origin: str) -> Outgoing:
    """The message, and why it is on the dead-letter queue. It has no time any more; its properties
    are cut where these leave no room for the reason."""
    said = {DEAD + "reason": reason[:200], DEAD + "manager": manager, DEAD + "queue": queue,
            FROM_MANAGER: origin}
    properties = {**message.properties, **said}
    try:
        encode_properties(properties)
    except BadProperty:
        names = ", ".join(sorted(message.properties))[:1000]
        properties = {**said, DEAD + "cut": f"{len(message.properties)} properties: {names}"}
    return replace(message, queues=(), expiry_s=None, reply_to="", properties=properties)


def reason_of(letter: Outgoing) -> str:
    """Why it is one, for the log, and what is cut."""
    reason, cut = letter.properties[DEAD + "reason"], letter.properties.get(DEAD + "cut", "")
    return f"{reason} (cut: {cut})" if cut else reason
