"""The receiving side of a channel: a link of amqp.server, in its event loop.

The sender of a link says by its properties that it is a channel (`asks`); the answer says up to
which batch the record knows. Then messages come: those of a batch are kept until it is whole, put
in one unit of work (`arrival`), and the last one of them is accepted. Those that come settled and
belong to no batch are put as they come.

A channel that returns while its old link is open takes over: what the old link is putting is
waited for, the rest of it is forgotten, then the record is read. So its answer is the last word.

Invariants: 1. one link of a channel puts at a time; 2. what is not accepted is on no queue, or its
number is in the record; 3. what strangers can make it hold is bounded: by the batch, by
PIPELINE_MAX of them, by the memory of their user.

Errors: BadEntry: what a link says of itself at its attach makes no sense. NotAParcel, OutOfStep
(Inbox.take): the link is to end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from omq.amqp.states import ACCEPTED_STATE
from omq.base import events, fault
from omq.base.errors import OmqError
from omq.base.event_log import REPORT, WARNING
from omq.base.names import escape
from omq.base.settings import Settings
from omq.ipc.client.connection import Client
from omq.services.channel import arrival, records
from omq.services.channel.arrival import Later
from omq.services.channel.destinations import Terms
from omq.services.channel.greeting import (
    BATCH_BYTES,
    BATCH_MAX,
    BUNDLES,
    CHANNEL,
    LAST,
    MANAGER,
    MARK,
    OUT_OF_STEP,
    PING,
    RESET,
    SPOOL,
)
from omq.services.channel.names import RECORDS, Reset, own_name, reset_said
from omq.services.channel.parcel import NotAParcel, Parcel, is_name, opened
from omq.services.channel.protocol import OutOfStep, Receiving
from omq.services.channel.records import Record, RecordLost
from omq.storage.spool import open_spool


class BadEntry(Exception):
    """What a link says of itself at its attach makes no sense."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`record`: as one that is new; `ping`: it only asks; `order`: what its record is to say."""

    record: Record
    ping: bool
    order: Reset | None

    def found(self, native: Client, most: int) -> tuple[Record, bool]:
        """What is known of it, and whether it was changed for it. RecordLost; those of a unit of
        work."""
        record = records.found(native, self.record, most, make=not self.ping)
        if self.order is None or self.ping or record.reset == self.order.token:
            return record, False
        return records.reset(native, self.record, self.order), True

    def answer(self, record: Record, settings: Settings, spool: str) -> dict[Any, Any]:
        """Properties of the attach."""
        done = {} if self.order is None or self.ping else {RESET: str(self.order)}
        return {LAST: record.batch, MARK: record.mark, MANAGER: own_name(settings),
                BATCH_MAX: settings.channel_batch_messages_max, BATCH_BYTES: _bytes(settings),
                BUNDLES: True, SPOOL: spool, **done}


def _bytes(settings: Settings) -> int:
    """Of the bodies of a batch. Half of what a unit of work holds here: its last message and all
    properties come on top."""
    return min(settings.channel_batch_bytes_max, settings.unit_bytes_max,
               settings.journal_file_bytes // 2) // 2


def entry(said: Mapping[Any, Any], user: str) -> Entry:
    """Of the properties of its attach. BadEntry."""
    name, spool, manager, told = (str(said.get(key, "")) for key in (
        CHANNEL, SPOOL, MANAGER, RESET))
    if not is_name(name) or not is_name(manager) or len(spool) != 32:
        raise BadEntry("a channel says its name, its spool and its manager")
    order = reset_said(told)
    if told and order is None:
        raise BadEntry(f"{RESET} is a number and a token")
    return Entry(Record(name, manager, spool, user), bool(said.get(PING)), order)


PIPELINE_MAX: Final = 16
_HEAD_BYTES: Final = 128 * 1024


class ChannelLink:
    """See the module. `session`, `host`: of omq.services.amqp."""

    def __init__(self, session: Any, link: Any) -> None:
        self._session, self._link, self._host = session, link, session.host
        self._user = session.user.name
        self._over = False
        self._inbox: Inbox | None = None
        self._asked: Record | None = None
        self._parts = bytearray()
        self._held = self._credit = 0
        self._stirred = asyncio.Event()
        self._free = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._serve())

    @property
    def busy(self) -> bool:
        """Something came that is not put yet."""
        return self._inbox is not None and bool(self._inbox.work)

    # in the event loop, from the session

    def delivered(self, delivery: Any) -> None:
        if self._over or self._inbox is None:
            return
        if delivery.aborted:
            self._release(len(self._parts))
            self._parts.clear()
            delivery.settle()
            self._credit -= 1
            self.flowed()
            return
        if not delivery.readable:
            return
        while chunk := self._link.recv():
            self._parts += chunk
            self._hold(len(chunk))  # before it is whole: its sender may leave it so
        settings = self._host.policy.settings
        if self._host.memory.free(self._user) < 0:
            self._drop("amqp:resource-limit-exceeded", "more than this side can hold")
        elif len(self._parts) > settings.amqp_message_bytes_max + _HEAD_BYTES:
            self._drop("amqp:link:message-size-exceeded", "over amqp_message_bytes_max")
        elif not delivery.partial:
            data, self._parts = bytes(self._parts), bytearray()
            self._link.advance()
            self._credit -= 1
            self._take(delivery, data)
            self.flowed()

    def _take(self, delivery: Any, data: bytes) -> None:
        settings, inbox = self._host.policy.settings, self._inbox
        assert inbox is not None
        if (self._credit < 0 or len(inbox.work) > PIPELINE_MAX or inbox.size + len(data)
                > settings.channel_batch_bytes_max + settings.amqp_message_bytes_max):
            self._drop("amqp:resource-limit-exceeded",
                       "more than this side can hold: smaller batches, fewer of them")
            return
        try:
            inbox.take(delivery, data, settings.channel_batch_messages_max)
        except NotAParcel as error:
            self._drop("amqp:decode-error", str(error))
        except OutOfStep as error:
            self._drop(OUT_OF_STEP, str(error))
        self._stirred.set()

    def flowed(self) -> None:
        """Give credit."""
        most = int(self._host.policy.settings.channel_batch_messages_max)
        if self._inbox is None or self._over or self._credit > most // 2:
            return
        self._link.flow(most - self._credit)
        self._credit = most

    def room_again(self) -> None:
        """Bytes went out: nothing to this link."""

    def recheck(self) -> None:
        if self._session.user is not None and not self._may_in():
            self._drop("amqp:unauthorized-access", f"no right to put on {RECORDS}")

    def ended(self) -> None:
        """The link is over. What is being put is put; what waits was never accepted."""
        if self._over:
            return
        self._over = True
        self._stirred.set()

    cut = ended

    # the work

    async def _serve(self) -> None:
        try:
            await self._open()
            while not self._over:
                await self._stirred.wait()
                self._stirred.clear()
                while (inbox := self._inbox) and inbox.work and not self._over:
                    await self._put(inbox, inbox.work[0])
                    self._release(inbox.work.popleft().size)
        except Exception as error:
            self._host.failed(self._session, error)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Its place first: whatever is wrong with the rest, its channel can connect again."""
        self._over = True
        if self._asked is not None and self._host.channels.get(self._asked.key) is self:
            del self._host.channels[self._asked.key]
        self._free.set()
        self._inbox = None
        self._host.changed.set()
        self._release(self._held)

    async def _open(self) -> None:
        link, session, host = self._link, self._session, self._host
        try:
            wanted = entry(link.remote_properties, self._user)
        except BadEntry as error:
            self._refuse("amqp:invalid-field", str(error))
            return
        if not self._may_in():
            self._refuse("amqp:unauthorized-access", f"no right to put on {RECORDS}")
            return
        asked, ping = wanted.record, wanted.ping
        if not ping:
            wait_s = host.policy.settings.channel_connect_timeout_s
            while (other := host.channels.get(asked.key)) is not None:
                try:
                    await asyncio.wait_for(other.stolen(), wait_s)
                except TimeoutError:  # it puts, and the manager does not answer it
                    self._refuse("amqp:resource-locked", "its earlier line puts something still")
                    return
            if self._over or session.gone:
                return
            self._asked = asked
            host.channels[asked.key] = self
        try:
            most = host.policy.settings.channels_max
            record, anew = await host.run(lambda native: wanted.found(native, most))
        except (OmqError, RecordLost) as error:
            self._refuse("amqp:resource-limit-exceeded" if isinstance(error, RecordLost)
                         else "amqp:internal-error", str(error))
            return
        if self._over or session.gone:
            return
        settings = host.policy.settings
        link.source, link.target = link.remote_source, link.remote_target
        link.max_message_size = settings.amqp_message_bytes_max
        spool = open_spool(host.context.paths.root, writer=False).uuid.hex()
        link.properties = wanted.answer(record, settings, spool)
        link.open()
        if anew:
            host.rated.event(events.CHANNEL_RESET, WARNING, session.peer, peer=session.peer,
                             channel=asked.channel, batch=record.batch)
        if not ping:
            self._inbox = Inbox(record.batch)
            self.flowed()
            host.rated.event(events.CHANNEL_RECEIVES, REPORT, session.peer, peer=session.peer,
                             user=self._user, channel=asked.channel, manager=asked.manager,
                             batch=record.batch)
        session.kick()

    async def stolen(self) -> None:
        """Its channel has connected again."""
        if not self._over:
            assert self._asked is not None
            self._host.rated.event(events.CHANNEL_ADOPTED, REPORT, self._session.peer,
                                   peer=self._session.peer, channel=self._asked.channel)
            self._drop("amqp:link:stolen", "the channel came again")
            self._session.kick()
        await self._free.wait()

    def _may_in(self) -> bool:
        return bool(self._host.policy.allows(self._session.user, "put", (RECORDS,)))

    async def _put(self, inbox: Inbox, work: Work) -> None:
        """Until it is put, or the link is over."""
        asked, host = self._asked, self._host
        assert asked is not None
        user, policy = self._session.user, host.policy
        terms = Terms(policy.settings, lambda queues: bool(policy.allows(user, "put", queues)))
        if not work.batch:
            lost = await host.run(lambda native: arrival.put_fast(native, work.parcels, terms))
            self._tell_dead(terms, lost)
            return
        tries = 0
        while not self._over:
            try:
                await host.run(lambda native: arrival.put_batch(
                    native, asked, work.batch, work.parcels, terms, work.mark))
                break
            except Later as error:
                tries += bool(error.queue)
                # one that is refused already is the dead-letter queue: the batch waits for it
                if (tries > policy.settings.channel_put_retries and error.queue
                        and error.queue not in terms.refused):
                    terms.refused[error.queue] = str(error)
                    continue
                host.rated.event(events.CHANNEL_WAITS, WARNING, asked.channel, queue=error.queue,
                                 channel=asked.channel, reason=str(error)[:200])
                await asyncio.sleep(policy.settings.channel_put_retry_ms / 1000)
            except (OutOfStep, RecordLost) as error:
                self._drop(OUT_OF_STEP, str(error))
            except OmqError as error:
                self._drop("amqp:internal-error", str(error))
        if self._over:
            return
        self._tell_dead(terms, 0)
        fault.point("channel.before_accept")
        inbox.receiving.committed(work.batch)
        work.delivery.update(ACCEPTED_STATE)
        work.delivery.settle()
        self._session.kick()
        fault.point("channel.after_accept")

    def _tell_dead(self, terms: Terms, lost: int) -> None:
        assert self._asked is not None
        for reason in terms.dead:
            self._host.rated.event(
                events.CHANNEL_DEAD_LETTER, WARNING, self._asked.channel, lost=lost,
                channel=self._asked.channel, reason=escape(reason, 200))

    def _drop(self, condition: str, reason: str) -> None:
        asked = self._asked.channel if self._asked is not None else "?"
        self._host.rated.event(events.CHANNEL_REFUSED, WARNING, self._session.peer,
                               peer=self._session.peer, channel=asked, reason=escape(reason, 200))
        self._over = True
        self._stirred.set()
        self._session.drop(self._link, condition, reason)

    def _refuse(self, condition: str, reason: str) -> None:
        if self._over or self._session.gone:
            return
        self._link.open()
        self._drop(condition, reason)
        self._session.kick()

    # memory

    def _hold(self, size: int) -> None:
        self._held += size
        self._host.memory.take(self._user, size)

    def _release(self, size: int) -> None:
        self._held -= size
        self._host.memory.give(self._user, size)


@dataclass(slots=True)
class Work:
    """What is to be put: a whole batch, with the delivery that says so, or (batch 0) fast ones."""

    batch: int = 0
    parcels: list[Parcel] = field(default_factory=list)
    size: int = 0
    delivery: Any = None
    mark: str = ""


class Inbox:
    """What a link has brought and what is not put yet: whole batches, one that comes in, fast ones.
    `work`: in order; the first may be under way."""

    def __init__(self, last: int) -> None:
        self.receiving = Receiving(last)
        self.work: deque[Work] = deque()
        self._coming = Work()

    @property
    def size(self) -> int:
        """Bytes of the batch that comes in."""
        return self._coming.size

    def take(self, delivery: Any, data: bytes, count_max: int) -> None:
        """A transfer."""
        parcels = opened(data, count_max)
        spot, whole = parcels[0].spot, False
        if not spot.batch:
            self._take_fast(delivery, parcels, len(data))
            return
        if spot.count > count_max:
            raise NotAParcel(f"a batch of {spot.count}: over channel_batch_messages_max")
        for parcel in parcels:
            whole = self.receiving.arrived(spot.batch, parcel.spot.sequence, spot.count)
        self._coming.parcels += parcels
        self._coming.size += len(data)
        if not whole:
            delivery.settle()
            fault.point("channel.half_batch")
            return
        self._coming.batch, self._coming.delivery = spot.batch, delivery
        self._coming.mark = spot.mark
        self.work.append(self._coming)
        self._coming = Work()

    def _take_fast(self, delivery: Any, parcels: list[Parcel], size: int) -> None:
        if not delivery.settled:
            raise NotAParcel("it belongs to no batch, and is not settled")
        delivery.settle()
        if len(self.work) < 2 or self.work[-1].batch:
            self.work.append(Work())
        self.work[-1].parcels += parcels
        self.work[-1].size += size
