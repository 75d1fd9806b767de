"""What one connection carries: batches in doubt go out, and end when the other side has them.

An omq accepts the last message of a batch for all of it. A foreign peer is asked for each message,
by a link for each of its queues. What it will never take is a dead letter here, with what it said:
a message that it rejects or that is longer than its queue takes, all messages of a batch for an
address that it refuses. The others flow on; the next batch asks for that address again, for
somebody may have made the queue meanwhile.

Invariants: 1. a batch ends here when each of its messages is accepted there or on the dead-letter
queue here, never before; 2. what was refused or buried stays so when its batch goes out again over
another line; 3. to an omq nothing is skipped: a refusal there is one of the channel.

In the middle of a crash: a dead letter is put before its batch ends, by itself; so it may be there
twice, and be sent once more. That is what at least once means; it is never lost.

Errors: those of Line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omq.base import events, fault
from omq.base.errors import UnitResolved, UnitUnknown
from omq.base.event_log import WARNING
from omq.base.names import escape
from omq.ipc.client.connection import Client
from omq.services.channel.arrival import dead_letter
from omq.services.channel.batch import Batch, first_of
from omq.services.channel.line import AddressRefused, Line
from omq.services.channel.parcel import Spot, bundled, opened
from omq.services.channel.shared import Shared

_FAST: Final = "fast"


class Courier:
    """See the module; of one line. `confirmed`: hears of each batch that has ended."""

    def __init__(self, shared: Shared, native: Client, line: Line,
                 confirmed: Callable[[Batch], None]) -> None:
        self._shared, self._native, self._line = shared, native, line
        self._confirmed = confirmed
        self._foreign = shared.channel.foreign

    def send(self) -> bool:
        """What there is room for; whether something waits for more."""
        shared, line = self._shared, self._line
        while shared.fast:
            address, data = shared.fast[0]
            if shared.reach.transfer:
                if not line.room():
                    return True
                some = first_of((each for _, each in tuple(shared.fast)), shared.reach.transfer)
                line.send(bundled(some, Spot()), _FAST, settled=True)
                shared.sent_fast(len(some))
                continue
            try:
                if not self._has_room(address):
                    return True
                if why := line.too_long(address, data):
                    self._bury(data, why)
                else:
                    line.send(data, _FAST, settled=True, address=address)
            except AddressRefused as refused:
                self._bury(data, str(refused))
            shared.sent_fast()
        with shared.lock:
            held = [shared.batches[number] for number in shared.sending.held]
        if not self._foreign:
            return not all(map(self._send_batch, held))
        waits = not all(map(self._send_each, held))
        self._commit_whole()  # those of which nothing is left to wait for
        return waits

    def _send_batch(self, batch: Batch) -> bool:
        """To an omq: whether all of it has gone to the line."""
        count, line = len(batch.parcels), self._line
        while batch.sent < count:
            if not line.room():
                return False
            self._begins(batch)
            data = batch.transfer(self._shared.reach.transfer)
            line.send(data, f"{batch.number}.{batch.sent}", settled=batch.sent < count)
            self._sent(batch)
        return True

    def _begins(self, batch: Batch) -> None:
        if not batch.sent:
            with self._shared.lock:
                self._shared.sending.send(batch.number)

    @staticmethod
    def _sent(batch: Batch) -> None:
        fault.point("channel.in_batch")
        if batch.sent == len(batch.parcels):
            fault.point("channel.after_batch")

    def _send_each(self, batch: Batch) -> bool:
        """To a foreign peer: whether all of it has gone to the line."""
        count = len(batch.parcels)
        while batch.sent < count:
            address, data = batch.parcels[batch.sent]
            why = ""
            if batch.sent + 1 not in batch.buried:
                try:
                    why = batch.refused.get(address, "")
                    if not why and not self._has_room(address):
                        return False
                    why = why or self._line.too_long(address, data)
                except AddressRefused as refused:
                    why = batch.refused[address] = str(refused)
            self._begins(batch)
            batch.sent += 1
            if why:
                self._bury_of(batch, batch.sent, why)
            if batch.sent not in batch.buried:
                self._line.send(data, f"{batch.number}.{batch.sent}", address=address,
                                settled=False)
            self._sent(batch)
        return True

    def _has_room(self, address: str) -> bool:
        if address:
            self._line.attach(
                address, self._shared.place.settings.channel_connect_timeout_s)
        return self._line.room(address)

    def hear(self) -> None:
        """What the other side has said of batches."""
        shared, told = self._shared, self._line.told
        self._line.told = []
        for tag, accepted in told:
            number, _, at = tag.partition(".")
            batch = shared.batches.get(int(number)) if at else None
            if batch is None:
                continue
            if not self._foreign:
                if not accepted:
                    raise self._line.broken(f"batch {number} was not accepted")
                batch.left = 0
            elif accepted:
                batch.left -= 1
            else:
                self._bury_of(batch, int(at), f"{shared.channel.peer} rejects it")
        self._commit_whole()

    def _commit_whole(self) -> None:
        flying = self._shared.sending.flying
        while flying and not (batch := self._shared.batches[flying[0]]).left:
            self._commit(batch)

    def _commit(self, batch: Batch) -> None:
        fault.point("channel.before_commit")
        try:
            self._native.commit_unit(batch.name)
        except (UnitUnknown, UnitResolved) as error:
            self._shared.event(events.CHANNEL_RESOLVED, WARNING, batch=batch.number,
                               how=escape(str(error), 200))
        fault.point("channel.after_commit")
        with self._shared.lock:
            self._shared.sending.confirmed(batch.number)
            self._shared.seen = (batch.number, batch.mark)
        self._shared.settled(batch.number)
        self._confirmed(batch)

    # a foreign peer does not take a message

    def _bury_of(self, batch: Batch, at: int, reason: str) -> None:
        self._bury(batch.parcels[at - 1][1], reason)
        batch.buried.add(at)
        batch.left -= 1

    def _bury(self, data: bytes, reason: str) -> None:
        (parcel,), reason = opened(data, 1), escape(reason, 200)
        self._native.put(self._shared.place.settings.channel_dead_letter, outgoing=dead_letter(
            parcel.message, reason, parcel.to.manager, parcel.to.queue, parcel.origin.manager))
        self._shared.event(events.CHANNEL_DEAD_LETTER, WARNING, reason=reason)
