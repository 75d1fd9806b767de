"""A link over which a client takes or browses: messages go out, its outcomes come in.

Credit is read-ahead, bounded by `amqp_unsettled_max`; nothing is taken off a queue that the client
has not asked for, or that would only wait for a slow line. What the client says of a message is
carried out in the order in which it comes:

    accepted                done
    released                release: back at its old place, no attempt counted
    modified                delivery-failed: a failed attempt; else as released
    rejected                a failed attempt with its reason; POISON or dead_letter at attempts_max
    settled without one     release

A client that ends its link or connection gives back what it holds. One whose line broke was at work
on the first message that it had not settled: that one has failed, the others are given back.

An outcome that the client wants confirmed (it settles second) is confirmed when it is on the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from omq.amqp.delivery import Outgoing as Delivery
from omq.amqp.links import SETTLED, Sender
from omq.amqp.states import state_bytes
from omq.base.errors import OmqError, UnknownQueue
from omq.format.amqp_performatives import TRANSACTIONAL
from omq.services.amqp.addresses import Address, condition, resolved, selector
from omq.services.amqp.browser import Browser
from omq.services.amqp.connection_states import TAKES, LinkState
from omq.services.amqp.outcomes import TERMINAL, broke, done, outcome, released
from omq.services.amqp.taker import TakenMessage, Taker
from omq.services.amqp.transacted_deliveries import Enrolling

if TYPE_CHECKING:
    from omq.services.amqp.session import Session

_FIELDS_BYTES_MAX: Final = 4096
"""Of an outcome, a reason with it: longer ones are as none, for they are kept until the disk has
what they say."""


class Outgoing(Enrolling):
    """See the module."""

    def __init__(self, session: Session, link: Sender) -> None:
        super().__init__(session, link)
        self._host = session.host
        assert session.user is not None
        self._user = session.user.name
        self._address: Address | None = None
        self._confirming: dict[bytes, Delivery] = {}  # said, and not on the disk
        self._to_confirm: list[bytes] = []  # of these, what no turn was asked for yet
        self._pouring: Delivery | None = None  # that whose pieces are being sent
        self._tags = self._bytes = 0  # sent, since the beginning
        self._began = self._counted = False
        self._drains = 0  # asked for, and not told of
        self._presettled = link.remote_snd_settle_mode == SETTLED
        self._task = asyncio.get_running_loop().create_task(self._open())

    @property
    def told(self) -> LinkState:
        """For who looks at connections."""
        return LinkState(self._link.name, TAKES, self._address.name if self._address else "",
                         self._tags)

    # in the event loop, from the session

    def said(self, deliveries: Sequence[Delivery]) -> None:
        """`room_again` comes after the last one of those that came together."""
        self._session.stir(self)
        unsettled = self._unsettled
        for delivery in deliveries:
            tag, state = delivery.tag, delivery.outcome
            known = unsettled.get(tag)
            if known is None:
                continue
            if len(delivery.fields) > _FIELDS_BYTES_MAX:
                delivery.fields = b""
            if state == TRANSACTIONAL:
                self._enrol(delivery, known)
                continue
            if state not in TERMINAL and not delivery.settled:
                continue
            if self._pouring is delivery:
                self._break_off()
            del unsettled[tag]
            if known.native is not None:
                self._says.append((known.native, outcome(delivery)))
            if not delivery.settled and self._taker is not None:
                self._confirming[tag] = delivery
                self._to_confirm.append(tag)

    def _break_off(self) -> None:
        """The delivery under way does not come to its end."""
        if self._pouring is not None:
            self._link.abort(self._pouring)
        self._pouring = None

    def _heard(self, *, wants: bool) -> None:
        """All that came together: it is carried out at once, and confirmed when that is done.
        `wants`: as Taker.say has it."""
        self._carry_out(wants=wants)
        tags = self._to_confirm
        if tags and self._taker is not None:
            self._to_confirm = []
            loop = asyncio.get_running_loop()
            self._taker.afterwards(lambda: _told(loop, self._confirm, tags))

    def _confirm(self, tags: list[bytes]) -> None:
        for tag in tags:
            delivery = self._confirming.pop(tag)
            if self._session.gone or self._over:
                continue
            delivery.update(state_bytes(delivery.outcome, delivery.fields))
            delivery.settle()
        self._session.kick()

    def flowed(self) -> None:
        """`room_again` looks, behind all that came together: what the client has settled is heard
        before more is taken for it. Else the thread would wait for more, and be called back."""
        self._session.stir(self)

    def room_again(self) -> None:
        """Take as much as the client wants and the line carries."""
        taker = self._taker
        wanting = taker is not None and self._began and not self._over
        self._heard(wants=wanting)
        if taker is None or not wanting:
            return
        settings, link, session = self._host.policy.settings, self._link, self._session
        held, credit = len(self._unsettled) + self._enrolled, link.credit
        more = min(credit, max(0, settings.amqp_unsettled_max - held)) if credit else 0
        waiting = session.waiting_bytes
        session.tight = session.tight or waiting > 0
        room = max(0, settings.amqp_outgoing_bytes_max - waiting)
        draining = link.drain and credit > 0 and not self._drains
        self._drains += draining
        taker.want(self._tags + more, self._bytes + room, draining=draining)

    def recheck(self) -> None:
        address = self._address
        if address is not None and not self._host.allows(
                self._session, self._action, address):
            self._session.drop(self._link, "amqp:unauthorized-access",
                               f"no right to {self._action} on {address.name}")

    def ended(self) -> None:
        """By an orderly end: what the client holds comes back untouched."""
        self._end(failed=False)

    def cut(self) -> None:
        """The line broke."""
        self._end(failed=True)

    def _end(self, *, failed: bool) -> None:
        if self._over:
            return
        self._over = True
        self._task.cancel()
        if self._taker is None:
            self._uncount()
            return
        pouring = None if self._pouring is None else self._pouring.tag
        for tag, given in self._unsettled.items():
            broken = failed and tag != pouring  # nobody works on a part
            self._say(given, broke if broken else released)
            failed = False
        self._unsettled.clear()
        self._pouring = None
        self._carry_out()
        if self._enrolled and isinstance(self._taker, Taker):  # the transaction has its word first
            self._taker.put_back()
        else:
            self._taker.close()

    # from the taker

    def began(self) -> None:
        if self._over or self._session.gone:
            return
        link = self._link
        link.source, link.target = link.remote_source, link.remote_target
        if link.source.dynamic and self._address is not None:
            link.source = link.source.made(self._address.name)
        if self._presettled:
            link.snd_settle_mode = SETTLED
        link.open()
        self._began = True
        self._session.stir(self)
        self._session.kick()

    def took(self, messages: list[TakenMessage], *, drained: bool) -> None:
        if self._over or self._session.gone:
            for given in messages:
                self._say(given, released)
            self._carry_out()
            return
        for given in messages:
            if given.begins and given.ends:
                self._send_whole(given)
            else:
                self._send(given)
        if drained:
            self._drains = 0
            self._link.drained()
        if self._says or self._pouring or self._link.credit:  # else there is nothing to ask for
            self._session.stir(self)
        self._session.kick()

    def _send_whole(self, given: TakenMessage) -> None:
        link, native, data = self._link, given.native, given.data
        settles = self._presettled or native is None
        self._tags += 1
        self._bytes += len(data)
        delivery = Delivery(link, b"%d" % self._tags, settled=settles)
        if not settles:
            given.data = b""  # it is held, perhaps for long
            self._unsettled[delivery.tag] = given
        link.write(delivery, data)
        if self._presettled and native is not None:
            self._say(given, done)

    def _send(self, given: TakenMessage) -> None:
        """A piece of one."""
        link, native = self._link, given.native
        settles = self._presettled or native is None
        if given.begins:
            self._tags += 1
            self._pouring = link.delivery(b"%d" % self._tags, settled=settles)
            if not settles:
                self._unsettled[self._pouring.tag] = TakenMessage(native, b"")
        self._bytes += len(given.data)
        delivery = self._pouring
        if delivery is None:
            return  # it was broken off, here or by its client
        if given.broken:
            self._unsettled.pop(delivery.tag, None)
            self._break_off()
            return
        link.write(delivery, given.data, more=not given.ends)
        if given.ends:
            self._pouring = None
            if self._presettled and native is not None:
                self._say(given, done)

    def ended_by(self, error: Exception | None) -> None:
        """The thread is over."""
        self._uncount()
        if self._over or self._session.gone:
            return
        self._unsettled.clear()  # what it held is back already, or the manager has it
        gone = isinstance(error, UnknownQueue)
        self._close("amqp:resource-deleted" if gone else condition(error),
                    str(error or "the queue is read no more"))

    # the work

    @property
    def _action(self) -> str:
        return "browse" if self._browses else "get"

    @property
    def _browses(self) -> bool:
        return self._link.remote_source.copies

    async def _open(self) -> None:
        try:
            await self._opened()
        except (OmqError, ValueError) as error:
            self._close(condition(error), str(error))
        except Exception as error:
            self._host.failed(self._session, error)

    async def _opened(self) -> None:
        session, source = self._session, self._link.remote_source
        where = selector(source)
        name = source.address
        if source.dynamic:
            name = await self._host.temporary_queue(session)
        address = await self._host.ask(session, lambda native: resolved(native, name))
        if self._over or session.gone:
            return
        if not self._host.allows(session, self._action, address):
            raise_no = f"no right to {self._action} on {name}"
            self._close("amqp:unauthorized-access", raise_no)
            return
        if len(address.queues) > 1 or address.remote:
            self._close("amqp:not-allowed", f"{name} is not a queue that can be read")
            return
        if not self._host.count_receiver(self._user):
            self._close("amqp:resource-limit-exceeded",
                        "amqp_receivers_max or amqp_user_receivers_max links are open")
            return
        self._counted, self._address = True, address
        given = (self._host.connect, address.queues[0], where, self._host.policy.settings, self)
        most = self._link.remote_max_message_size
        self._taker = Browser(*given, most) if self._browses else Taker(
            *given, self._host.hands, most)
        self._host.takers.add(self._taker)

    def _close(self, why: str, reason: str) -> None:
        if self._over or self._session.gone:
            return
        if not self._began:
            self._link.open()
        self._session.drop(self._link, why, reason)
        self._session.kick()

    def _uncount(self) -> None:
        if self._taker is not None:
            self._host.takers.discard(self._taker)
        if self._counted:
            self._counted = False
            self._host.uncount_receiver(self._user)


def _told(loop: asyncio.AbstractEventLoop, confirm: Callable[[list[bytes]], None], tags: list[bytes]
          ) -> None:
    """From the thread."""
    loop.call_soon_threadsafe(confirm, tags)
