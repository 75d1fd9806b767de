"""Sessions: windows, handles, ids of deliveries (ISO 19464 part 2, 2.5).

The incoming window is in frames: so many as `capacity` bytes have room for, less those whose bytes
nobody took yet; so a peer whose bytes wait costs that much memory. Who sends beyond it is ended.

Invariants: 1. a frame goes out only for a place in the peer's window; what finds none waits in
order (`waiting`), and is counted; 2. dispositions that were collected go before any other frame of
the session that is not a transfer.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from omq.amqp.delivery import Incoming, Outgoing, Run
from omq.amqp.links import MASK, Link, Receiver, Sender, flow_frame
from omq.amqp.states import Condition, error, fitted, within
from omq.fast import amqp_sending
from omq.fast.amqp_sending import disposition
from omq.format.amqp_performatives import BEGIN, END, RECEIVED
from omq.format.amqp_types import Malformed, Uint, Ushort

if TYPE_CHECKING:
    from omq.amqp.connection import Connection
    from omq.fast.amqp_frames import Frames

VIOLATION: Final = "amqp:session:window-violation"
_WINDOW_MIN: Final = 2
RUN_MAX: Final = 100
"""Deliveries of a run: what their reader makes of them is in memory at once."""
_STATE_BYTES: Final = 256
"""A state of so many fits any frame."""


class Session:
    """Of one connection."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection, self.channel = connection, channel
        self.remote_channel = -1
        self.opened = self.closed = self.began = self.ended = False
        self.next_outgoing = self._next_delivery = 0
        self.next_incoming = -1
        self.remote_window = 0
        self.window = self._window_max = 0
        self._unread = 0
        self.handles: dict[int, Link] = {}  # ours
        self.remote_handles: dict[int, Link] = {}
        self.named: dict[tuple[str, bool], Link] = {}  # those whose answer is to come
        self.incoming: dict[int, Incoming] = {}
        self.outgoing: dict[int, Outgoing] = {}
        self.waiting: deque[tuple[Outgoing, bytes, int, bool]] = deque()
        self.waiting_bytes = 0
        self.to_say: list[Receiver] = []
        self._first = self._last = -1  # of the disposition that is collected
        self._said: tuple[bool, bytes] = (True, b"")
        self.remote_condition: Condition | None = None

    # from who uses it

    def open(self, capacity: int, handle_max: int = MASK) -> None:
        """`capacity`: bytes that may wait to be taken."""
        if self.opened:
            return
        self.opened = True
        self._window_max = max(_WINDOW_MIN, capacity // self.connection.max_frame_size)
        self.window = self._window_max
        self.perform(BEGIN, [
            Ushort(self.remote_channel) if self.remote_channel >= 0 else None,
            Uint(self.next_outgoing), Uint(self.window), Uint(MASK >> 1), Uint(handle_max)])

    def close(self, condition: Condition | None = None) -> None:
        if not self.closed:
            self.perform(END, [error(within(condition, self.connection.peer_takes))])
            self.closed = True
            self.connection.gone(self)

    def receiver(self, name: str) -> Receiver:
        """A link of ours, to be opened."""
        made = self.named[name, True] = Receiver(self, name)
        return made

    def sender(self, name: str) -> Sender:
        made = self.named[name, False] = Sender(self, name)
        return made

    # of links

    def take_handle(self, link: Link) -> int:
        """The lowest that is free."""
        handle = len(self.handles)
        if handle in self.handles:  # one before it is free
            handle = next(each for each in count() if each not in self.handles)
        self.handles[handle] = link
        return handle

    def perform(self, code: int, fields: list[Any]) -> bool:
        """A frame that is not a transfer. False: the peer does not take so large a one, and nothing
        was said."""
        self._flush_said()
        return self.connection.perform(code, fields, self.channel)

    def flow_of(self, link: Link, credit: int, *, drain: bool) -> None:
        self._flush_said()
        flow_frame(self.connection.out, self, link.handle, link.delivery_count, credit,
                   drain=drain)

    def read(self, frames: int) -> None:
        """So many frames' bytes were taken."""
        self._unread -= frames
        if self.window * 2 <= self._window_max:
            self.connection.dirty.add(self)

    def gone(self, link: Link) -> None:
        """One side has detached it: what is under way on it is forgotten; its handle is free when
        both have."""
        if isinstance(link, Receiver):
            while link.unread:
                self.read(len(link.unread.popleft().chunks))
            link.coming = None
            self.incoming = {key: each for key, each in self.incoming.items()
                             if each.link is not link}
        else:
            self.outgoing = {key: each for key, each in self.outgoing.items()
                             if each.link is not link}
            if any(each[0].link is link for each in self.waiting):
                self.waiting = deque(each for each in self.waiting if each[0].link is not link)
                self.waiting_bytes = sum(len(each[1]) - each[2] for each in self.waiting)
        if link.closed and (link.detached or not link.attached) and link.handle in self.handles:
            del self.handles[link.handle]

    def begun(self, delivery: Outgoing) -> None:
        """Its first transfer goes now."""
        delivery.id = self._next_delivery
        self._next_delivery = self._next_delivery + 1 & MASK
        if not delivery.settled:
            self.outgoing[delivery.id] = delivery

    def transfer(self, delivery: Outgoing, data: bytes, *, more: bool) -> None:
        if self.waiting:
            self.waiting.append((delivery, data, 0, more))
            self.waiting_bytes += len(data)
        else:
            self._send(delivery, data, 0, more=more)

    def send_whole(self, delivery: Outgoing, data: bytes) -> None:
        """`begun` and `transfer` of one that is whole."""
        if self.waiting or self.remote_window <= 0:
            self.begun(delivery)
            self.transfer(delivery, data, more=False)
            return
        delivery.id = number = self._next_delivery
        self._next_delivery = number + 1 & MASK
        if not delivery.settled:
            self.outgoing[number] = delivery
        self.remote_window -= 1
        self.next_outgoing = self.next_outgoing + 1 & MASK
        connection, more = self.connection, False
        at = amqp_sending.transfer(
            connection.out, self.channel, delivery.link.handle, number, delivery.tag,
            delivery.settled, more, data, 0, connection.remote_max_frame_size)
        if at < len(data):
            self._send(delivery, data, at, more=more)

    def _send(self, delivery: Outgoing, data: bytes, at: int, *, more: bool) -> None:
        connection = self.connection
        while self.remote_window > 0:
            self.remote_window -= 1
            self.next_outgoing = self.next_outgoing + 1 & MASK
            at = amqp_sending.transfer(
                connection.out, self.channel, delivery.link.handle, delivery.id, delivery.tag,
                delivery.settled, more, data, at, connection.remote_max_frame_size)
            if at >= len(data):
                return
        self.waiting.appendleft((delivery, data, at, more))
        self.waiting_bytes += len(data) - at

    def abort(self, delivery: Outgoing) -> None:
        self.waiting = deque(each for each in self.waiting if each[0] is not delivery)
        self.waiting_bytes = sum(len(each[1]) - each[2] for each in self.waiting)
        self.outgoing.pop(delivery.id, None)
        self.next_outgoing = self.next_outgoing + 1 & MASK
        self.remote_window = max(0, self.remote_window - 1)
        amqp_sending.abort(self.connection.out, self.channel, delivery.link.handle, delivery.id)

    def settled_here(self, delivery: Incoming | Outgoing, *, receives: bool, state: bytes) -> None:
        table: dict[int, Any] = self.incoming if receives else self.outgoing
        if table.get(delivery.id) is not delivery:
            return
        del table[delivery.id]
        if delivery.settled or self.closed:
            return
        if (self._first >= 0 and self._said == (receives, state)
                and delivery.id == (self._last + 1 & MASK)):
            self._last = delivery.id
            return
        self._flush_said()
        self._first = self._last = delivery.id
        self._said = receives, state
        self.connection.dirty.add(self)

    def settled_run(self, deliveries: list[Incoming], state: bytes) -> None:
        """As `say` of each of these in turn, which came over one session."""
        table = self.incoming
        for each in deliveries:
            each.over, number = True, each.id
            if table.get(number) is not each:
                continue
            del table[number]
            if each.settled or self.closed:
                continue
            if (number == (self._last + 1 & MASK) and self._first >= 0
                    and self._said == (True, state)):
                self._last = number
                continue
            self._flush_said()
            self._first = self._last = number
            self._said = True, state
            self.connection.dirty.add(self)

    def _flush_said(self) -> None:
        if self._first >= 0:
            receives, state = self._said
            if len(state) > _STATE_BYTES:
                state = fitted(state, self.connection.peer_takes)
            disposition(self.connection.out, self.channel, receives, self._first, self._last, state)
            self._first = -1

    def flush(self) -> None:
        """Say what was collected."""
        if self.closed:
            return
        self._flush_said()
        links, self.to_say = self.to_say, []
        room = max(0, self._window_max - self._unread)
        if self.window * 2 <= self._window_max and room > self.window:
            self.window = room
            if not links:
                flow_frame(self.connection.out, self, -1, -1, 0, drain=False)
        for link in links:
            link.say_flow()

    # from the peer

    def flowed(self, frame: Frames) -> Sender | Receiver | None:
        """A flow; the link that it is about."""
        began = 0 if frame.next_incoming < 0 else frame.next_incoming
        room = began + frame.incoming_window - self.next_outgoing & MASK
        self.remote_window = room if self.next_outgoing - began & MASK <= frame.incoming_window \
            else 0
        while self.waiting and self.remote_window > 0:
            delivery, data, at, more = self.waiting.popleft()
            self.waiting_bytes -= len(data) - at
            self._send(delivery, data, at, more=more)
        link = self.remote_handles.get(frame.handle) if frame.handle >= 0 else None
        if frame.handle >= 0 and link is None:
            raise Malformed("a flow of no link", "amqp:session:unattached-handle")
        found = link if isinstance(link, Sender | Receiver) and not link.closed else None
        if isinstance(found, Sender):
            found.flowed(frame.delivery_count, frame.credit, drain=frame.drain == 1)
        elif found is not None:
            found.flowed(frame.delivery_count)
        if frame.echo == 1 and not self.closed:
            self._flush_said()
            if found is None or not found.opened:
                flow_frame(self.connection.out, self, -1, -1, 0, drain=False)
            else:
                self.flow_of(found, found.credit, drain=isinstance(found, Sender) and found.drain)
        return found

    def arrived(self, frame: Frames) -> Incoming | Run | None:
        """A transfer; the delivery that it is of, or the run that begins with it. None: of a link
        that we have ended."""
        if self.window <= 0:
            raise Malformed("more came than the window of the session", VIOLATION)
        self.window -= 1
        self.next_incoming = self.next_incoming + 1 & MASK
        link = self.remote_handles.get(frame.handle)
        if not isinstance(link, Receiver):
            raise Malformed("a transfer on no link", "amqp:session:unattached-handle")
        if link.closed:
            self.read(0)
            return None
        found = link.coming
        if (0 < len(frame.payload) <= link.run_bytes_max and found is None and not link.unread
                and link.credit > 0 and frame.more != 1 and frame.aborted != 1):
            return self._run(link, frame)
        if found is None:
            found = self._new(link, frame)
        elif frame.delivery_id >= 0 and frame.delivery_id != found.id:
            raise Malformed("a delivery begins in the middle of another", "amqp:not-allowed")
        if frame.settled == 1:
            found.settled = True
        if frame.outcome >= 0:
            found.outcome, found.fields = frame.outcome, frame.state
        if frame.aborted == 1:
            self._aborted(link, found)
        else:
            found.chunks.append(frame.payload)
            self._unread += 1
            if frame.more != 1:
                found.partial, link.coming = False, None
        return found

    def _run(self, link: Receiver, frame: Frames) -> Run:
        """Its first transfer was counted already. Nothing in it lets its reader end the link: there
        is credit for all of it, and all of it is small."""
        self._check_new(frame)
        number, settled = frame.delivery_id, frame.settled == 1
        outcome, fields = frame.outcome, frame.state
        most = 1 if outcome >= 0 else min(RUN_MAX, link.credit, self.window + 1)
        tags, payloads = frame.run(most, link.run_bytes_max, self.incoming)
        count, deliveries = len(tags), []
        for tag in tags:
            found = self.incoming[number] = Incoming(link, number, tag)
            found.partial, found.settled = False, settled
            deliveries.append(found)
            number = number + 1 & MASK
        if outcome >= 0:
            deliveries[0].outcome, deliveries[0].fields = outcome, fields
        link.credit -= count
        link.delivery_count = link.delivery_count + count & MASK
        self.window -= count - 1
        self.next_incoming = self.next_incoming + count - 1 & MASK
        self.read(0)
        return Run(deliveries, payloads, settled)

    def _check_new(self, frame: Frames) -> None:
        if frame.delivery_id < 0 or frame.tag is None:
            raise Malformed("a delivery has neither a number nor a tag")
        if frame.delivery_id in self.incoming:
            raise Malformed("two deliveries have one number", "amqp:not-allowed")

    def _new(self, link: Receiver, frame: Frames) -> Incoming:
        self._check_new(frame)
        assert frame.tag is not None
        link.credit -= 1
        link.delivery_count = link.delivery_count + 1 & MASK
        found = link.coming = Incoming(link, frame.delivery_id, frame.tag)
        link.unread.append(found)
        self.incoming[found.id] = found
        return found

    def _aborted(self, link: Receiver, found: Incoming) -> None:
        self.read(len(found.chunks))
        found.chunks.clear()
        found.aborted, found.partial, link.coming = True, False, None
        found.settled = True
        if link.unread and link.unread[-1] is found:
            link.unread.pop()

    def disposed(self, frame: Frames) -> list[list[Outgoing]]:
        """What of a range has a new state, or is settled: neighbours of one link together. RECEIVED
        is a state for a link that is resumed, which is not there: it says nothing, and is
        forgotten."""
        if frame.settled != 1 and (frame.outcome < 0 or frame.outcome == RECEIVED):
            return []
        first, last = frame.delivery_id, frame.last_id
        table: dict[int, Any] = self.outgoing if frame.role == 1 else self.incoming
        ids: list[int]
        if first == last:
            ids = [first]
        elif (last - first & MASK) < len(table):
            ids = [each & MASK for each in range(first, first + (last - first & MASK) + 1)]
        else:
            ids = [each for each in table if (each - first & MASK) <= (last - first & MASK)]
        found: list[list[Outgoing]] = []
        link: Sender | None = None
        for each in ids:
            delivery = table.get(each)
            if delivery is None:
                continue
            if frame.outcome >= 0:
                delivery.outcome, delivery.fields = frame.outcome, frame.state
            if frame.settled == 1:
                delivery.settled = True
                if frame.role == 1:
                    delivery.over = True
                    del table[each]
            if frame.role == 1:
                if delivery.link is not link:
                    link = delivery.link
                    found.append([])
                found[-1].append(delivery)
        return found
