"""A batch: taken off a transmission queue in one unit of work, which is in doubt when it goes out.

Messages that are not persistent are in no batch: they leave the queue at once and are sent once,
whatever happens to the line (NPMSPEED of the seed). What cannot be sent is put on the dead-letter
queue by the same unit of work.

In the middle of a crash: before `prepare` the queue manager gives back what the unit took, with a
failed attempt; after it the unit is in doubt, and the next start asks the other side (protocol).
A fast message that was taken and not sent is gone, as it would be at a restart of the manager.

Errors: those of a unit of work; UnitBackedOut: do it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from omq.base import fault
from omq.base.errors import BodyDamaged, BodyUnavailable, OmqError
from omq.base.limits import KIB
from omq.base.settings import Settings
from omq.ipc.client.connection import Client
from omq.ipc.client.message import Message
from omq.ipc.client.unit import Unit
from omq.ipc.wire.outgoing import Outgoing
from omq.services.channel.arrival import dead_letter, reason_of
from omq.services.channel.definition import Channel
from omq.services.channel.names import BatchName, own_name
from omq.services.channel.parcel import Address, Spot, bundled, destination, packed, spotted

_UNPACKABLE: Final = (BodyUnavailable, BodyDamaged, OverflowError, ValueError, TypeError)
_WAIT_S: Final = 1.0
"""So often a wait for messages looks whether the channel is to stop."""


@dataclass(slots=True)
class Batch:
    """One that is in doubt. `parcels`: (address at a foreign peer, bytes); `left`: of those, how
    many a foreign peer has not accepted yet; `refused`: addresses that it does not let us put on,
    and why; `buried`: which (from 1) are dead letters here."""

    number: int
    name: str
    parcels: list[tuple[str, bytes]]
    left: int = 0
    sent: int = 0
    mark: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    buried: set[int] = field(default_factory=set)

    def transfer(self, size: int) -> bytes:
        """The next of them to an omq, those that have up to `size` bytes in one transfer, one at
        least; 0: one by itself, as an omq wants it that knows no bundles."""
        at = self.sent
        spot = Spot(self.number, at + 1, len(self.parcels), self.mark)
        some = first_of((data for _, data in self.parcels[at:]), size)
        self.sent += len(some)
        return bundled(some, spot) if size else spotted(some[0], spot)

    def begin_again(self) -> None:
        """It goes out over another connection."""
        self.sent, self.left = 0, len(self.parcels) - len(self.buried)


def first_of(parcels: Iterable[bytes], size: int) -> list[bytes]:
    """Those at the head that have up to `size` bytes; one at least."""
    some, left = list[bytes](), size
    for data in parcels:
        left -= len(data)
        if some and left < 0:
            break
        some.append(data)
    return some


@dataclass(frozen=True, slots=True)
class Reach:
    """What the other side takes. `transfer`: bytes of messages that travel together, 0: none do;
    `batch_bytes`: of the bodies of a batch, about, 0: it does not say it."""

    bytes_max: int
    batch_max: int
    transfer: int = 0
    batch_bytes: int = 0


@dataclass(slots=True)
class Taken:
    """An open unit of work with messages to send. `dead`: reasons of dead letters."""

    unit: Unit
    messages: list[Message] = field(default_factory=list)
    fast: list[tuple[str, bytes]] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    failed: bool = False
    """It broke while messages were taken: the unit may have some that are in no list."""

    @property
    def count(self) -> int:
        """How many it has."""
        return len(self.messages) + len(self.fast) + len(self.dead)

    def end(self) -> None:
        """Nothing of it goes out. A commit takes everything of the unit off its queue, so there is
        one only when the unit has nothing but dead letters: `fast` have left it already, `messages`
        leave it here."""
        if not self.unit.open:
            return
        if self.messages:
            self.unit.part_with(self.messages, done=False)
        if not self.dead or self.failed:
            self.unit.backout()
            return
        try:
            self.unit.commit()
        except OmqError:  # the dead-letter queue takes nothing, perhaps
            if self.unit.open:
                self.unit.backout()
            raise


class Taker:
    """Takes batches of one channel; of one thread and its connection."""

    def __init__(self, native: Client, channel: Channel, settings: Settings,
                 stopping: Callable[[], bool]) -> None:
        self._native, self._channel, self._settings = native, channel, settings
        self._stopping, self._own = stopping, own_name(settings)
        self._limit = channel.number("batchlimit") * KIB

    def take(self, reach: Reach) -> Taken | None:
        """The next ones; None: the channel is to stop. It waits."""
        unit = self._native.unit()
        taken = Taken(unit)
        try:
            while not self._stopping():
                if self._gather(taken, reach):
                    fault.point("channel.after_take")
                    return taken
            taken.end()
        except BaseException:
            taken.failed = True
            if unit.open:
                taken.end()
            raise
        return None

    def _gather(self, taken: Taken, reach: Reach) -> bool:
        """Whether there is something."""
        channel, most = self._channel, self._channel.number("batchsize")
        most = min(most, reach.batch_max or most)
        limit = min(self._limit, reach.batch_bytes or self._limit)
        wait_s, ends, size = _WAIT_S, 0.0, 0
        while (room := most - taken.count) > 0 and size < limit:
            found = taken.unit.next(channel.name, room, wait_s)
            if found and not ends:
                ends = time.monotonic() + channel.number("batchint") / 1000
            size += self._sort(taken, found, reach, limit - size)
            wait_s = max(0.0, ends - time.monotonic())
            if not found and (not ends or not wait_s or self._stopping()):
                break
        return bool(taken.messages or taken.fast or taken.dead)

    def _sort(self, taken: Taken, found: list[Message], reach: Reach, room: int) -> int:
        """Which go into the batch; their bytes. What is over goes back to its place."""
        size, fast = 0, list[Message]()
        for at, message in enumerate(found):
            if size >= room:
                taken.unit.part_with(found[at:], done=False)
                break
            if why := self._wrong(message, reach):
                self._bury(taken, message, why)
                continue
            if message.persistent:
                taken.messages.append(message)
            else:
                try:
                    taken.fast.append((self.address(message), self.pack(message)))
                except _UNPACKABLE as error:
                    self._bury(taken, message, f"it cannot be sent: {error}")
                    continue
                fast.append(message)
            size += message.size
        if fast:
            taken.unit.part_with(fast, done=True)
        return size

    def _wrong(self, message: Message, reach: Reach) -> str:
        """Why it cannot be sent."""
        if reach.bytes_max and message.size > reach.bytes_max:
            return f"its {message.size} bytes are over the other side's {reach.bytes_max}"
        try:
            to = destination(message.texts)
        except (BodyUnavailable, BodyDamaged) as error:
            return f"it cannot be read: {error}"
        return "" if to is not None else "it does not say where it goes (omq.remote.queue)"

    def _bury(self, taken: Taken, message: Message, why: str) -> None:
        try:
            body, properties = message.body, message.texts
        except (BodyUnavailable, BodyDamaged):
            body, properties = b"", {}
        to = destination(properties) or Address()
        buried = dead_letter(Outgoing(
            body=body, priority=message.priority, persistent=True, properties=properties,
            message_id=message.message_id), why, to.manager, to.queue, self._own)
        taken.unit.put(self._settings.channel_dead_letter, outgoing=buried)
        taken.dead.append(reason_of(buried))

    def prepare(self, taken: Taken, name: BatchName) -> Batch | None:
        """In doubt from now on. None: none of them can be sent."""
        while (parcels := self._parcels(taken)) is None:
            pass
        if not parcels:
            return None
        taken.unit.prepare(str(name))
        fault.point("channel.after_prepare")
        return Batch(name.number, str(name), parcels, left=len(parcels), mark=name.mark)

    def _parcels(self, taken: Taken) -> list[tuple[str, bytes]] | None:
        """None: one was buried, so there are fewer: once more."""
        found = list[tuple[str, bytes]]()
        for at, each in enumerate(taken.messages):
            try:
                found.append((self.address(each), self.pack(each)))
            except _UNPACKABLE as error:
                self._bury(taken, each, f"it cannot be sent: {error}")
                del taken.messages[at]
                return None
        return found

    def pack(self, message: Message) -> bytes:
        """As bytes of AMQP; its place in the batch comes with the transfer that has it."""
        foreign = self._channel.foreign
        try:
            reply_to = message.reply_to
        except OmqError:  # that queue is gone: nobody waits for the reply
            reply_to = ""
        return packed(message, self._own, reply_to, again=foreign and message.redelivered)

    def address(self, message: Message) -> str:
        """At a foreign peer; "" at an omq."""
        if not self._channel.foreign:
            return ""
        to = destination(message.texts)
        return self._channel.text("address").replace("{queue}", to.queue if to else "")
