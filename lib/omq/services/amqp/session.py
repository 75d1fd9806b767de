"""One connection of AMQP: its bytes, who it is, and what happened on it.

Bytes come from asyncio; after the door (sasl_door) omq.amqp makes events of them and bytes of what
is answered. Links are served by Incoming (their clients put) and Outgoing (they
take). Everything here runs in the event loop.

Invariants: 1. no event is looked at before the user is known; 2. what goes out is given to the
transport while that takes it, else it stays in the engine, where `waiting_bytes` counts it; 3. a
mistake of ours in one connection ends that one alone; 4. the line is read no further while its
client does not take what it is sent, or while what came before was not looked at: one connection
has TURN_S, then the others (ADR 0230).
"""

from __future__ import annotations

import asyncio
import platform
import time
from typing import TYPE_CHECKING, Final

import omq
from omq.amqp.connection import Connection
from omq.base import events
from omq.base.event_log import ERROR, WARNING
from omq.format.amqp_types import Array, Symbol
from omq.services.amqp.client_identity import proved
from omq.services.amqp.coordinator import Coordinator
from omq.services.amqp.endpoints import Endpoints, tick_s
from omq.services.amqp.host import TURN_S
from omq.services.amqp.incoming import Incoming
from omq.services.amqp.outgoing import Outgoing
from omq.services.amqp.policy import ANONYMOUS
from omq.services.amqp.sasl_door import OLDER, NotAmqp, Outcome, SaslDoor, SaslResponse, outcome
from omq.services.channel.receiver import ChannelLink
from omq.services.daemon.daemon import last_trace
from omq.services.network.source import source_of
from omq.services.network.tls import accepted, common_name

if TYPE_CHECKING:
    from omq.services.amqp.host import Host

_CHANNELS_MAX: Final = 15
_CAPABILITIES: Final = ("ANONYMOUS-RELAY", "DELAYED_DELIVERY")
"""A link without an address (targets), a delay by annotation (translation)."""
_SYMBOLS: Final = 0xB3
_FRAMES_MAX: Final = 16
"""Frames that mean nothing, between two looks at the clock."""


class Session(Endpoints, asyncio.Protocol):
    """See the module."""

    def __init__(self, host: Host, *, secured: bool = False) -> None:
        super().__init__(host)
        self._secured, self._early = secured, b""
        self._door: SaslDoor | None = None
        self._stirred: set[Outgoing] = set()  # to which there may be more to give
        self.to_put: set[Incoming] = set()  # to which messages came
        self.tight = False  # what waits to go out has limited one of them
        self._paused = self._asking = False
        self._stopped = False  # its line is not read, for now
        self._goes_on = False  # in the next turn of the event loop
        self._written = self._went = 0  # bytes: given to the line, and gone at the last tick
        self._task: asyncio.Task[None] | None = None

    @property
    def _whole(self) -> Session:
        return self

    # bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._line = transport
        self.peer = source_of(transport.get_extra_info("socket"))
        if not self.host.admit(self):
            transport.abort()
            return
        wait_s = self.host.policy.settings.amqp_handshake_timeout_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._late)
        if self._secured:  # counted before its handshake: that costs, and it may never end
            transport.pause_reading()
            self._task = asyncio.get_running_loop().create_task(self._handshake(transport, wait_s))
        else:
            self._greet()

    async def _handshake(self, line: asyncio.Transport, wait_s: float) -> None:
        found = await accepted(self, line, self.host.policy.tls, wait_s, wait_s)
        if isinstance(found, Exception):
            if not self.gone:
                self._told_failed(f"TLS: {found}")
            self.connection_lost(None)
        elif self.gone:
            found.abort()
        else:
            self._line = found
            self._greet()
            early, self._early = self._early, b""
            if early:
                self.data_received(early)

    def _greet(self) -> None:
        assert self._line is not None
        shown = common_name(self._line.get_extra_info("peercert"))
        self._door = SaslDoor(self.host.policy.mechanisms(certificate=bool(shown)))

    def _late(self) -> None:
        self._failed("it did not open within amqp_handshake_timeout_s")

    def data_received(self, data: bytes) -> None:
        try:
            if (engine := self._engine) is not None:
                engine.receive(data)
                self.work()
            elif self._door is None:  # it came with the end of the handshake
                self._early += data
            elif self._asking:
                assert self._door is not None
                self._door.rest += data  # little: reading is paused
            else:
                self._at_door(data)
        except Exception:
            self._bug()

    def _is_older(self, data: bytes) -> bool:
        """Whether it speaks AMQP 0-9-1, or may yet: then these bytes were taken. NotAmqp."""
        assert self._door is not None and self._line is not None
        if self._door.greeted:
            return False
        begin = self._door.rest + data
        if len(begin) < len(OLDER):
            taken = OLDER.startswith(begin)
            self._door.rest = begin if taken else self._door.rest
            return taken
        if not begin.startswith(OLDER):
            return False
        self.host.take_over(self, self._line, begin[len(OLDER) :])
        assert self._timer is not None
        self._timer.cancel()
        self.gone = True
        return True

    def _at_door(self, data: bytes) -> None:
        assert self._door is not None and self._line is not None
        try:
            if self._is_older(data):
                return
            answer, asked = self._door.take(data)
        except NotAmqp as error:
            self._line.write(error.answer)
            self._failed(str(error))
            return
        if answer:
            self._line.write(answer)
        if asked is not None:
            self._asking = True
            self._line.pause_reading()
            self._task = asyncio.get_running_loop().create_task(self._let_in(asked))

    async def _let_in(self, asked: SaslResponse) -> None:
        assert self._line is not None and self._door is not None
        try:
            shown = common_name(self._line.get_extra_info("peercert"))
            user, code = await proved(self.host, self.peer, shown, asked)
        except Exception:
            self._bug()
            return
        if self.gone:
            return
        if user is None or not self.host.joined(self, user):
            if asked.mechanism:
                self._line.write(outcome(code if user is None else Outcome.LATER))
            self._line.close()
            self._hang_up_later()
            return
        self.user, self.mechanism = user, asked.mechanism or ANONYMOUS
        if asked.mechanism:
            self._line.write(outcome(Outcome.ACCEPTED))
        self._begin()
        self._line.resume_reading()
        rest, self._door = self._door.rest, None
        if rest:
            self.data_received(rest)

    def _begin(self) -> None:
        settings = self.host.policy.settings
        self._engine = engine = Connection(
            max_frame_size=settings.amqp_frame_bytes_max, channel_max=_CHANNELS_MAX,
            idle_s=settings.amqp_idle_timeout_s)
        # what a server says of itself in `open` (ISO 19464 part 2, 2.7.1)
        engine.container = f"omq-{self.host.context.location.paths.root.name}"
        engine.properties = {
            Symbol("product"): "omq", Symbol("version"): omq.__version__,
            Symbol("platform"): f"Python {platform.python_version()}"}
        engine.offered_capabilities = Array(_SYMBOLS, [*map(Symbol, _CAPABILITIES)])

    def eof_received(self) -> bool:
        self._hang_up_later()  # it may not read what it was sent, either
        return False  # half of a connection is none

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.kick()

    @property
    def waiting_bytes(self) -> int:
        """What this client has not taken yet."""
        line = 0 if self._line is None else self._line.get_write_buffer_size()
        return line + (0 if self._engine is None else self._engine.pending)

    def stir(self, link: Outgoing) -> None:
        """There may be more to give to it, when all that came together has been looked at."""
        self._stirred.add(link)

    def kick(self) -> None:
        """Something was said on it: look at its events, send what there is."""
        try:
            self.work()
        except Exception:
            self._bug()

    def work(self) -> None:
        engine = self._engine
        if self.gone or engine is None:
            return
        self._hear(engine)
        if self._engine is None:
            return
        while self.to_put:
            self.to_put.pop().put()
        self.flush()
        if engine.finished and not engine.out:
            self._end_of_output()
        self._stop_or_read(engine)
        if self.tight or self._stirred:
            tight, self.tight = self.tight, False
            stirred, self._stirred = self._stirred, set()
            for each in tuple(self.links.values()) if tight else stirred:
                each.room_again()

    def _hear(self, engine: Connection) -> None:
        """What happened, for a turn at most."""
        if self._goes_on:
            return
        ends = time.monotonic() + TURN_S
        while not self.gone:
            event = engine.event(_FRAMES_MAX)
            if event is not None:
                self._happened(event)
            elif not engine.more:
                return
            if time.monotonic() > ends:
                self._goes_on = True
                asyncio.get_running_loop().call_soon(self._next_turn)
                return

    def _next_turn(self) -> None:
        self._goes_on = False
        self.kick()

    def _stop_or_read(self, engine: Connection) -> None:
        """Its line, for now."""
        line = self._line
        assert line is not None
        stops = self._goes_on or (engine.unsent + line.get_write_buffer_size()
                                  > self.host.policy.settings.amqp_outgoing_bytes_max)
        if stops != self._stopped and not line.is_closing():
            self._stopped = stops
            (line.pause_reading if stops else line.resume_reading)()

    def flush(self) -> None:
        """Send what the line takes."""
        engine, line = self._engine, self._line
        assert engine is not None and line is not None
        if not self._paused and (data := engine.take()):
            self._written += len(data)
            line.write(data)

    def _end_of_output(self) -> None:
        assert self._line is not None
        if not self._line.is_closing():
            self._line.close()
            self._hang_up_later()

    def _tick(self) -> None:
        if self.gone or self._engine is None:
            return
        try:
            self._look_at_line()
            self._engine.tick(time.monotonic())
            self.transactions.look()
            self.work()
        except Exception:
            self._bug()
        if self._engine is not None:
            self._timer = asyncio.get_running_loop().call_later(
                tick_s(self._engine.remote_idle_s), self._tick)

    def _look_at_line(self) -> None:
        """A client that is not read, but reads, is not silent."""
        assert self._line is not None and self._engine is not None
        went = self._written - self._line.get_write_buffer_size()
        if self._stopped and went > self._went:
            self._engine.hears()
        self._went = went

    def connection_lost(self, exc: Exception | None) -> None:
        if self.gone:
            return
        self.gone = True
        for timer in (self._timer, self._ending):
            if timer is not None:
                timer.cancel()
        try:
            for each in tuple(self.links.values()):
                each.cut()
        finally:  # whatever a link does: its place is free, or the server is full one day
            self._clear()
            self.host.left(self)
            self._engine = None

    @property
    def busy(self) -> bool:
        """Something was received and is not on the disk."""
        return any(isinstance(each, Incoming | Coordinator | ChannelLink) and each.busy
                   for each in self.links.values())

    def abort(self) -> None:
        if self._line is not None:
            self._line.abort()

    def _told_failed(self, reason: str) -> None:
        self.host.rated.event(events.AMQP_BROKE, WARNING, self.peer, peer=self.peer,
                              user=self.user.name if self.user else "?", reason=reason[:200])

    def _failed(self, reason: str) -> None:
        self._told_failed(reason)
        if self._line is not None:
            self._line.close()
            self._hang_up_later()

    def _bug(self) -> None:
        self.host.rated.event(events.BUG, ERROR, "amqp", traceback=last_trace())
        self.abort()
