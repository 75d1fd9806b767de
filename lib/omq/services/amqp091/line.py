"""The line of one connection of AMQP 0-9-1: bytes in, frames out of them, bytes out, heart-beats.

Invariants: 1. a mistake of ours in one connection ends that one alone; 2. the line is read no
further while a channel is behind, or while its client does not take what it is sent: then silence
is not the client's fault; nor while what came before was not looked at: one connection has TURN_S,
then the others (ADR 0230); 3. who takes nothing for two heart-beats is gone as who says nothing is;
4. what is sent in one turn of the event loop goes in one write, and before the line is closed.
"""

from __future__ import annotations

import asyncio
import socket
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pamqp import base

from omq.base import events
from omq.base.event_log import ERROR
from omq.fast.amqp091_frames import Frames
from omq.format.amqp_types import Malformed
from omq.services.amqp.host import TURN_S
from omq.services.amqp091 import frames
from omq.services.amqp091.frames import Broken, broken_by
from omq.services.daemon.daemon import last_trace

if TYPE_CHECKING:
    from omq.services.amqp.host import Host

_TICK_S: Final = 1.0
_WRITE_BYTES: Final = 1 << 16
"""So much is not kept until the end of a turn."""


class Line(asyncio.Protocol):
    """See the module. Session is the other half."""

    def __init__(self, host: Host, peer: str, line: asyncio.Transport) -> None:
        self.host, self.peer, self._line = host, peer, line
        self.gone = False
        settings = host.policy.settings
        self.frame_max = max(frames.FRAME_MIN, settings.amqp_frame_bytes_max)
        self._frames = Frames(self.frame_max)
        self._heartbeat_s = settings.amqp_idle_timeout_s
        self._stopped = False
        self._goes_on = False  # in the next turn of the event loop
        self._out = bytearray()  # of this turn
        self._gathers = False  # who writes now sees to it that it goes
        self._heard = self._said = self._taken = time.monotonic()
        self._written = self._went = 0  # bytes: given to the line, and gone at the last look
        self._ending: asyncio.TimerHandle | None = None
        self._timer = asyncio.get_running_loop().call_later(
            settings.amqp_handshake_timeout_s, self._late)
        _keep_alive(line, settings.amqp_idle_timeout_s)

    @abstractmethod
    def _frame(self) -> bool:
        """The frame that `_frames` has; whether something may be behind now."""
    @abstractmethod
    def _came(self) -> None:
        """What came together was looked at."""

    @abstractmethod
    def _late(self) -> None: ...
    @abstractmethod
    def _behind(self) -> bool: ...
    @abstractmethod
    def _look_on(self) -> None: ...
    @abstractmethod
    def forced(self, code: int, reason: str) -> None: ...
    @abstractmethod
    def _broke(self, reason: str) -> None: ...

    # what comes

    def data_received(self, data: bytes) -> None:
        self._heard = time.monotonic()
        self._frames.feed(data)
        self.at_once(self._read)

    @property
    def frame_bytes(self) -> int:
        """Of the frame that is looked at."""
        return self._frames.size

    def _read(self) -> None:
        if self._goes_on:
            return
        ends = time.monotonic() + TURN_S
        try:
            while self._frames.next():
                if self._frame() and (self.gone or self._stops()):
                    break
                if time.monotonic() > ends:
                    self._goes_on = True
                    asyncio.get_running_loop().call_soon(self._next_turn)
                    break
            self._came()
            if not self.gone:
                self._stops()
        except Broken as error:
            self.forced(error.code, str(error))
        except Malformed as error:
            broken = broken_by(error)
            self.forced(broken.code, str(broken))
        except Exception:
            self.host.rated.event(events.BUG, ERROR, "amqp", traceback=last_trace())
            self.abort()

    def _next_turn(self) -> None:
        self._goes_on = False
        if self._stopped:
            self.look()
        elif not self.gone:
            self.at_once(self._read)

    def _is_behind(self) -> bool:
        return self._goes_on or self._untold or self._behind()

    @property
    def _untold(self) -> bool:
        """It does not take what it is sent."""
        return self.waiting_bytes > self.host.policy.settings.amqp_outgoing_bytes_max

    def _stops(self) -> bool:
        """Whether the line is read no further, for now."""
        behind = self._is_behind()
        if behind and not self._stopped and not self._line.is_closing():
            self._stopped = True
            self._line.pause_reading()
        return behind

    def look(self) -> None:
        """There may be room again."""
        if self.gone:
            return
        if self._stopped and not self._is_behind():
            self._stopped = False
            self._heard = time.monotonic()
            self._line.resume_reading()
            self._read()
        self._look_on()

    kick = look

    def resume_writing(self) -> None:
        self.look()

    def eof_received(self) -> bool:
        self._hang_up_later()  # it may not read what it was sent, either
        return False  # half of a connection is none

    # what goes

    def write(self, data: bytes) -> None:
        """At the end of this turn."""
        out = self.turn()
        out += data
        self.wrote()

    def turn(self) -> bytearray:
        """What goes at the end of this turn; `wrote` is called when something was added."""
        if not self._out and not self.gone and not self._gathers:
            asyncio.get_running_loop().call_soon(self._flush)
        return self._out

    def at_once(self, work: Callable[[], None]) -> None:
        """What this writes goes at its end, without another turn of the event loop."""
        if self._gathers:
            work()
            return
        self._gathers = True
        try:
            work()
        finally:
            self._gathers = False
            self._flush()

    def wrote(self) -> None:
        """There is more in it."""
        if len(self._out) > _WRITE_BYTES or self.gone:
            self._flush()

    def _flush(self) -> None:
        out = self._out
        if out:
            self._out = bytearray()
            if not self.gone and not self._line.is_closing():
                self._said = time.monotonic()
                self._written += len(out)
                self._line.write(out)

    def _close(self) -> None:
        """What was said goes first."""
        self._flush()
        self._line.close()

    def _finish(self) -> None:
        """The end, as its client wants it. What that has still to write (amqplib writes channel by
        channel, and the close of a connection first) is read and means nothing: a line that is
        closed before would be reset under the answer."""
        self._flush()
        if self._line.can_write_eof() and not self._line.is_closing():
            self._line.write_eof()
        self._hear_the_rest()

    def _hear_the_rest(self) -> None:
        """Until its client closes the line, too, but not for long."""
        if self._stopped:
            self._stopped = False
            self._line.resume_reading()
        self._hang_up_later()

    def send(self, what: base.Frame) -> None:
        """On channel 0."""
        self.write(frames.method(0, what))

    @property
    def waiting_bytes(self) -> int:
        """What this client has not taken yet."""
        return len(self._out) + self._line.get_write_buffer_size()

    def abort(self) -> None:
        self._flush()
        self._line.abort()

    def _hang_up_later(self) -> None:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(
                self.host.policy.settings.amqp_close_timeout_s, self.abort)

    # time

    def _begin_ticks(self) -> None:
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        """A heart-beat when nothing was said for half of its time; who says nothing, or takes
        nothing, for two of them is gone."""
        if self.gone:
            return
        now, beat_s = time.monotonic(), self._heartbeat_s
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
        waiting = self.waiting_bytes
        went = self._written + len(self._out) - waiting
        if not waiting or went > self._went:
            self._taken = now
        self._went = went
        if not beat_s:
            return  # neither side looks
        if now - self._said >= beat_s / 2 and not waiting:
            self.write(frames.BEAT)
        if now - self._taken > 2 * beat_s:
            self._cut("it takes nothing")
        elif not self._stopped and now - self._heard > 2 * beat_s:
            self._cut("no heart-beat came")

    def _cut(self, reason: str) -> None:
        self._broke(reason)
        self.abort()


def _keep_alive(line: asyncio.Transport, idle_s: int) -> None:
    """A client that wants no heart-beats, and whose host has gone, is found out by the kernel."""
    found = line.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, min(idle_s, 32767))
