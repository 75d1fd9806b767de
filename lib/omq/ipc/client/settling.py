"""What a reader has in its hands and how the work on it ended: the settlements that no request has
carried yet, and the note of them (fast.reader_note, ADR 0035). omq.ipc.client.reader says when they
travel.

Invariants: 1. a settlement is kept until the manager has answered the request that carries it; 2. a
message is being processed from when the program begins with it until it is settled, and the note
says so before the program runs on.

Errors: LeaseLost, ConnectionForked; those of the link.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from omq.base import limits
from omq.base.errors import ConnectionForked, LeaseLost
from omq.fast.handed_messages import PROMPT_S, Facts, Hold, Record, in_child
from omq.fast.reader_note import Note
from omq.format.wire import SETTLE, Operation, Settlement
from omq.ipc.client.ids_asked import IdAsked
from omq.ipc.client.message import Message
from omq.ipc.client.parking_link import ParkingLink
from omq.ipc.client.touching import lease_lost, row_of
from omq.ipc.wire.exchange import Answer
from omq.ipc.wire.outgoing import Encoded

_SETTLE, _TOUCH = int(Operation.SETTLE), int(Operation.TOUCH)
_REASON_AT = SETTLE.offset("reason_at")
_BESIDE_MAX = 16  # settlements that go with a request: one, as a rule


def first_part(records: list[Record], room: int) -> list[Record]:
    """As many of the first ones as fit into a request of so many bytes, one at least."""
    for count, (_, text, _) in enumerate(records):
        room -= SETTLE.size + len(text)
        if room < 0 and count:
            return records[:count]
    return records


def area_of(records: list[Record]) -> tuple[bytes, int]:
    """The area of a request that carries these, and how much of it are their reasons."""
    rows = b"".join([row for row, _, _ in records])
    texts = b"".join([text for _, text, _ in records])
    area, at = bytearray(rows), 0
    for place, (_, text, _) in enumerate(records):  # those before them may have gone already
        start = place * SETTLE.size + _REASON_AT
        area[start : start + 4] = at.to_bytes(4, "little")
        at += len(text)
    return bytes(area) + texts, at


class Settling(Hold):
    """See the module. Of one reader; without a `note` nothing is known of it if it dies."""

    def __init__(self, link: ParkingLink, note: Note | None) -> None:
        super().__init__(note)
        self.lost = 0
        self._link = link
        self._sending: list[Record] = []  # not answered yet
        self._told = False  # the parked request carries some

    def _holding(self) -> list[tuple[int, int]]:
        settled = (message for _, _, message in (*self._records, *self._sending))
        return [(m.qpool_id, m.lease) for m in (*self._held.values(), *settled)]

    @property
    def in_hand(self) -> set[int]:
        """QPoolIds of what the manager takes for this reader's."""
        return {qpool for qpool, _ in self._holding()}

    def holds(self, message: Facts) -> bool:
        """Whether it is this reader's still, and nothing was said of it."""
        return self._holds(message)

    def have_moved(self, messages: Iterable[Facts]) -> None:
        """A request has carried the end of these."""
        for message in messages:
            self._held.pop(message.qpool_id, None)
        if self._note is not None:
            self._note.clear()
            self._say_again()

    def _holds(self, message: Facts) -> bool:
        """Whether nothing has been said of this message yet."""
        return self._held.get(message.qpool_id) is message

    def _record(self, kind: Settlement, message: Facts, argument: int = 0, reason: str = "",
                *, later: bool = False) -> None:
        """The work on a message ended: noted, and sent when it is time. LeaseLost when it is not
        held."""
        text = reason.encode("utf-8", "replace")[: limits.REASON_BYTES_MAX] if reason else b""
        if self.settled(message, kind, argument, text) and not later:
            self.flush()

    def _touch(self, message: Message, progress: bytes) -> None:
        """The work on a message goes on. LeaseLost when it is not held, MessageCancelled when it
        was taken away."""
        if in_child(self._maker):
            raise ConnectionForked(maker=self._maker, child=os.getpid())
        if not self._holds(message):
            raise LeaseLost(qpool_id=message.qpool_id)
        if self._link.request(_TOUCH, row_of(message, text=progress), count=1,
                              length=len(progress)).lost:
            raise lease_lost(self._link, message)

    def _room_beside(self, payload: int) -> bool:
        """Whether a message of so many bytes goes with what is recorded, in one request."""
        return (not self._text_bytes and len(self._records) < _BESIDE_MAX
                and SETTLE.size * len(self._records) + payload <= self._link.room)

    def flush(self) -> None:
        """Send what is recorded; what came too late is counted in `lost`."""
        if self._records:
            self._request(_SETTLE, 0, None, 0)

    def prompt(self) -> None:
        """`flush` when it is time for it: behind settlements that were gathered, if no request
        followed them."""
        if time.monotonic() - self._asked > PROMPT_S:
            self.flush()

    # the request

    def _request(self, operation: int, want: int, wait_s: float | None, argument: int,
                 wanted: IdAsked | None = None, new: Encoded | None = None) -> Answer:
        """Send what is recorded; it is kept until the answer is there. What does not fit into one
        request goes before it, in several: a reader may hold more than a channel has room for.
        `new`: a message that is put with it, for which there is room besides."""
        records = self._records
        try:
            data, length = self._gathered()
            if new is not None:
                answer = self._link.request(
                    operation, data + new.payload, priority=new.priority, flags=new.flags,
                    queue=new.queue, count=len(self._sending), length=len(new.payload),
                    size=new.size, crc=new.crc, correlation=new.correlation, want=want,
                    expiry=new.expiry, wait_s=wait_s, argument=argument)
            elif wanted is None:
                answer = self._link.request(
                    operation, data, count=len(self._sending), length=length, want=want,
                    wait_s=wait_s, argument=argument)
            else:
                answer = self._link.request(
                    operation, data, flags=wanted.by, count=len(self._sending), length=length,
                    correlation=wanted.key, size=wanted.entry, want=want, wait_s=wait_s,
                    argument=argument)
        except BaseException:
            self._not_answered()
            raise
        self._answered(answer, told=bool(records))
        return answer

    def _gathered(self) -> tuple[bytes, int]:
        """What is recorded as the area of a request, and how much of it are reasons."""
        length = self._text_bytes
        self._sending, self._records, self._text_bytes = self._records, [], 0
        self._asked = time.monotonic()
        while SETTLE.size * len(self._sending) + length > self._link.room:
            part = first_part(self._sending, self._link.room)
            data, texts = area_of(part)
            self.lost += self._link.request(_SETTLE, data, count=len(part), length=texts).lost
            self._sending, length = self._sending[len(part) :], length - texts
        if length:
            return area_of(self._sending)
        return b"".join([row for row, _, _ in self._sending]), 0

    def _not_answered(self) -> None:
        """Of these nobody has said that they are carried out."""
        self._records = [*self._sending, *self._records]
        self._text_bytes = sum(len(text) for _, text, _ in self._records)
        self._sending = []

    def _answered(self, answer: Answer, *, told: bool) -> None:
        self._sending = []
        if told and self._note is not None:
            self._note.clear()
            if self._also:
                self._say_again()
        self.lost += answer.lost

    # a request that is parked (ipc.client.parking)

    def _park(self, want: int) -> None:
        self._told = bool(self._records)
        try:
            data, length = self._gathered()
            self._link.park(data, len(self._sending), length, want)
        except BaseException:
            self._not_answered()
            raise

    def _collected(self, *, now: bool) -> Answer | None:
        try:
            answer = self._link.collect(now=now)
        except BaseException:
            self._not_answered()
            raise
        if answer is not None:
            self._answered(answer, told=self._told)
        return answer

    # the note

    def _set_aside(self, message: Message) -> None:
        """The program has looked into it, and does not work on it yet. The note may name it until
        the next request."""
        if message is self._work:
            self._work = None
            if self._note is not None:
                self._note.current(0)
        elif self._also.get(message.qpool_id) is message:
            del self._also[message.qpool_id]

    def _say_again(self) -> None:
        """The note of a new channel, or one that was cleared: what the old one said and still
        counts. What no longer fits is sent with the next request."""
        note = self._note
        if note is None:
            return
        note.listed(self._list)
        note.current(self._work.lease if self._work is not None else 0)
        self._also = {qpool: message for qpool, message in self._also.items()
                      if self._holds(message)}
        for message in self._also.values():
            note.also_in_work(message.entry, message.qpool_id, message.lease)
        for row, text, _ in (*self._sending, *self._records):
            note.settled(row, text)
