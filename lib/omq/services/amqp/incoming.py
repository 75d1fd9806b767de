"""A link over which a client puts: transfers come in, their dispositions go out.

A transfer is accepted when its message is on the disk. What comes while a batch is being put goes
together in the next one, so a sender with credit shares syncs. A queue that is full or inhibited
takes nothing: what is here waits, no credit is given, and the client waits too. What was sent
settled has nobody who could be told: it waits the same way, it is put even if its client has left
meanwhile, and a refusal is an event.

Memory is bounded by credit, which is given for as many as there is room for by the size of those
that came, and for more than a hundred only of small ones (ADR 0234); a transfer that finds no room
in spite of it is read, thrown away and released: its client sends it again.
Who sends without credit loses the link.

Crash argument: a transfer is accepted after `put` returned. Before it the client knows nothing, and
sends again what it has not heard of; that may come twice, which is AMQP's at-least-once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

from omq.amqp.delivery import Incoming as Delivery
from omq.amqp.delivery import Run
from omq.amqp.links import MASK, Receiver
from omq.amqp.states import ACCEPTED_STATE
from omq.base.errors import OmqError
from omq.format.amqp_performatives import TRANSACTIONAL
from omq.ipc.client.ending_together import New
from omq.services.amqp import translation
from omq.services.amqp.addresses import INTERNAL, Address, condition
from omq.services.amqp.arrival import PIECES_BYTES, Arrival, Arrived
from omq.services.amqp.connection_states import PUTS, LinkState
from omq.services.amqp.memory import OVERHEAD_BYTES
from omq.services.amqp.put_outcomes import PutOutcomes
from omq.services.amqp.putter import Fate, PutResult
from omq.services.amqp.targets import destination, own_target, target
from omq.services.amqp.transfer import Transfer, messages
from omq.services.amqp.untranslatable import Untranslatable

FEW: Final = 100
"""So many of any size may be under way, if amqp_credit allows it and there is room."""
FEW_BYTES: Final = FEW * 40 * 1024
"""More than FEW may, if all of them together have no more than this."""

if TYPE_CHECKING:
    from omq.services.amqp.session import Session
    from omq.services.amqp.transactions import Transaction


class Incoming:
    """See the module."""

    def __init__(self, session: Session, link: Receiver) -> None:
        self._session, self._link, self._host = session, link, session.host
        self._address: Address | None = None  # each message has its own
        self._opened = False
        self._waiting: deque[Transfer] = deque()
        assert session.user is not None
        self._user = session.user.name
        self._most = session.host.policy.settings.amqp_message_bytes_max
        self._room = session.host.room(self._user)
        self._folder = session.host.context.paths.temp
        link.run_bytes_max = min(PIECES_BYTES, self._most + translation.HEAD_BYTES_MAX)
        self._patterns = translation.Patterns(self._user, self._host.threshold)
        self._answers = PutOutcomes(session, self._user)
        self._arriving = self._arrival()
        self._credit = 0  # what the client may send
        self._usual = FEW_BYTES // FEW  # bytes of a large one among the last that came
        self._under_way = 0  # of those that wait, with the putters
        self._serving = False  # by the task, which may have to wait
        self._over = False
        self._first = link.delivery_count
        self._task = asyncio.get_running_loop().create_task(self._serve())
        self._stirred = asyncio.Event()

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    @property
    def told(self) -> LinkState:
        """For who looks at connections."""
        return LinkState(self._link.name, PUTS, self._address.name if self._address else "",
                         self._link.delivery_count - self._first & MASK)

    def _arrival(self) -> Arrival:
        return Arrival(self._room, self._most, self._folder, self._again)

    # in the event loop, from the session

    def delivered(self, delivery: Delivery) -> None:
        unread, chunks = self._link.unread, delivery.chunks
        if unread and unread[0] is not delivery:
            return  # the one before it is being written: `_again` comes to this one
        if delivery.aborted:
            self._forget_parts()
            delivery.settle()
            self._credit -= 1
            self.flowed()
            return
        if self._over or (not chunks and delivery.partial):
            return
        if self._credit <= 0:
            self._session.drop(self._link, "amqp:link:transfer-limit-exceeded", "it had no credit")
        else:
            self._read(delivery)

    def _read(self, delivery: Delivery) -> None:
        arriving = self._arriving
        while not arriving.busy and (chunk := self._link.recv()):
            arriving.take(chunk)
        if arriving.busy or delivery.partial or delivery.chunks or not arriving.flushed():
            return
        self._whole(delivery)

    def _again(self) -> None:
        """The disk has taken what was to be written. Those after it may be here, and their events
        over."""
        while not (self._over or self._session.gone):
            delivery = self._link.current
            if delivery is None:
                break
            self.delivered(delivery)
            if self._link.current is delivery:
                break
        if not self._session.gone:
            self._session.kick()

    def came(self, run: Run) -> None:
        """Small ones, each whole: as `_whole`, without an Arrival. Their credit was looked at."""
        if self._over:
            return
        deliveries, payloads, settled = run
        if deliveries[0].outcome == TRANSACTIONAL:
            self._came_in_transaction(deliveries[0], payloads[0], settled=settled)
            return
        deliveries[0].fields = b""  # no room is reckoned for it
        self._credit -= len(deliveries)
        left, usual, waiting, parts = (
            self._room.left, self._usual, self._waiting, self._patterns.parts)
        held = answered = 0
        for delivery, data in zip(deliveries, payloads, strict=True):
            size = len(data) + OVERHEAD_BYTES
            if size != usual:
                usual = max(size, usual // 2)
            if len(data) > left:
                self._answers.no_room(delivery)
                continue
            try:
                said, body = parts(data, settled=settled)
            except Untranslatable as error:
                self._answers.rejected(delivery, error.condition, error.reason)
                answered += 1
                continue
            left -= size
            held += size
            waiting.append(Transfer(delivery, said, body, size, settled))
        self._usual = usual
        self._room.hold(held)
        self._session.to_put.add(self)
        if answered:
            self.flowed()

    def _came_in_transaction(self, delivery: Delivery, data: bytes, *, settled: bool) -> None:
        self._credit -= 1
        size = len(data) + OVERHEAD_BYTES
        self._usual = max(size, self._usual // 2)
        if len(data) > self._room.left:
            self._answers.no_room(delivery)
            return
        try:
            transaction = self._session.transactions.of(delivery)
            message = self._patterns.message(data, settled=settled)
        except Untranslatable as error:
            self._answers.rejected(delivery, error.condition, error.reason)
            self.flowed()
            return
        delivery.fields = b""
        self._enrol(delivery, Arrived(message, None, size, 0), transaction)

    def _whole(self, delivery: Delivery) -> None:
        arriving, self._arriving = self._arriving, self._arrival()
        self._link.advance()
        self._credit -= 1
        if arriving.too_long:
            self._session.drop(self._link, "amqp:link:message-size-exceeded",
                               "it has more than amqp_message_bytes_max bytes")
            return
        settled = delivery.settled
        self._usual = max(min(arriving.size, PIECES_BYTES) + OVERHEAD_BYTES, self._usual // 2)
        transaction = None
        try:
            if arriving.discards and arriving.error is None:
                self._answers.no_room(delivery)
                return
            if delivery.outcome == TRANSACTIONAL:
                transaction = self._session.transactions.of(delivery)
            arrived = arriving.end(translation.Terms(self._user, settled, self._host.threshold))
        except Untranslatable as error:
            arriving.close()
            self._answers.rejected(delivery, error.condition, error.reason)
            self.flowed()
            return
        arrived.size += OVERHEAD_BYTES
        self._room.hold(OVERHEAD_BYTES)
        delivery.fields = b""  # it was read, and no room is reckoned for it
        if transaction is None:
            self._waiting.append(Transfer(
                delivery, arrived.message, None, arrived.size, settled, arrived))
            self._session.to_put.add(self)
        else:
            self._room.release(arrived.size)
            self._room.unfile(arrived.filed)
            self._enrol(delivery, arrived, transaction)

    def _enrol(self, delivery: Delivery, arrived: Arrived, transaction: Transaction) -> None:
        transaction.put(arrived, self._address.queues if self._address else ())
        self._answers.in_transaction(delivery, transaction.name)
        self.flowed()

    def _done_with(self, transfer: Transfer) -> None:
        self._room.release(transfer.size)
        if transfer.arrived is not None:
            self._room.unfile(transfer.arrived.filed)
            transfer.arrived.close()

    def flowed(self) -> None:
        """Give credit for what there is room for."""
        if not self._opened or self._over or self._session.gone:
            return
        under_way = self._credit + len(self._waiting)
        free = self._room.free
        most = min(self._host.policy.settings.amqp_credit, max(FEW, FEW_BYTES // self._usual),
                   max(1, free // self._usual))
        if free <= 0 or under_way > most // 2:
            return
        more = most - under_way
        self._credit += more
        self._link.flow(more)

    def room_again(self) -> None:
        """Bytes went out: nothing to this link."""

    def recheck(self) -> None:
        address, user = self._address, self._session.user
        if address is None or user is None:
            return
        if not self._host.allows(self._session, "put", address):
            self._session.drop(self._link, "amqp:unauthorized-access",
                               f"no right to put on {address.name}")

    def ended(self) -> None:
        """The link is over; what has not been put is not accepted. What was sent settled is put."""
        if self._over:
            return
        self._over = True
        self._forget_parts()
        behind = list(self._waiting)[self._under_way :]
        kept = [each for each in behind if each.settled]
        for each in behind:
            if not each.settled:
                self._done_with(each)
        self._waiting = deque([*list(self._waiting)[: self._under_way], *kept])
        if not self._waiting:
            self._task.cancel()
        self._stirred.set()

    cut = ended

    # the work

    def put(self) -> None:
        """What came together goes to its queue, if no batch is on its way there."""
        if self._under_way or self._serving or not self._waiting:
            return
        address = self._address
        if address is not None:
            some = [*islice(self._waiting, self._host.policy.settings.amqp_batch_messages_max)]
            if all(each.arrived is None or each.arrived.file is None for each in some) and (
                    self._host.quick.begin(address.queues, messages(some),
                                           lambda told: self._quickly(some, told))):
                self._under_way = len(some)
                return
        self._serving = True
        self._stirred.set()

    def _quickly(self, some: list[Transfer], told: list[PutResult]) -> None:
        """They are put, without the task."""
        try:
            self._told_of(some, told)
            if told and told[-1].fate is Fate.LATER:
                self._serving = True  # it tries again, and again
            if self._serving or self._over:
                self._stirred.set()
            else:
                self.flowed()
            self.put()
            self._session.kick()
        except Exception as error:
            self._host.failed(self._session, error)

    async def _serve(self) -> None:
        try:
            await self._open()
            while not self._over or self._waiting:
                await self._stirred.wait()
                self._stirred.clear()
                while self._waiting and not self._under_way:
                    await self._put_some()
                self._serving = False
        except Exception as error:
            self._host.failed(self._session, error)

    async def _open(self) -> None:
        session, link = self._session, self._link
        try:
            name = link.remote_target.address
            if link.remote_target.dynamic:
                name = await self._host.temporary_queue(session)
            address = await target(session, name) if name else None
        except (OmqError, ValueError, Untranslatable) as error:  # ValueError: no text
            self._refused(condition(error), str(error))
            return
        if self._over or session.gone:
            return
        link.source, link.target = link.remote_source, link.remote_target
        if link.target.dynamic:
            link.target = link.target.made(name)
        link.max_message_size = self._most
        link.open()
        self._address, self._opened = address, True
        self.flowed()
        session.kick()

    def _refused(self, why: str, reason: str) -> None:
        if self._over or self._session.gone:
            return
        self._link.open()
        self._session.drop(self._link, why, reason)
        self._session.kick()

    async def _put_some(self) -> None:
        settings = self._host.policy.settings
        some = [*islice(self._waiting, settings.amqp_batch_messages_max)]
        name = destination(some[0].said)
        if self._address is None:
            some = [*takewhile(lambda each: destination(each.said) == name, some)]
        self._under_way = len(some)
        told = await self._told(name, [(each.message, each.file) for each in some])
        self._told_of(some, told)
        if told and told[-1].fate is Fate.LATER:
            if self._over:
                self._give_up(told[-1])
                return
            self._host.full(self._session, self._address.name if self._address else name,
                            told[-1].error)
            self._session.kick()
            await asyncio.sleep(settings.amqp_retry_ms / 1000)
            return
        self.flowed()
        self._session.kick()

    def _told_of(self, some: list[Transfer], told: list[PutResult]) -> None:
        """Those that have a fate are answered, and gone from here."""
        self._under_way = 0
        size = filed = 0
        put: list[Delivery] = []
        try:
            for each, fate in zip(some, told, strict=False):
                if fate.fate is Fate.LATER:
                    break
                self._waiting.popleft()
                size += each.size
                if each.arrived is not None:
                    filed += each.arrived.filed
                    each.arrived.close()
                if fate.fate is Fate.PUT:
                    put.append(each.delivery)
                elif not self._over:
                    self._answers.told(each.delivery, fate)
                elif fate.fate is Fate.REFUSED:
                    self._answers.refused(str(fate.error))
            if put and not self._over:
                self._link.session.settled_run(put, ACCEPTED_STATE)
        finally:
            self._room.release(size)
            if filed:
                self._room.unfile(filed)

    async def _told(self, name: str, batch: list[New]) -> list[PutResult]:
        """The fates of these, for the queue of that name where the link has none."""
        try:
            address = self._address or await own_target(self._session, name)
        except Untranslatable as error:  # who cannot be asked now is asked again
            fate = Fate.LATER if error.condition == INTERNAL else Fate.REFUSED
            return [PutResult(fate, error)] * len(batch)
        return await self._host.company.put(address.queues, batch)

    def _give_up(self, told: PutResult) -> None:
        """Nobody waits for these any more, and their queue does not take them."""
        self._answers.refused(f"{len(self._waiting)}: their sender has gone, and {told.error}")
        while self._waiting:
            self._done_with(self._waiting.popleft())

    def _forget_parts(self) -> None:
        self._arriving.close()
        self._arriving = self._arrival()
