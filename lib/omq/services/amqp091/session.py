"""One connection of AMQP 0-9-1: who it is, and its channels.

It takes the place of the connection that the port made (services.amqp.session) when the protocol's
header has come: the same host, accounts, rights and counts.

    protocol header -> start -> start-ok -> tune -> tune-ok -> open -> open-ok -> channels

Invariants: 1. no channel before the user is known; 2. what a client published before it closes a
channel or the connection has been put, or could not be now, when it hears close-ok.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from pamqp import base, commands

import omq
from omq.base import events
from omq.base.clock import wall_ns
from omq.base.event_log import WARNING
from omq.base.events import Event
from omq.fast.amqp091_frames import ACK, HEARTBEAT, METHOD, PUBLISH
from omq.fast.amqp091_frames import HEADER as HEAD
from omq.services.amqp.client_identity import proved
from omq.services.amqp.connection_states import LinkState
from omq.services.amqp.policy import ANONYMOUS
from omq.services.amqp.sasl_door import Outcome
from omq.services.amqp091 import frames
from omq.services.amqp091.amqplain import asked_by, with_amqplain
from omq.services.amqp091.channel import QUESTIONS_BYTES, Channel
from omq.services.amqp091.directory import directory_of
from omq.services.amqp091.frames import Broken
from omq.services.amqp091.line import Line
from omq.services.amqp091.refusals import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    FORCED,
    NOT_ALLOWED,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    UNEXPECTED,
    Refused,
    worded,
)
from omq.services.network.tls import common_name

if TYPE_CHECKING:
    from omq.services.amqp.host import Host
    from omq.services.amqp091.publishing import Publishing
    from omq.services.network.accounts import Account

CHANNELS_MAX: Final = 255
_CAPABILITIES: Final = {"publisher_confirms": True, "basic.nack": True,
                        "consumer_cancel_notify": True, "authentication_failure_close": True,
                        "exchange_exchange_bindings": True}


class Session(Line):
    """See the module."""

    protocol: Final = "AMQP 0-9-1"

    def __init__(self, host: Host, peer: str, line: asyncio.Transport) -> None:
        super().__init__(host, peer, line)
        self.user: Account | None = None
        self.mechanism = ""
        self.links: dict[Any, Any] = {}  # of AMQP 1.0: none
        self.number, self.since_ns = 0, wall_ns()
        self.container = ""
        self.temporary: set[str] = set()
        self.asks = asyncio.Lock()
        self.directory = directory_of(host)
        self.hears_cancels = False
        self.published: set[Publishing] = set()  # to which messages came together
        self.touched: dict[Channel, None] = {}  # by acknowledgements that came together
        self.asking_bytes = 0  # of the questions of all channels
        self._channels: dict[int, Channel] = {}
        self._kept: list[Channel] = []  # of those that are over, who have something to put yet
        self._channels_max = CHANNELS_MAX
        self._expects: type[base.Frame] | None = commands.Connection.StartOk
        self._opened = self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def user_name(self) -> str:
        return self.user.name if self.user else "?"

    def begin(self, rest: bytes) -> None:
        """After the protocol header."""
        shown = common_name(self._line.get_extra_info("peercert"))
        offered = self.host.policy.mechanisms(certificate=bool(shown))
        self.send(commands.Connection.Start(
            0, 9, {"product": "omq", "version": omq.__version__, "platform": "Python",
                   "capabilities": dict(_CAPABILITIES)}, " ".join(with_amqplain(offered)),
            "en_US"))
        if rest:
            self.data_received(rest)

    def _behind(self) -> bool:
        return (self._expects is None or self.asking_bytes > QUESTIONS_BYTES
                or any(each.behind for each in self._channels.values()))

    def _look_on(self) -> None:
        self._kept = [each for each in self._kept if each.publishing.busy]
        for each in tuple(self._channels.values()):
            each.look()

    def run(self, work: Any) -> None:
        """A coroutine, kept until it is through."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _came(self) -> None:
        while self.published:
            self.published.pop().put()
        touched, self.touched = self.touched, {}
        for each in touched:
            each.carry_out()

    # frames

    def _frame(self) -> bool:
        frame = self._frames
        kind = frame.kind
        if kind == HEARTBEAT:
            return False
        if kind == METHOD:
            return self._said_method(frame.channel, frames.method_of(frame.payload))
        if self._closing:
            return True
        if frame.channel == 0:
            raise Broken(UNEXPECTED, "a content is not expected")
        if not self._opened:
            raise Broken(CHANNEL_ERROR, "a channel before the connection is open")
        channel = self._channels.get(frame.channel)
        if channel is None:
            raise Broken(CHANNEL_ERROR, f"channel {frame.channel} is not open")
        if channel.closing:
            return False
        try:
            if kind == PUBLISH:
                channel.publishing.begin(frame.exchange, frame.key, mandatory=frame.mandatory,
                                         immediate=frame.immediate)
                return False
            if kind == HEAD:
                channel.publishing.header(frame.body_size, frame.payload)
            elif kind == ACK:
                channel.settle(frame.tag, multiple=frame.multiple, says=None)
            else:
                channel.publishing.body(frame.payload)
        except Refused as error:
            self._refused(channel, error, commands.Basic.Ack if kind == ACK
                          else commands.Basic.Publish)
        return channel.behind

    def _refused(self, channel: Channel, error: Refused, method: type[base.Frame] | base.Frame
                 ) -> None:
        if error.code in (UNEXPECTED, RESOURCE_ERROR):
            raise Broken(error.code, str(error)) from error
        channel.refuse(error, method)

    def _said_method(self, number: int, what: base.Frame) -> bool:
        if self._closing:
            if isinstance(what, commands.Connection.CloseOk):
                self._close()
        elif number == 0:
            self._method(what)
        elif not self._opened:
            raise Broken(CHANNEL_ERROR, "a channel before the connection is open")
        else:
            self._of_channel(number, what)
        return True

    def _method(self, what: Any) -> None:
        if isinstance(what, commands.Connection.Close):
            self._closing = True
            self.run(self._closed())
        elif isinstance(what, commands.Connection.UpdateSecret) and self._opened:
            # A password is looked at when its user comes in, and never again: as with RabbitMQ's
            # own users a new one is heard, and changes nothing.
            self.send(commands.Connection.UpdateSecretOk())
        elif self._opened or not isinstance(what, self._expects or commands.Connection.Blocked):
            raise Broken(UNEXPECTED, f"{getattr(what, 'name', 'a content')} is not expected")
        elif isinstance(what, commands.Connection.StartOk):
            self._expects = None  # nothing is read before it is known who that is
            self.run(self._let_in(what))
        elif isinstance(what, commands.Connection.TuneOk):
            self._tuned(what)
        elif isinstance(what, commands.Connection.Open):
            if what.virtual_host not in ("", "/"):
                raise Broken(NOT_ALLOWED, f"the virtual host {what.virtual_host[:64]} is not "
                             "there: / is")
            self._opened = True
            self._begin_ticks()
            self.send(commands.Connection.OpenOk())
            if self.host.draining:
                self.goodbye()

    async def _closed(self) -> None:
        """Its client has said that it goes."""
        try:
            for each in tuple(self._channels.values()):
                await each.publishing.calm()
            self._end_channels(failed=False)
            self.send(commands.Connection.CloseOk())
            self._finish()
        except Exception as error:
            self.host.failed(self, error)  # aborts it

    async def _let_in(self, what: Any) -> None:
        try:
            shown = common_name(self._line.get_extra_info("peercert"))
            asked = asked_by(what)
            user, code = await proved(self.host, self.peer, shown, asked)
            if self.gone:
                return
            if user is None or not self.host.joined(self, user):
                self.forced(ACCESS_REFUSED, "the user could not be identified"
                            if code is Outcome.REFUSED else "too many: later, perhaps")
                return
            self.user, self.mechanism = user, asked.mechanism or ANONYMOUS
            self.container = str((what.client_properties or {}).get("product", ""))
            told = (what.client_properties or {}).get("capabilities")
            self.hears_cancels = isinstance(told, dict) and bool(told.get("consumer_cancel_notify"))
            self._expects = commands.Connection.TuneOk
            self.send(commands.Connection.Tune(self._channels_max, self.frame_max,
                                               min(self._heartbeat_s, 65535)))
            self.look()
        except Broken as error:
            self.forced(error.code, str(error))
        except Exception as error:
            self.host.failed(self, error)  # aborts it

    def _tuned(self, what: Any) -> None:
        if what.frame_max and what.frame_max < frames.FRAME_MIN:
            raise Broken(NOT_ALLOWED, f"frame-max is {frames.FRAME_MIN} at least")
        self.frame_max = self._frames.most = min(self.frame_max, what.frame_max or self.frame_max)
        self._channels_max = min(self._channels_max, what.channel_max or self._channels_max)
        self._heartbeat_s = what.heartbeat  # 0: neither side looks
        self._expects = commands.Connection.Open

    def _of_channel(self, number: int, what: base.Frame) -> None:
        channel = self._channels.get(number)
        if isinstance(what, commands.Channel.Open):
            if channel is not None or number > self._channels_max:
                raise Broken(CHANNEL_ERROR, f"channel {number} is open, or over channel-max")
            self._channels[number] = channel = Channel(self, number)
            channel.send(commands.Channel.OpenOk())
        elif channel is None:
            if not isinstance(what, commands.Channel.CloseOk):
                raise Broken(CHANNEL_ERROR, f"channel {number} is not open")
        elif isinstance(what, commands.Channel.CloseOk):
            if channel.closing:
                self.left(channel)
        elif isinstance(what, commands.Channel.Close):
            channel.closed_by_client()
        elif not channel.closing:
            try:
                channel.method(what)
            except Refused as error:
                self._refused(channel, error, what)

    def left(self, channel: Channel) -> None:
        """It is over for both sides."""
        self._channels.pop(channel.number, None)
        if channel.publishing.busy:
            self._kept.append(channel)

    # the end

    def _end_channels(self, *, failed: bool) -> None:
        for each in tuple(self._channels.values()):
            had = bool(each.unacked)
            each.end(failed=failed)
            failed = failed and not had
            self.left(each)

    @property
    def busy(self) -> bool:
        """Something was received and is not on the disk."""
        return any(each.publishing.busy for each in (*self._channels.values(), *self._kept))

    def recheck(self) -> None:
        """Users and rights have changed."""
        if self.user is not None and not self.host.policy.knows(self.user, self.mechanism):
            self.forced(ACCESS_REFUSED, f"{self.user.name} may not come in any more")
            return
        for each in tuple(self._channels.values()):
            each.recheck()

    @property
    def told(self) -> list[LinkState]:
        """What its channels do, for who looks at connections."""
        return [state for _, each in sorted(self._channels.items()) for state in each.told()]

    def goodbye(self) -> None:
        """The daemon stops: clients are asked to reconnect."""
        self.dismiss("the server is stopping: reconnect later")

    def dismiss(self, reason: str) -> None:
        """It is ended from here; its client may connect again."""
        if self._opened:
            self.forced(FORCED, reason)
        else:
            self._close()

    def dismiss_link(self, name: str, reason: str) -> bool:
        """The channel of what is listed with this name is closed from here, with what else is on
        it; False: there is none. Its client may open another."""
        for channel in tuple(self._channels.values()):
            if any(each.shown_name == name for each in channel.told()):
                channel.refuse(Refused(PRECONDITION_FAILED, reason))
                return True
        return False

    def forced(self, code: int, reason: str) -> None:
        """Our side ends the connection; the client has a moment to do so, too."""
        if self._closing or self.gone:
            return
        self._closing = True
        self._broke(reason)
        self._end_channels(failed=False)
        self.send(commands.Connection.Close(code, worded(code, reason), 0, 0))
        self._flush()  # the loop may be at its end
        self._hear_the_rest()

    def _late(self) -> None:
        self.forced(FORCED, "it did not open within amqp_handshake_timeout_s")

    def connection_lost(self, exc: Exception | None) -> None:
        if self.gone:
            return
        self.gone = True
        self._timer.cancel()
        if self._ending is not None:
            self._ending.cancel()
        try:
            self._end_channels(failed=True)
            self.directory.forget(self)
        finally:  # whatever a channel does: its place is free, or the server is full one day
            self.host.left(self)

    # what is published

    def _broke(self, reason: str) -> None:
        self._tell(events.AMQP_BROKE, reason)

    def unauthorized(self, reason: str) -> None:
        self._tell(events.AMQP_REFUSED, reason)

    def told_refused(self, reason: str) -> None:
        """A message was not taken."""
        self._tell(events.AMQP_REJECTED, reason)

    def _tell(self, event: Event, reason: str) -> None:
        self.host.rated.event(event, WARNING, self.peer, peer=self.peer, user=self.user_name,
                              reason=reason[:200])
