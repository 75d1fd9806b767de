"""One channel of AMQP 0-9-1: its methods, and what it holds.

Methods that ask the manager are carried out one after the other, in the order in which they came;
acknowledgements and publishes are none of these.

Invariants: 1. a delivery that nobody settled is in `unacked`, or back on its queue; 2. what is not
there is refused by its name, and ends the channel with the code of the standard.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from pamqp import base, commands, header

from omq.base.errors import OmqError
from omq.ipc.message import Message
from omq.services.amqp.addresses import Address, condition, resolved
from omq.services.amqp.outcomes import broke, done, released
from omq.services.amqp.taker import Given
from omq.services.amqp091 import frames
from omq.services.amqp091.consuming import Consumer, Getter, Takes
from omq.services.amqp091.publishing import Publishing
from omq.services.amqp091.translation import NOT_IMPLEMENTED, PRECONDITION_FAILED, Refused

if TYPE_CHECKING:
    from omq.services.amqp091.session import Session

ACCESS_REFUSED, NOT_FOUND, LOCKED, NOT_ALLOWED = 403, 404, 405, 530
QUESTIONS_MAX: Final = 100
"""Methods of a channel that wait for the manager; then the client's line is read no further."""
REJECTED: Final = "basic.reject without requeue"
_CODES: Final = {"amqp:not-found": NOT_FOUND, "amqp:unauthorized-access": ACCESS_REFUSED,
                 "amqp:resource-deleted": NOT_FOUND, "amqp:resource-limit-exceeded": 506}


def code_of(error: Exception) -> int:
    """The reply code that says why."""
    return _CODES.get(condition(error), 541)


def rejected(message: Message) -> None:
    message.fail(REJECTED)


class Channel:
    """See the module."""

    def __init__(self, session: Session, number: int) -> None:
        self.session, self.number = session, number
        self.publishing = Publishing(self)
        self.closing = False  # we have said so, and wait for the answer
        self.unacked: dict[int, tuple[Takes, Given]] = {}  # by delivery tag, in their order
        self._tags = self._names = self._prefetch = 0
        self._queue = ""  # declared last
        self._consumers: dict[str, Consumer] = {}
        self._getters: dict[str, Getter] = {}
        self._questions: deque[tuple[Any, Callable[[Any], Awaitable[None]]]] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def behind(self) -> bool:
        return self.publishing.behind or len(self._questions) > QUESTIONS_MAX

    @property
    def may_hold(self) -> int:
        """Deliveries, beside those that are held."""
        return self.session.host.policy.settings.amqp_unsettled_max - len(self.unacked)

    # what goes out

    def send(self, what: base.Frame) -> None:
        self.session.write(frames.method(self.number, what))

    def send_content(self, what: base.Frame, properties: Any, body: bytes) -> None:
        self.session.write(frames.method(self.number, what) + frames.content(
            self.number, properties, body, self.session.frame_max))

    def tag(self) -> int:
        """The next delivery's."""
        self._tags += 1
        return self._tags

    def hold(self, takes: Takes, given: Given) -> int:
        """A delivery that is to be settled; its tag."""
        tag = self.tag()
        self.unacked[tag] = takes, given
        return tag

    def refuse(self, error: Refused, method: type[base.Frame] | base.Frame) -> None:
        """The channel ends."""
        if self.closing or self.session.gone:
            return
        self.session.unauthorized(str(error)) if error.code == ACCESS_REFUSED else None
        self.closing = True
        self.end(failed=False)
        self.send(commands.Channel.Close(error.code, str(error)[:250], method.index >> 16,
                                         method.index & 0xFFFF))

    def lost(self, takes: Takes, error: OmqError | None) -> None:
        """A taker is through by itself: what it held is back, or the manager has it."""
        self.unacked = {tag: each for tag, each in self.unacked.items() if each[0] is not takes}
        if isinstance(takes, Consumer):
            self._consumers.pop(takes.tag, None)
            if error is None or self.session.hears_cancels:
                self.send(commands.Basic.Cancel(takes.tag, nowait=True))
                return
        else:
            self._getters.pop(takes.address.name, None)
        self.refuse(Refused(code_of(error) if error else 541, str(error or "read no more")),
                    commands.Basic.Consume)

    def look(self) -> None:
        """There may be room for more."""
        for each in (*self._consumers.values(), *self._getters.values()):
            each.look()

    def recheck(self) -> None:
        """Rights have changed."""
        host = self.session.host
        self.publishing.recheck()
        for each in (*self._consumers.values(), *self._getters.values()):
            if not host.allows(self.session, "get", each.address):  # type: ignore[arg-type]
                self.refuse(Refused(ACCESS_REFUSED, f"no right to get on {each.address.name}"),
                            commands.Basic.Consume)
                return

    def end(self, *, failed: bool) -> None:
        """What its client holds is back; `failed`: its line broke, and it was at work on the first."""
        several = dict.fromkeys((*self._consumers.values(), *self._getters.values()))
        for takes, given in self.unacked.values():
            takes.say(given, broke if failed else released)
            failed, several[takes] = False, None  # cancelled ones with what they hold, too
        self.unacked.clear()
        for each in several:
            each.ended()
        self._consumers.clear()
        self._getters.clear()
        self._questions.clear()
        self.publishing.ended()

    # what comes in

    def content(self, what: header.ContentHeader | bytes) -> None:
        """Refused."""
        if isinstance(what, bytes):
            self.publishing.body(what)
        else:
            self.publishing.header(what)

    def method(self, what: Any) -> None:
        """Refused."""
        if isinstance(what, commands.Basic.Publish):
            self.publishing.begin(what)
        elif isinstance(what, commands.Basic.Ack):
            self._settle(what, done)
        elif isinstance(what, commands.Basic.Nack | commands.Basic.Reject):
            self._settle(what, released if what.requeue else rejected)
        elif isinstance(what, commands.Basic.Qos):
            self._qos(what)
        elif isinstance(what, commands.Confirm.Select):
            self.publishing.confirms = True
            if not what.nowait:
                self.send(commands.Confirm.SelectOk())
        elif (asked := _ASKED.get(type(what))) is not None:
            self._questions.append((what, getattr(self, asked)))
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._ask())
        else:
            raise Refused(NOT_IMPLEMENTED, f"{what.name} is not there")

    def _settle(self, what: Any, say: Callable[[Message], None]) -> None:
        tag = what.delivery_tag
        if getattr(what, "multiple", False):
            tags = [each for each in self.unacked if not tag or each <= tag]
        else:
            tags = [tag]
        if (not tags and tag) or any(each not in self.unacked for each in tags):
            raise Refused(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        touched: dict[Takes, None] = {}
        for each in tags:
            takes, given = self.unacked.pop(each)
            takes.say(given, say)
            takes.held -= 1
            takes.settled()
            touched[takes] = None
        for takes in touched if self.may_hold > len(tags) else self._consumers.values():
            takes.look()

    def _qos(self, what: Any) -> None:
        if what.prefetch_size:
            raise Refused(NOT_IMPLEMENTED, "prefetch_size is not there")
        if what.global_:
            raise Refused(NOT_IMPLEMENTED, "a prefetch for all consumers of a channel (global) is "
                          "not there")
        self._prefetch = what.prefetch_count
        self.send(commands.Basic.QosOk())

    # questions to the manager

    async def _ask(self) -> None:
        session = self.session
        try:
            while self._questions and not session.gone:
                what, answer = self._questions[0]
                try:
                    await answer(what)
                except Refused as error:
                    self.refuse(error, what)
                except (OmqError, ValueError) as error:
                    self.refuse(Refused(code_of(error), str(error)), what)
                if self._questions:
                    self._questions.popleft()
                session.look()
        except Exception as error:
            session.host.failed(session, error)  # type: ignore[arg-type] # aborts it
        finally:
            self._task = None

    async def _address(self, name: str) -> Address:
        """Of a queue that is to be read. Refused, OmqError."""
        session = self.session
        name = name or self._queue
        address = await session.host.ask(  # type: ignore[arg-type]
            session, lambda native: resolved(native, name))
        if not session.host.allows(session, "get", address):  # type: ignore[arg-type]
            raise Refused(ACCESS_REFUSED, f"no right to get on {name}")
        if len(address.queues) > 1 or address.remote:
            raise Refused(NOT_ALLOWED, f"{name} is no queue that can be read")
        return address

    def _counted(self) -> None:
        if not self.session.host.count_receiver(self.session.user_name):
            raise Refused(506, "amqp_receivers_max or amqp_user_receivers_max links are open")

    async def _consume(self, what: Any) -> None:
        if what.exclusive:
            raise Refused(NOT_IMPLEMENTED, "an exclusive consumer is not there")
        if what.arguments:
            raise Refused(NOT_IMPLEMENTED, f"{next(iter(what.arguments))} is not there")
        self._names += 1
        tag = what.consumer_tag or f"omq.{self.number}.{self._names}"
        if tag in self._consumers:
            raise Refused(NOT_ALLOWED, f"the consumer tag {tag} is in use")
        address = await self._address(what.queue)
        if self.closing or self.session.gone:
            return
        self._counted()
        if not what.nowait:
            self.send(commands.Basic.ConsumeOk(tag))
        self._consumers[tag] = Consumer(self, address, tag, self._prefetch, acks=not what.no_ack)

    async def _cancel(self, what: Any) -> None:
        """What it was given stays its channel's; what was taken for it is back."""
        if (consumer := self._consumers.pop(what.consumer_tag, None)) is not None:
            await consumer.cancelled()
        if not what.nowait:
            self.send(commands.Basic.CancelOk(what.consumer_tag))

    async def _get(self, what: Any) -> None:
        name = what.queue or self._queue
        getter = self._getters.get(name)
        if getter is None or getter.over:
            address = await self._address(name)
            if self.closing or self.session.gone:
                return
            self._counted()
            getter = self._getters[name] = Getter(self, address)
        await getter.get(acks=not what.no_ack)

    async def _recover(self, what: Any) -> None:
        if not what.requeue:
            raise Refused(NOT_IMPLEMENTED, "recover to the same consumer is not there")
        for takes, given in self.unacked.values():
            takes.say(given, released)
            takes.held -= 1
            takes.settled()
        self.unacked.clear()
        self.send(commands.Basic.RecoverOk())
        self.look()

    async def _declare(self, what: Any) -> None:
        name, count = await self.session.declared(what, self._queue)
        self._queue = name
        if not what.nowait:
            self.send(commands.Queue.DeclareOk(name, count, 0))


_ASKED: Final = {commands.Basic.Consume: "_consume", commands.Basic.Cancel: "_cancel",
                 commands.Basic.Get: "_get", commands.Basic.Recover: "_recover",
                 commands.Queue.Declare: "_declare"}
