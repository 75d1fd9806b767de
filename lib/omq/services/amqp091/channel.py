"""One channel of AMQP 0-9-1: its methods, and what it holds.

Methods that ask the manager are carried out one after the other, in the order in which they came,
behind what was published before them; acknowledgements and publishes are none of these.

Invariants: 1. a delivery that nobody settled is in `unacked`, or in the transaction, or back on its
queue; 2. what is not there is refused by its name, and ends the channel with the code of the
standard.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from pamqp import base, commands

from omq.base.errors import OmqError
from omq.base.limits import KIB
from omq.fast import amqp091_sending
from omq.services.amqp import two_phases
from omq.services.amqp.arrival import Arrived
from omq.services.amqp.connection_states import PUTS, TAKES, LinkState
from omq.services.amqp.outcomes import broke, done, released
from omq.services.amqp.taker import TakenMessage
from omq.services.amqp.transactions import Taken, Transaction
from omq.services.amqp.untranslatable import Untranslatable
from omq.services.amqp091 import binding, declaring, frames
from omq.services.amqp091.channel_consumers import ChannelConsumers
from omq.services.amqp091.consuming import Takes
from omq.services.amqp091.publishing import Publishing
from omq.services.amqp091.refusals import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    Refused,
    refused_by,
    worded,
)
from omq.services.amqp091.routing import NOT_FOUND, Published, lasting

if TYPE_CHECKING:
    from omq.ipc.client.message import Message
    from omq.ipc.wire.outgoing import Outgoing
    from omq.services.amqp091.consuming import Takes
    from omq.services.amqp091.directory import Temporary
    from omq.services.amqp091.session import Session
    from omq.services.amqp091.taking import Content

QUESTIONS_MAX: Final = 100
"""Methods of a channel that wait for the manager; then the client's line is read no further."""
QUESTIONS_BYTES: Final = 256 * KIB
"""The same for the frames of those that wait on all channels of a connection, each of them reckoned
with QUESTION_COST besides; the tables in them take some thirty times of it as objects."""
QUESTION_COST: Final = 256


class Channel:
    """See the module."""

    def __init__(self, session: Session, number: int) -> None:
        self.session, self.number = session, number
        self.publishing = Publishing(self)
        self.reading = ChannelConsumers(self)
        self.work: Work | None = None  # since tx.select
        self._works: deque[Work] = deque()  # whose end is asked for
        self.closing = False  # we have said so, and wait for the answer
        self.unacked: dict[int, tuple[Takes, TakenMessage]] = {}  # by delivery tag, in their order
        self._acknowledged: dict[Takes, list[TakenMessage]] = {}  # not said yet: by this turn's end
        self.queue = ""  # declared last
        self._goes = self._ended = False  # its client closes it; it is over
        self._tags = 0
        self._questions: deque[tuple[Any, int]] = deque()  # and what each is reckoned at
        self._task: asyncio.Task[None] | None = None

    @property
    def behind(self) -> bool:
        return self.publishing.behind or len(self._questions) > QUESTIONS_MAX

    def told(self) -> list[LinkState]:
        """For who looks at connections."""
        name, put = f"channel {self.number}", self.publishing.published
        puts = [LinkState(name, PUTS, "", put)] if put else []
        return [*puts, *(LinkState(f"{name} {tag}".rstrip(), TAKES, queue, count)
                         for tag, queue, count in self.reading.told())]

    # what goes out

    def send(self, what: base.Frame) -> None:
        self.session.write(frames.method(self.number, what))

    def send_content(self, what: base.Frame, head: bytes, body: bytes) -> None:
        """`head`: the payload of its header."""
        out = self.session.turn()
        out += frames.method(self.number, what)
        amqp091_sending.content(out, self.number, head, body, self.session.frame_max)
        self.session.wrote()

    def deliver(self, consumer: bytes, tag: int, given: Content, where: bytes) -> None:
        """`consumer`, `where`: as amqp091_sending.deliver has them."""
        amqp091_sending.deliver(self.session.turn(), self.number, consumer, tag,
                                given.redelivered, where, given.head, given.data,
                                self.session.frame_max)
        self.session.wrote()

    def confirm(self, tag: int, *, multiple: bool) -> None:
        """basic.ack of what was published."""
        amqp091_sending.ack(self.session.turn(), self.number, tag, multiple)
        self.session.wrote()

    def tag(self) -> int:
        """The next delivery's."""
        self._tags += 1
        return self._tags

    def hold(self, takes: Takes, given: TakenMessage) -> int:
        """A delivery that is to be settled; its tag."""
        tag = self.tag()
        self.unacked[tag] = takes, given
        return tag

    def refuse(self, error: Refused, method: type[base.Frame] | base.Frame | None = None) -> None:
        """The channel ends. `method`: what the client has said that is refused."""
        if self.closing or self.session.gone:
            return
        if error.code == ACCESS_REFUSED:
            self.session.unauthorized(str(error))
        self.closing = True
        self.end(failed=False)
        if self._goes:  # it wanted that itself
            self.send(commands.Channel.CloseOk())
            self.session.left(self)
            return
        index = 0 if method is None else method.index
        self.send(commands.Channel.Close(error.code, worded(error.code, str(error)),
                                         index >> 16, index & 0xFFFF))

    def lost(self, takes: Takes) -> None:
        """A taker is through by itself: what it held is back, or the manager has it."""
        self.unacked = {tag: each for tag, each in self.unacked.items() if each[0] is not takes}
        self._acknowledged.pop(takes, None)
        for each in self._all_works():
            each.lost(takes)

    def given_up(self, takes: Takes) -> list[TakenMessage]:
        """What it holds, for it gives that back; the tags stay until its client has settled
        them."""
        self.carry_out()
        return [*(given for own, given in self.unacked.values() if own is takes),
                *(given for each in self._all_works() for given in each.lost(takes))]

    def look(self) -> None:
        """There may be room for more."""
        self.reading.look()

    def recheck(self) -> None:
        """Rights have changed."""
        self.publishing.recheck()
        self.reading.recheck()

    def end(self, *, failed: bool) -> None:
        """What its client holds is back; `failed`: its line broke, while it worked on the first."""
        if self._ended:
            return
        self._ended = True
        self.carry_out()
        for work in self._all_works():
            self._again(work)
        takers: dict[Takes, None] = {}
        for takes, given in self.unacked.values():
            takes.say([given], broke if failed else released)
            failed, takers[takes] = False, None  # cancelled ones with what they hold, too
        self.unacked.clear()
        self.reading.ended()
        for each in takers:
            each.ended()
        while self._questions:
            self.session.asking_bytes -= self._questions.popleft()[1]
        self.publishing.ended()

    def closed_by_client(self) -> None:
        """Behind what it asked and published before."""
        if self.closing:  # both sides at once
            self.send(commands.Channel.CloseOk())
            return
        if not self._goes:
            self._goes = True
            self._ask_for(commands.Channel.Close())

    # what comes in

    def method(self, what: Any) -> None:
        """Any but publish and ack. Refused."""
        self.carry_out()  # what was acknowledged before
        if isinstance(what, commands.Basic.Nack | commands.Basic.Reject):
            self.settle(what.delivery_tag or 0, multiple=getattr(what, "multiple", False),
                        says=released if what.requeue else False)
        elif isinstance(what, commands.Basic.Qos):
            self.reading.qos(what)
        elif isinstance(what, commands.Confirm.Select | commands.Tx.Select):
            self._select(what)
        elif isinstance(what, commands.Channel.Flow) and what.active:
            self.send(commands.Channel.FlowOk(active=True))  # as it is always
        elif type(what) in _ASKED:
            if isinstance(what, commands.Tx.Commit | commands.Tx.Rollback):
                self._end_work()
            self._ask_for(what)
        else:
            raise Refused(NOT_IMPLEMENTED, f"{what.name} is not there")

    def _select(self, what: Any) -> None:
        if isinstance(what, commands.Tx.Select):
            if self.publishing.confirms:
                raise Refused(PRECONDITION_FAILED, "the channel has confirms, so no transactions")
            self.work = self.work or Work(self)
            self.send(commands.Tx.SelectOk())
            return
        if self.work is not None:
            raise Refused(PRECONDITION_FAILED, "the channel has transactions, so no confirms")
        self.publishing.confirms = True
        if not what.nowait:
            self.send(commands.Confirm.SelectOk())

    def settle(self, tag: int, *, multiple: bool, says: Any) -> None:
        """`says`: None for an acknowledgement, False for a rejection. Refused."""
        unacked = self.unacked
        tags = [tag]
        if multiple:  # they are in their order
            tags = list(takewhile(tag.__ge__, unacked) if tag else unacked)
        if (not tags and tag) or (not multiple and tag not in unacked):
            raise Refused(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        acknowledged = self._acknowledged  # by now, only of this one where `says` is another
        for each in tags:
            takes, given = unacked[each]
            if self.work is not None and not takes.over:
                self.work.settle(each, takes, given, takes.rejected if says is False else says)
            else:
                acknowledged.setdefault(takes, []).append(given)
            del unacked[each]
        if says is not None:
            self.carry_out(says)
        elif acknowledged:
            self.session.touched[self] = None

    def carry_out(self, says: Any = None) -> None:
        """What was said of messages; as `settle` has it."""
        touched, self._acknowledged = self._acknowledged, {}
        for takes, some in touched.items():
            takes.say(some, takes.rejected if says is False else says or done)
            takes.held -= len(some)
            takes.settled()
        if touched and not self._ended:
            self.reading.settled(touched)

    def _all_works(self) -> list[Work]:
        """But for one that is being committed."""
        return [*self._works, *([self.work] if self.work else [])]

    def _again(self, work: Work) -> None:
        """What a transaction had acknowledged is unacknowledged."""
        again = {tag: (takes, given) for tag, takes, given in work.roll_back()}
        self.unacked = dict(sorted((again | self.unacked).items()))

    # questions to the manager

    def _ask_for(self, what: Any) -> None:
        cost = QUESTION_COST + self.session.frame_bytes
        self._questions.append((what, cost))
        self.session.asking_bytes += cost
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        session = self.session
        try:
            while self._questions and not session.gone:
                what = self._questions[0][0]
                try:
                    await self.publishing.calm()
                    if self._questions:  # it has not ended meanwhile
                        await _ASKED[type(what)](self, what)
                except two_phases.LOST as error:
                    if not isinstance(what, commands.Tx.Commit):
                        self.refuse(refused_by(error), what)
                    else:
                        session.forced(INTERNAL_ERROR, f"the outcome is not known: {error}")
                except (Refused, OmqError, Untranslatable, ValueError) as error:
                    self.refuse(refused_by(error), what)
                if self._questions:
                    session.asking_bytes -= self._questions.popleft()[1]
                session.look()
        except Exception as error:
            session.host.failed(session, error)  # aborts it
        finally:
            self._task = None

    async def closed(self, what: Any) -> None:
        """channel.close: what came before has been done."""
        self.closing = True
        self.end(failed=False)
        self.send(commands.Channel.CloseOk())
        self.session.left(self)

    def _end_work(self) -> None:
        """What comes from now on belongs to the next one."""
        if self.work is None:
            raise Refused(PRECONDITION_FAILED, "the channel has no transactions: tx.select first")
        self._works.append(self.work)
        self.work = Work(self)

    async def commit(self, what: Any) -> None:
        """tx.commit."""
        await self._works.popleft().commit()
        self.send(commands.Tx.CommitOk())

    async def roll_back(self, what: Any) -> None:
        """tx.rollback."""
        self._again(self._works.popleft())
        self.send(commands.Tx.RollbackOk())


_ASKED: Final[dict[type, Callable[[Channel, Any], Awaitable[None]]]] = {
    commands.Basic.Consume: lambda channel, what: channel.reading.consume(what),
    commands.Basic.Cancel: lambda channel, what: channel.reading.cancel(what),
    commands.Basic.Get: lambda channel, what: channel.reading.get(what),
    commands.Basic.Recover: lambda channel, what: channel.reading.recover(what),
    commands.Channel.Close: Channel.closed,
    commands.Tx.Commit: Channel.commit, commands.Tx.Rollback: Channel.roll_back,
    commands.Queue.Declare: declaring.declare, commands.Queue.Delete: declaring.delete,
    commands.Queue.Purge: declaring.purge,
    commands.Queue.Bind: binding.bind, commands.Queue.Unbind: binding.unbind,
    commands.Exchange.Declare: binding.declare, commands.Exchange.Delete: binding.delete,
    commands.Exchange.Bind: binding.bind_exchange,
    commands.Exchange.Unbind: binding.unbind_exchange}


Settled = tuple[int, "Takes", TakenMessage, "Callable[[Message], None] | None"]
"""Delivery tag, who took it, what it is; None: acknowledged."""


class Work:
    """The transaction of a channel, from tx.select, or the last end, to the next: what is published
    and acknowledged in it happens at tx.commit, with one sync, or nothing does.

    It is committed as one of AMQP 1.0 (services.amqp.two_phases): with what was taken from one
    queue as one unit of work, from several by two phases, which a death leaves in doubt and the
    next start ends. What an exchange has for temporary queues is offered to them after it, as it is
    without a transaction; nack and reject are carried out after it, too. Rolled back, what is
    published is forgotten, and what was acknowledged is unacknowledged again. Nothing is added to
    one that is being committed."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._most = channel.session.host.policy.settings.unit_messages_max
        self.new: list[Published] = []
        self.settled: list[Settled] = []

    def put(self, new: Published) -> None:
        """Refused: it is too much."""
        self._bounded()
        self.new.append(new)

    def settle(self, tag: int, takes: Takes, given: TakenMessage,
               say: Callable[[Message], None] | None) -> None:
        """Refused: it is too much."""
        self._bounded()
        self.settled.append((tag, takes, given, say))

    def _bounded(self) -> None:
        if len(self.new) + len(self.settled) >= self._most:
            raise Refused(PRECONDITION_FAILED, "a transaction has more than unit_messages_max "
                          f"({self._most}) messages")

    async def commit(self) -> None:
        """Refused, OmqError: nothing of it happened. Those of two_phases.LOST: nobody knows."""
        channel = self._channel
        host = channel.session.host
        unit = Transaction(b"", host.room(channel.session.user_name), self._most)
        routing, returned = channel.publishing.routing, []
        offered: dict[Temporary, list[Outgoing]] = {}
        for each in self.new:
            durable, temporary = await self._queues(each)
            message = each.message
            if temporary and not each.exchange:  # a reply, say: with what it answers, or not
                message = lasting(message, temporary[0])
                durable, temporary = (temporary[0].queue,), []
            if durable:
                unit.new.append(Arrived(replace(message, queues=durable), None, 0, 0))
            for to in temporary:
                offered.setdefault(to, []).append(message)
            if not durable and not temporary:
                returned.append(each)
        for _, takes, given, say in self.settled:
            unit.taken.append(Taken(takes, b"", given, None, say))  # type: ignore[arg-type]
        await two_phases.commit(host, unit)
        for to, some in offered.items():
            await routing.offer(to, some)
        for each in returned:
            channel.publishing.returned(each)
        for _, takes, given, say in self.settled:
            if say is not None:
                takes.say([given], say)
            takes.held -= 1
            takes.settled()
        self._end()

    async def _queues(self, each: Published) -> tuple[tuple[str, ...], list[Temporary]]:
        """Where it goes; none: nowhere. Refused."""
        try:
            return await self._channel.publishing.routing.queues(each.where)
        except Untranslatable as error:
            if error.condition == NOT_FOUND and not each.exchange:
                return (), []
            raise

    def roll_back(self) -> list[tuple[int, Takes, TakenMessage]]:
        """Nothing of it happens; what is unacknowledged again."""
        again = [(tag, takes, given) for tag, takes, given, _ in self.settled]
        self._end()
        return again

    def _end(self) -> None:
        self._channel.publishing.release(self.new)
        self.new, self.settled = [], []

    def lost(self, takes: Any) -> list[TakenMessage]:
        """Who took these is through, or gives them up; which they were."""
        lost = [each[2] for each in self.settled if each[1] is takes]
        self.settled = [each for each in self.settled if each[1] is not takes]
        return lost
