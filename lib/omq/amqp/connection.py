"""Connections: what comes as bytes becomes events, calls become bytes that go out (ISO 19464,
part 2, 2.4).

    open       header and `open` of both sides, in any order; who is a server answers
    close      with a condition where there is one; after it nothing of the peer is looked at but
               its own `close`
    idle       `tick` says when to send a sign of life, and when the peer has been silent too long

Frames are looked at one at a time, when the next event is asked for, so what an event makes its
reader do has happened before the next frame is read. Where its reader wants runs (`run_bytes_max`
of a link), small messages that follow each other are one event: for all of them there was credit,
and nothing that is done with one of them changes what the next one is.

Invariants: 1. whatever bytes come, `event` raises nothing: what is not AMQP ends the connection
with the condition that says so (FAILED); 2. what is kept for a peer is bounded: a frame, what its
windows allow (session), the links that the reader of the events lets it have; 3. a connection whose
end was said by both, or that failed, is `finished` when its bytes are taken.

Attach and detach as they come: which link of a session they are of.

Errors: Malformed, with the condition that ends the connection.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Any, Final

from omq.amqp.connection_events import Event, Kind
from omq.amqp.delivery import Run
from omq.amqp.links import Receiver, Sender, field
from omq.amqp.session import Session
from omq.amqp.states import Condition, condition_of, error, within
from omq.fast import amqp_sending
from omq.fast.amqp_frames import Frames
from omq.format.amqp_performatives import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    TRANSFER,
)
from omq.format.amqp_types import Malformed, Uint, Ushort


def attached(session: Session, fields: list[Any]) -> Receiver | Sender:
    """The peer's link, which is a new one, or its answer to ours."""
    name, handle = field(fields, 0, str, None), field(fields, 1, Uint, None)
    role = field(fields, 2, bool, None)
    if name is None or handle is None or role is None:
        raise Malformed("an attach has no name, handle or role")
    if int(handle) in session.remote_handles:
        raise Malformed("a handle has a link", "amqp:session:handle-in-use")
    link = session.named.pop((name, not role), None)
    if not isinstance(link, Receiver | Sender):
        link = (Sender if role else Receiver)(session, name)
    link.came(fields)
    session.remote_handles[int(handle)] = link
    return link


def detached(session: Session, fields: list[Any]) -> tuple[Receiver | Sender, bool]:
    """The link, and whether it is over for good."""
    handle = field(fields, 0, Uint, None)
    link = session.remote_handles.pop(int(handle), None) if handle is not None else None
    if not isinstance(link, Receiver | Sender):
        raise Malformed("a detach of no link", "amqp:session:unattached-handle")
    link.detached = True
    link.remote_condition = condition_of(field(fields, 2, object, None))
    session.gone(link)
    return link, field(fields, 1, bool, None) is True


HEADER: Final = b"AMQP\x00\x01\x00\x00"
FRAME_BYTES_MIN: Final = 512
_FRAMING: Final = "amqp:connection:framing-error"
_NO_LIMIT: Final = (1 << 32) - 1
_NEEDED: Final = 5
"""Fields of an open up to the idle time; what follows only describes its sender."""
_FREQUENT: Final = (TRANSFER, FLOW, DISPOSITION)
_ARRIVED, _CAME, _FLOWED, _SAID = Kind.ARRIVED, Kind.CAME, Kind.FLOWED, Kind.SAID
"""A look at the class costs more."""


class Connection:
    """Of either side. What is set before `open` is what it says."""

    def __init__(self, *, max_frame_size: int, channel_max: int = 15, idle_s: float = 0.0) -> None:
        self.max_frame_size, self.channel_max, self.idle_s = max_frame_size, channel_max, idle_s
        self.container = self.hostname = ""
        self.properties: dict[Any, Any] | None = None
        self.offered_capabilities: Any = None
        self.remote_container = ""
        self.remote_properties: dict[Any, Any] = {}
        self.remote_max_frame_size = FRAME_BYTES_MIN
        self.remote_idle_s = 0.0
        self.remote_condition: Condition | None = None
        self.out = bytearray()
        self.opened = self.closed = False  # by us
        self.began = self.ended = False  # by the peer
        self.dirty: set[Session] = set()
        self.sessions: dict[int, Session] = {}  # by our channels
        self._remote: dict[int, Session] = {}
        self._greeted = self._header_said = self._failed = False
        self._start = b""
        self._frames = Frames(max(FRAME_BYTES_MIN, max_frame_size))
        self._ready: deque[Event] = deque()
        self.more = False  # `event` stopped at `frames_max`
        self._heard = self._spoke = False  # since the last tick
        self._heard_at = self._spoke_at = -1.0

    # from who uses it

    def open(self) -> None:
        """Say who we are."""
        if self.opened:
            return
        self.opened = True
        self._greet()
        said: list[Any] = [
            self.container, self.hostname or None, Uint(self.max_frame_size),
            Ushort(self.channel_max), Uint(int(self.idle_s * 500)) if self.idle_s else None, None,
            None, self.offered_capabilities, None, self.properties]
        if not self.perform(OPEN, said):
            self.perform(OPEN, said[:_NEEDED])

    def session(self) -> Session:
        """A new one of ours, to be opened."""
        channel = next(each for each in count() if each not in self.sessions)
        made = self.sessions[channel] = Session(self, channel)
        return made

    def close(self, condition: Condition | None = None) -> None:
        """End it. What was said before goes out before."""
        if self.closed:
            return
        self.open()
        self._flush()
        self.closed = True
        self.perform(CLOSE, [error(within(condition, self.peer_takes))])

    @property
    def finished(self) -> bool:
        """Nothing more is written; the line may be closed when all is sent."""
        return self._failed or (self.closed and self.ended)

    @property
    def unsent(self) -> int:
        """Bytes that go out whatever the peer says: it has only to read them."""
        return len(self.out)

    @property
    def pending(self) -> int:
        """Bytes that wait to go out, those included that wait for a window."""
        waiting = len(self.out)
        for each in self.sessions.values():
            waiting += each.waiting_bytes
        return waiting

    def take(self) -> bytes:
        """What is to be sent now."""
        if self.dirty:
            self._flush()
        if not self.out:
            return b""
        self._spoke = True
        out, self.out = bytes(self.out), bytearray()
        return out

    def tick(self, now: float) -> None:
        """Time passes; `now` in seconds of a clock that is not set. What was sent or heard since
        the last one counts as sent and heard now."""
        if self._heard or self._heard_at < 0:
            self._heard, self._heard_at = False, now
        elif self.idle_s and now - self._heard_at > self.idle_s and not self.finished:
            self._fail("amqp:resource-limit-exceeded", "local-idle-timeout expired")
        if self._spoke or self._spoke_at < 0:
            self._spoke, self._spoke_at = False, now
        elif (self.remote_idle_s and now - self._spoke_at >= self.remote_idle_s / 2
              and self.opened and not self.closed):
            amqp_sending.empty(self.out)
            self._spoke_at = now

    # from the line

    def receive(self, data: bytes) -> None:
        """Bytes came; `event` looks at them."""
        self._heard = True
        if self._failed or self.ended:
            return
        if not self._greeted:
            data, self._start = self._start + data, b""
            if len(data) < len(HEADER) and HEADER.startswith(data):
                self._start = data
                return
            self._greeted = True
            if not data.startswith(HEADER):
                self._no_amqp()
                return
            self._greet()  # some clients wait for it before they say who they are (uAMQP)
            data = data[len(HEADER) :]
        if data:
            self._frames.feed(data)

    def hears(self) -> None:
        """The peer counts as heard now: who reads its bytes has let them wait."""
        self._heard = True

    def event(self, frames_max: int = -1) -> Event | None:
        """The next one; None: there is none until more comes, or (`more`) so many frames meant
        nothing and what follows was not looked at."""
        frame, left = self._frames, frames_max
        self.more = False
        try:
            while not self._ready:
                if self._failed or self.ended:
                    return None
                if not left:
                    self.more = True
                    return None
                left -= 1
                if not frame.next():
                    return None
                if frame.code in _FREQUENT and self.began and not self.closed:  # as `_frame` would
                    session = self._remote.get(frame.channel)
                    if session is not None and not session.closed:
                        if frame.code == TRANSFER:
                            arrived = session.arrived(frame)
                            if isinstance(arrived, Run):
                                first = arrived.deliveries[0]
                                return Event(_CAME, session, first.link, run=arrived)
                            if arrived is not None:
                                return Event(_ARRIVED, session, arrived.link, arrived)
                        elif frame.code == FLOW:
                            link = session.flowed(frame)
                            if link is not None:
                                return Event(_FLOWED, session, link)
                        else:
                            for said in session.disposed(frame):
                                if not said[0].link.closed:
                                    self._ready.append(
                                        Event(_SAID, session, said[0].link, said=said))
                        continue
                self._frame(frame)
        except Malformed as wrong:
            self._fail(wrong.condition, str(wrong))
        return self._ready.popleft() if self._ready else None

    # within

    @property
    def peer_takes(self) -> int:
        """Bytes of a frame; what it did not say yet does not bind."""
        return self.remote_max_frame_size if self.began else _NO_LIMIT

    def perform(self, code: int, fields: list[Any], channel: int = 0) -> bool:
        """A frame that is not a transfer. False: the peer does not take so large a one, and nothing
        was said."""
        begins = len(self.out)
        amqp_sending.performative(self.out, channel, code, fields)
        if len(self.out) - begins > self.peer_takes:
            del self.out[begins:]
            return False
        return True

    def gone(self, session: Session) -> None:
        """One side has ended it; its channels are free when both have."""
        self.dirty.discard(session)
        if session.closed and (session.ended or not session.began):
            self.sessions.pop(session.channel, None)

    def _greet(self) -> None:
        if not self._header_said:
            self._header_said = True
            self.out += HEADER

    def _flush(self) -> None:
        while self.dirty and not self.closed:
            self.dirty.pop().flush()

    def _no_amqp(self) -> None:
        """Our header goes, and nothing more: the peer would not understand it."""
        self._greet()
        self.opened = self.closed = True
        self._fail(_FRAMING, "it does not begin as AMQP 1.0 does")

    def _fail(self, condition: str, reason: str) -> None:
        if self._failed:
            return
        said = Condition(condition, reason)
        self.close(said)
        self._failed = True
        self._ready.append(Event(Kind.FAILED, condition=said))

    def _frame(self, frame: Frames) -> None:
        code = frame.code
        if code < 0:
            return
        if not self.began:
            if code != OPEN:
                raise Malformed("a connection begins with open", "amqp:not-allowed")
            self._came(frame.fields or [])
        elif code == CLOSE:
            self.ended = True
            fields = frame.fields or []
            self.remote_condition = condition_of(fields[0] if fields else None)
            self._ready.append(Event(Kind.CLOSED, condition=self.remote_condition))
        elif self.closed:
            return  # what was on its way
        elif code == BEGIN:
            self._begun(frame.channel, frame.fields or [])
        elif code == OPEN:
            raise Malformed("a second open", "amqp:not-allowed")
        elif frame.channel not in self._remote:
            raise Malformed("a frame on a channel without a session", "amqp:not-allowed")
        else:
            self._of_session(self._remote[frame.channel], code, frame)

    def _came(self, fields: list[Any]) -> None:
        self.began = True
        self.remote_container = str(field(fields, 0, str, ""))
        size = int(field(fields, 2, Uint, _NO_LIMIT))
        if size < FRAME_BYTES_MIN:
            raise Malformed("frames have 512 bytes at least", "amqp:invalid-field")
        self.remote_max_frame_size = min(size, 1 << 20)
        self.remote_idle_s = int(field(fields, 4, Uint, 0)) / 1000
        self.remote_properties = field(fields, 9, dict, {})
        self._ready.append(Event(Kind.OPENED))

    def _begun(self, channel: int, fields: list[Any]) -> None:
        if channel > self.channel_max:
            raise Malformed("a channel over channel-max", _FRAMING)
        if channel in self._remote:
            raise Malformed("a channel has a session", "amqp:not-allowed")
        ours = field(fields, 0, Ushort, None)
        if ours is None:
            session = self.session()
        else:
            known = self.sessions.get(int(ours))
            if known is None or known.began or not known.opened:
                raise Malformed("an answer to no session of ours", "amqp:not-allowed")
            session = known
        session.began, session.remote_channel = True, channel
        session.next_incoming = int(field(fields, 1, Uint, 0))
        session.remote_window = int(field(fields, 2, Uint, 0))
        self._remote[channel] = session
        self._ready.append(Event(Kind.BEGUN, session))

    def _of_session(self, session: Session, code: int, frame: Frames) -> None:
        if code == END:
            session.ended = True
            del self._remote[frame.channel]
            fields = frame.fields or []
            session.remote_condition = condition_of(fields[0] if fields else None)
            self.gone(session)
            self._ready.append(Event(Kind.ENDED, session, condition=session.remote_condition))
        elif session.closed:
            return
        elif code == ATTACH:
            link = attached(session, frame.fields or [])
            self._ready.append(Event(Kind.ATTACHED, session, link))
        elif code == DETACH:
            link, closed = detached(session, frame.fields or [])
            self._ready.append(Event(Kind.DETACHED, session, link, closed=closed,
                                     condition=link.remote_condition))
