"""Links: what both sides say of them, and their credit (ISO 19464 part 2, 2.6).

Invariants: 1. a Sender writes a delivery's first transfer only for credit that its peer gave; what
is without is kept until there is some, or the link ends; 2. counts are 32 bits, and wrap; 3.
nothing is sent for a link after its detach.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from omq.amqp.delivery import Incoming, Outgoing
from omq.amqp.states import FRAME_TOO_SMALL, Condition, error, within
from omq.amqp.terminus import Terminus, terminus
from omq.amqp.whole_values import decoded
from omq.fast.amqp_sending import flow
from omq.format.amqp_performatives import ATTACH, DETACH, SOURCE, TARGET
from omq.format.amqp_types import Malformed, Ubyte, Uint, Ulong

if TYPE_CHECKING:
    from omq.amqp.session import Session

MASK = 0xFFFFFFFF
SECOND = 1
"""Receiver settle mode: it settles when the sender has."""
UNSETTLED, SETTLED, MIXED = range(3)


class Link:
    """Of either kind; `remote_*` is what the peer says."""

    receives: bool

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.handle = self.remote_handle = -1
        self.opened = self.closed = False  # by us
        self.attached = self.detached = False  # by the peer
        self.source: Terminus | None = None
        self.target: Terminus | None = None
        self.properties: dict[Any, Any] | None = None
        self.max_message_size = 0
        self.remote_max_message_size = 0
        self.remote_condition: Condition | None = None
        self.snd_settle_mode, self.rcv_settle_mode = MIXED, 0
        self.remote_snd_settle_mode = MIXED
        self.delivery_count = 0
        self.remote_source, self.remote_target = Terminus(SOURCE, []), Terminus(TARGET, [])
        self.remote_properties: dict[Any, Any] = {}
        self._raw: tuple[bytes, bytes, bytes] = (b"", b"", b"")
        self.said_bytes = 0  # of what the peer says that is kept

    def read(self) -> None:
        """What the peer says of both ends and of itself, into `remote_source`, `remote_target`,
        `remote_properties`. Malformed: nothing that can be read."""
        source, target, properties = self._raw
        self.remote_source = terminus(source, SOURCE) or Terminus(SOURCE, [])
        self.remote_target = terminus(target, TARGET) or Terminus(TARGET, [])
        found = decoded(properties) if properties else None
        if found is not None and not isinstance(found, dict):
            raise Malformed("properties of a link are a map")
        self.remote_properties = found or {}

    def forget(self) -> None:
        """What the peer said of it is not needed any more."""
        self._raw, self.remote_properties = (b"", b"", b""), {}
        self.source = self.target = None
        self.remote_source, self.remote_target = Terminus(SOURCE, []), Terminus(TARGET, [])

    def came(self, fields: list[Any]) -> None:
        """The attach of the peer. Malformed."""
        self.attached = True
        self.remote_handle = int(field(fields, 1, Uint, -1))
        self.remote_snd_settle_mode = int(field(fields, 3, Ubyte, MIXED))
        self._raw = (field(fields, 5, bytes, b""), field(fields, 6, bytes, b""),
                     field(fields, 13, bytes, b""))
        self.said_bytes = len(self.name) + sum(map(len, self._raw))
        if self.receives:
            self.delivery_count = int(field(fields, 9, Uint, 0))
        self.remote_max_message_size = int(field(fields, 10, Ulong, 0))

    def open(self) -> None:
        """Say what was set. What does not fit a frame that the peer takes ends the link, or the
        session, if not even its name does."""
        if self.opened or self.session.closed:
            return
        self.opened = True
        self.handle = self.session.take_handle(self)
        said: list[Any] = [
            self.name, Uint(self.handle), self.receives, Ubyte(self.snd_settle_mode),
            Ubyte(self.rcv_settle_mode), self.source.value() if self.source else None,
            self.target.value() if self.target else None, None, None,
            None if self.receives else Uint(self.delivery_count),
            Ulong(self.max_message_size) if self.max_message_size else None, None, None,
            self.properties]
        if self.session.perform(ATTACH, said):
            return
        too_small = Condition(FRAME_TOO_SMALL, "the attach of this link does not fit a frame of "
                              "max-frame-size")
        for place in (5, 6, 13):  # source, target, properties: then it is refused, as 2.6.3 has it
            said[place] = None
        if self.session.perform(ATTACH, said):
            self.close(too_small)
        else:
            self.session.close(too_small)

    def close(self, condition: Condition | None = None) -> None:
        """End it, saying why."""
        self._detach(condition, closed=True)

    def detach(self) -> None:
        self._detach(None, closed=False)

    def _detach(self, condition: Condition | None, *, closed: bool) -> None:
        if self.closed:
            return
        self.open()
        self.closed = True
        if not self.session.closed:
            self.session.perform(DETACH, [
                Uint(self.handle), closed or None,
                error(within(condition, self.session.connection.peer_takes))])
        self.session.gone(self)


class Receiver(Link):
    """Deliveries come."""

    receives = True

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session, name)
        self.credit = 0
        self.drains = False
        self.said = True
        self.unread: deque[Incoming] = deque()
        self.coming: Incoming | None = None
        self.run_bytes_max = 0  # of a message that may come in a run; 0: none does

    @property
    def current(self) -> Incoming | None:
        """The first one whose bytes were not taken."""
        return self.unread[0] if self.unread else None

    def recv(self) -> bytes:
        """Bytes of the current one that came; empty: none more now."""
        if not self.unread:
            return b""
        chunks = self.unread[0].chunks
        if not chunks:
            return b""
        self.session.read(1)
        return chunks.pop(0) if len(chunks) > 1 else chunks.pop()

    def advance(self) -> None:
        """The current one has been taken."""
        if self.unread:
            self.session.read(len(self.unread.popleft().chunks))

    def flow(self, more: int) -> None:
        """Give credit for so many more."""
        self.credit += more
        self._tell()

    def _tell(self) -> None:
        if self.said:
            self.said = False
            self.session.to_say.append(self)
            self.session.connection.dirty.add(self.session)

    def say_flow(self) -> None:
        """Once for all that was given since."""
        self.said = True
        if not self.closed and self.opened:
            self.session.flow_of(self, max(0, self.credit), drain=self.drains)

    def flowed(self, delivery_count: int) -> None:
        """Its sender says how far it is: credit that it will not use has gone."""
        if delivery_count >= 0:
            passed = delivery_count - self.delivery_count & MASK
            if 0 < passed <= self.credit:
                self.credit -= passed
                self.delivery_count = delivery_count


class Sender(Link):
    """Deliveries go."""

    receives = False

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session, name)
        self.link_credit = 0
        self.drain = False
        self.held: deque[tuple[Outgoing, bytes, bool]] = deque()
        self._holds = 0  # deliveries that have not begun

    @property
    def credit(self) -> int:
        """For how many more there is some."""
        credit = self.link_credit - self._holds
        return credit if credit > 0 else 0

    def delivery(self, tag: bytes, *, settled: bool = False) -> Outgoing:
        return Outgoing(self, tag, settled=settled)

    def write(self, delivery: Outgoing, data: bytes, *, more: bool = False) -> None:
        """Bytes of one; without `more` it is whole."""
        session = self.session
        if self.closed or delivery.aborted or session.closed:
            return
        if not (more or self.held or delivery.started) and self.link_credit:
            delivery.started = True
            self.link_credit -= 1
            self.delivery_count = self.delivery_count + 1 & MASK
            session.send_whole(delivery, data)
            return
        if self.held or (not delivery.started and not self.link_credit):
            self._holds += not delivery.started and all(
                each[0] is not delivery for each in self.held)
            self.held.append((delivery, data, more))
            return
        self._go(delivery, data, more=more)

    def _go(self, delivery: Outgoing, data: bytes, *, more: bool) -> None:
        if not delivery.started:
            delivery.started = True
            self.link_credit -= 1
            self.delivery_count = self.delivery_count + 1 & MASK
            self.session.begun(delivery)
        self.session.transfer(delivery, data, more=more)

    def abort(self, delivery: Outgoing) -> None:
        """It does not come to its end."""
        if delivery.aborted or self.closed:
            return
        delivery.aborted = delivery.over = True
        if not delivery.started:
            self._holds -= any(each[0] is delivery for each in self.held)
            self.held = deque(each for each in self.held if each[0] is not delivery)
        else:
            self.held = deque(each for each in self.held if each[0] is not delivery)
            self.session.abort(delivery)

    def flowed(self, delivery_count: int, credit: int, *, drain: bool) -> None:
        """Its receiver gives credit, counted from where it is."""
        count = self.delivery_count
        seen = count if delivery_count < 0 else delivery_count
        credit = max(0, credit)  # -1: it gives none
        self.link_credit = seen + credit - count & MASK if count - seen & MASK <= credit else 0
        self.drain = drain
        while self.held and (self.held[0][0].started or self.link_credit):
            delivery, data, more = self.held.popleft()
            self._holds -= not delivery.started
            self._go(delivery, data, more=more)

    def drained(self) -> None:
        """Nothing more is there for the credit that is left: it is used up."""
        if not self.drain or self.closed:
            return
        self.delivery_count = self.delivery_count + self.link_credit & MASK
        self.link_credit = 0
        self.session.flow_of(self, 0, drain=True)


def field(fields: list[Any], place: int, kind: Any, default: Any) -> Any:
    """Of a performative that came. Malformed: it is of another type."""
    found = fields[place] if place < len(fields) else None
    if found is not None and not isinstance(found, kind):
        raise Malformed("a field is of another type")
    return default if found is None else found


def flow_frame(out: bytearray, session: Session, handle: int, count: int, credit: int, *,
               drain: bool) -> None:
    """Of a session, and of a link of it where `handle` is one."""
    flow(out, session.channel, session.next_incoming, session.window, session.next_outgoing,
         MASK >> 1, handle, count, credit, drain)
