"""One connection of AMQP 0-9-1: its bytes, who it is, its channels.

It takes the place of the connection that the port made (services.amqp.session) when the protocol's
header has come: the same host, accounts, rights and counts.

    protocol header -> start -> start-ok -> tune -> tune-ok -> open -> open-ok -> channels

Invariants: 1. no channel before the user is known; 2. a mistake of ours in one connection ends that
one alone; 3. the line is read no further while a channel is behind, and silence of a client whose
line we do not read is not its fault.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from pamqp import base, commands

import omq
from omq.base import events
from omq.base.errors import UnknownQueue
from omq.base.event_log import ERROR, WARNING
from omq.services.amqp.entrance import proved
from omq.services.amqp.policy import ANONYMOUS
from omq.services.amqp.sasl_door import Asked, Outcome
from omq.services.amqp091 import frames
from omq.services.amqp091.channel import Channel
from omq.services.amqp091.frames import Broken, Frame, Frames
from omq.services.amqp091.translation import NOT_IMPLEMENTED, PRECONDITION_FAILED, Refused
from omq.services.daemon.daemon import last_trace
from omq.services.network.tls import common_name

if TYPE_CHECKING:
    from omq.services.amqp.host import Host
    from omq.services.network.accounts import Account

CHANNELS_MAX: Final = 255
_TICK_S: Final = 1.0
ACCESS_REFUSED, NOT_FOUND, CHANNEL_ERROR, UNEXPECTED, FORCED = 403, 404, 504, 505, 320
_CAPABILITIES: Final = {"publisher_confirms": True, "basic.nack": True,
                        "consumer_cancel_notify": True, "authentication_failure_close": True}


class Session(asyncio.Protocol):
    """See the module."""

    def __init__(self, host: Host, peer: str, line: asyncio.Transport) -> None:
        self.host, self.peer, self._line = host, peer, line
        self.user: Account | None = None
        self.mechanism = ""
        self.gone = False
        self.links: dict[Any, Any] = {}  # of AMQP 1.0: none
        self.temporary: set[str] = set()
        self.asks = asyncio.Lock()
        settings = host.policy.settings
        self.frame_max = max(frames.FRAME_MIN, settings.amqp_frame_bytes_max)
        self.hears_cancels = False
        self._frames = Frames(self.frame_max)
        self._channels: dict[int, Channel] = {}
        self._kept: list[Channel] = []  # of those that are over, who have something to put yet
        self._channels_max = CHANNELS_MAX
        self._heartbeat_s = settings.amqp_idle_timeout_s
        self._expects: type[base.Frame] | None = commands.Connection.StartOk
        self._opened = self._closing = self._stopped = False
        self._heard = self._said = time.monotonic()
        loop = asyncio.get_running_loop()
        self._ending: asyncio.TimerHandle | None = None
        self._timer = loop.call_later(settings.amqp_handshake_timeout_s, self._late)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def user_name(self) -> str:
        return self.user.name if self.user else "?"

    def begin(self, rest: bytes) -> None:
        """Behind the protocol header."""
        shown = common_name(self._line.get_extra_info("peercert"))
        offered = self.host.policy.mechanisms(certificate=bool(shown))
        self._send(commands.Connection.Start(
            0, 9, {"product": "omq", "version": omq.__version__, "platform": "Python",
                   "capabilities": dict(_CAPABILITIES)}, " ".join(offered), "en_US"))
        if rest:
            self.data_received(rest)

    # bytes

    def data_received(self, data: bytes) -> None:
        self._heard = time.monotonic()
        self._frames.take(data)
        self._read()

    def _read(self) -> None:
        try:
            for frame in self._frames:
                self._frame(frame)
                if self.gone or self._stops():
                    return
        except Broken as error:
            self.forced(error.code, str(error))
        except Exception:
            self.host.rated.event(events.BUG, ERROR, "amqp", traceback=last_trace())
            self.abort()

    def _stops(self) -> bool:
        """Whether the line is read no further, for now."""
        behind = self._expects is None or any(each.behind for each in self._channels.values())
        if behind and not self._stopped and not self._line.is_closing():
            self._stopped = True
            self._line.pause_reading()
        return behind

    def look(self) -> None:
        """There may be room again."""
        if self.gone:
            return
        if self._stopped and self._expects is not None and not any(
                each.behind for each in self._channels.values()):
            self._stopped = False
            self._heard = time.monotonic()
            self._line.resume_reading()
            self._read()
        for each in tuple(self._channels.values()):
            each.look()

    kick = look

    def write(self, data: bytes) -> None:
        if not self.gone and not self._line.is_closing():
            self._said = time.monotonic()
            self._line.write(data)

    def _send(self, what: base.Frame) -> None:
        self.write(frames.method(0, what))

    @property
    def waiting_bytes(self) -> int:
        """What this client has not taken yet."""
        return self._line.get_write_buffer_size()

    def resume_writing(self) -> None:
        self.look()

    def eof_received(self) -> bool:
        return False

    # frames

    def _frame(self, frame: Frame) -> None:
        what = frame.what
        if what is None:
            return  # a heart-beat
        if self._closing:
            if isinstance(what, commands.Connection.CloseOk):
                self._line.close()
            return
        if frame.channel == 0:
            self._method(what)
        elif not self._opened:
            raise Broken(CHANNEL_ERROR, "a channel before the connection is open")
        else:
            self._of_channel(frame.channel, what)

    def _method(self, what: Any) -> None:
        if isinstance(what, commands.Connection.Close):
            self._send(commands.Connection.CloseOk())
            self._end_channels(failed=False)
            self._line.close()
            self._hang_up_later()
        elif self._opened or not isinstance(what, self._expects or commands.Connection.Blocked):
            raise Broken(UNEXPECTED, f"{getattr(what, 'name', 'a content')} is not expected")
        elif isinstance(what, commands.Connection.StartOk):
            self._expects = None  # nothing is read before it is known who that is
            task = asyncio.get_running_loop().create_task(self._let_in(what))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(what, commands.Connection.TuneOk):
            self._tuned(what)
        elif isinstance(what, commands.Connection.Open):
            self._opened = True
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
            self._send(commands.Connection.OpenOk())
            if self.host.draining:
                self.goodbye()

    async def _let_in(self, what: Any) -> None:
        try:
            shown = common_name(self._line.get_extra_info("peercert"))
            said = what.response
            asked = Asked(what.mechanism, said.encode() if isinstance(said, str) else bytes(said))
            user, code = await proved(self.host, self.peer, shown, asked)
            if self.gone:
                return
            if user is None or not self.host.joined(self, user):  # type: ignore[arg-type]
                self.forced(ACCESS_REFUSED, "ACCESS_REFUSED: who that is could not be shown"
                            if code is Outcome.REFUSED else "too many: later, perhaps")
                return
            self.user, self.mechanism = user, asked.mechanism or ANONYMOUS
            told = (what.client_properties or {}).get("capabilities")
            self.hears_cancels = isinstance(told, dict) and bool(told.get("consumer_cancel_notify"))
            self._expects = commands.Connection.TuneOk
            self._send(commands.Connection.Tune(self._channels_max, self.frame_max,
                                                min(self._heartbeat_s, 65535)))
            self.look()
        except Exception as error:
            self.host.failed(self, error)  # type: ignore[arg-type] # aborts it

    def _tuned(self, what: Any) -> None:
        if what.frame_max and what.frame_max < frames.FRAME_MIN:
            raise Broken(530, f"frame-max is {frames.FRAME_MIN} at least")
        self.frame_max = self._frames.most = min(self.frame_max, what.frame_max or self.frame_max)
        self._channels_max = min(self._channels_max, what.channel_max or self._channels_max)
        self._heartbeat_s = what.heartbeat  # 0: neither side looks
        self._expects = commands.Connection.Open

    def _of_channel(self, number: int, what: Any) -> None:
        channel = self._channels.get(number)
        if isinstance(what, commands.Channel.Open):
            if channel is not None or number > self._channels_max:
                raise Broken(CHANNEL_ERROR, f"channel {number} is open, or over channel-max")
            self._channels[number] = channel = Channel(self, number)
            channel.send(commands.Channel.OpenOk())
        elif channel is None:
            if not isinstance(what, commands.Channel.CloseOk):
                raise Broken(CHANNEL_ERROR, f"channel {number} is not open")
        elif isinstance(what, commands.Channel.Close | commands.Channel.CloseOk):
            if isinstance(what, commands.Channel.Close):
                channel.end(failed=False)
                channel.send(commands.Channel.CloseOk())
            del self._channels[number]
        elif not channel.closing:
            method = what if isinstance(what, base.Frame) else commands.Basic.Publish
            try:
                if isinstance(what, base.Frame):
                    channel.method(what)
                else:
                    channel.content(what)
            except Refused as error:
                if error.code in (UNEXPECTED, 506):
                    raise Broken(error.code, str(error)) from error
                channel.refuse(error, method)

    # queues

    async def declared(self, what: Any, last: str) -> tuple[str, int]:
        """The name of a queue, and the messages on it. A durable one is there already; one of the
        connection's own has no name of its client's choosing. Refused, OmqError."""
        if what.arguments:
            name = next(iter(what.arguments))
            raise Refused(NOT_IMPLEMENTED, f"{name} is not there: keys of a queue stand in "
                          "queues.conf")
        name = what.queue or (last if what.passive else "")
        if not name:
            if what.passive or not (what.exclusive or what.auto_delete):
                raise Refused(NOT_IMPLEMENTED, "a queue without a name is exclusive or auto_delete")
            return await self.host.temporary_queue(self), 0  # type: ignore[arg-type]
        try:
            info = await self.host.ask(  # type: ignore[arg-type]
                self, lambda native: native.queues.show(name))
        except UnknownQueue as error:
            if what.passive or not (what.exclusive or what.auto_delete):
                raise Refused(NOT_FOUND, f"the queue {name} is not there: queues are defined in "
                              "queues.conf, or by `omq queue define`") from error
            raise Refused(NOT_IMPLEMENTED, "a queue of a connection has a name of the server's "
                          "choosing: declare it without one") from error
        if not what.passive and name not in self.temporary and (
                what.exclusive or what.auto_delete or not what.durable):
            raise Refused(PRECONDITION_FAILED, f"{name} is durable, not exclusive, not auto_delete")
        return name, info.messages

    # the end

    def _end_channels(self, *, failed: bool) -> None:
        for each in self._channels.values():
            had = bool(each.unacked)
            each.end(failed=failed)
            failed = failed and not had
        self._kept = [each for each in self._channels.values() if each.publishing.busy]
        self._channels.clear()

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

    def goodbye(self) -> None:
        """The daemon stops: clients are told to come again."""
        if self._opened:
            self.forced(FORCED, "CONNECTION_FORCED: the server stops: come again")
        else:
            self._line.close()

    def forced(self, code: int, reason: str) -> None:
        """Our side ends the connection; the client has a moment to do so, too."""
        if self._closing or self.gone:
            return
        self._closing = True
        self.host.rated.event(events.AMQP_BROKE, WARNING, self.peer, peer=self.peer,
                              user=self.user_name, reason=reason[:200])
        self._end_channels(failed=False)
        self._send(commands.Connection.Close(code, reason[:250], 0, 0))
        if self._stopped:
            self._stopped = False
            self._line.resume_reading()
        self._hang_up_later()

    def _hang_up_later(self) -> None:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(
                self.host.policy.settings.amqp_close_timeout_s, self.abort)

    def abort(self) -> None:
        self._line.abort()

    def _late(self) -> None:
        self.forced(FORCED, "it did not open within amqp_handshake_timeout_s")

    def _tick(self) -> None:
        """Heart-beats: one when nothing was said for half of their time; who says nothing for two
        of them is gone."""
        if self.gone:
            return
        now, beat_s = time.monotonic(), self._heartbeat_s
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
        if not beat_s:
            return
        if now - self._said >= beat_s / 2:
            self.write(frames.BEAT)
        if not self._stopped and now - self._heard > 2 * beat_s:
            self.host.rated.event(events.AMQP_BROKE, WARNING, self.peer, peer=self.peer,
                                  user=self.user_name, reason="no heart-beat came")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.gone:
            return
        self.gone = True
        self._timer.cancel()
        if self._ending is not None:
            self._ending.cancel()
        try:
            self._end_channels(failed=True)
        finally:  # whatever a channel does: its place is free, or the server is full one day
            self.host.left(self)  # type: ignore[arg-type]

    # what host and channels tell

    def unauthorized(self, reason: str) -> None:
        self.host.rated.event(events.AMQP_REFUSED, WARNING, self.peer, peer=self.peer,
                              user=self.user_name, reason=reason[:200])

    def told_refused(self, reason: str) -> None:
        """A message was not taken."""
        self.host.rated.event(events.AMQP_REJECTED, WARNING, self.peer, peer=self.peer,
                              user=self.user_name, reason=reason[:200])
