"""A link whose request for messages, or put, may be sent and left: its reply is fetched when the
manager rings (ipc.client.parking has what a program does with it).
"""

from __future__ import annotations

import select
import threading
import time
from dataclasses import dataclass

from omq.base.errors import ManagerUnavailable
from omq.format.journal import FRAME
from omq.format.wire import REPLY, REQUEST, REQUEST_MAGIC, VERSION, Operation
from omq.ipc.client.control_line import Lost
from omq.ipc.client.link import Link
from omq.ipc.client.registration import LOST
from omq.ipc.wire.exchange import Answer
from omq.ipc.wire.outgoing import Encoded

_NEXT, _PUT, _PUT_MANY = int(Operation.NEXT), int(Operation.PUT), int(Operation.PUT_MANY)
_FOR_EVER = -1


@dataclass(slots=True)
class _Parked:
    """The request under way: its area, and its numbers as `Link.request` has them."""

    data: bytes
    operation: int
    priority: int
    flags: int
    queue: int
    count: int
    length: int
    size: int = 0
    crc: int = 0
    correlation: int = 0
    want: int = 0
    argument: int = 0
    parts: int = 0
    expiry: int = 0
    sent: bool = False


class ParkingLink(Link):
    """A link whose requests for messages may be parked. The connection's lock is held from
    `begin` to the end of `finish`."""

    _parked: _Parked | None = None

    @property
    def descriptor(self) -> int:
        """What can be read when there is news of the parked request; -1: the manager is away."""
        return -1 if self._line is None else self._line.descriptor

    def rings_within(self, wait_ms: int) -> bool:
        """Whether there is news of the parked request within so many milliseconds."""
        waits = select.poll()
        waits.register(self.descriptor, select.POLLIN)
        return bool(waits.poll(wait_ms))

    def hear(self) -> bool:
        """Read away the bells of requests that were waited for: nobody looks for them. False: the
        manager has gone, which the next request meets."""
        if self._line is None:
            return False
        try:
            self._line.rang(-1)  # of no request: all that is there is read
        except (Lost, OSError):
            return False
        return True

    @property
    def on_its_way(self) -> bool:
        """The parked request was sent; else `collect` does it, and may have to wait for that."""
        return self._parked is not None and self._parked.sent

    def at_once(self) -> Answer | None:
        """The answer, if it is there and a good one; this never waits. None: `collect` may have it,
        or meets what has happened."""
        parked, gate, line = self._parked, self._gate, self._line
        if parked is None or not parked.sent or gate is None or line is None or gate.marks:
            return None
        try:
            if not line.rang(self._sequence):
                return None
        except (Lost, OSError):
            return None
        (magic, status, lost, answered, number, _, qpool, lsn, epoch, _
         ) = REPLY.unpack_from(self.reply)
        if (status or answered != self._sequence or magic != REQUEST_MAGIC or epoch != self.epoch
                or not gate.wait()):  # raised before the bell; a mark was left at this moment
            return None
        self._parked = None
        self._busy.release()
        return Answer(number, qpool, lsn, lost)

    def park(self, data: bytes, count: int, length: int, want: int) -> None:
        """Send a request for messages that waits for ever. This never waits: while the request
        queue is full nothing is sent."""
        self._park(_Parked(data, _NEXT, 0, 0, 0, count, length, want=want, argument=_FOR_EVER))

    def park_put(self, data: bytes, one: Encoded | None, queue: int, count: int) -> None:
        """Send a put, of `one` or of a batch on a queue. It does not wait either."""
        if one is None:
            self._park(_Parked(data, _PUT_MANY, 0, 0, queue, count, len(data) - FRAME.size * count))
        else:
            self._park(_Parked(data, _PUT, one.priority, one.flags, queue, 1, len(data), one.size,
                               one.crc, one.correlation, one.key, 0, one.parts, one.expiry))

    def _park(self, parked: _Parked) -> None:
        self._enter()
        self._sequence += 1
        self._parked = parked
        try:
            self._resent(parked, patient=False)
        except (Lost, OSError, *LOST):
            pass  # `collect` meets it
        except BaseException:
            self._leave()
            raise

    def _resent(self, parked: _Parked, *, patient: bool = True) -> None:
        if self._gate is None:
            raise Lost("not registered")
        self._put_down(parked.data)
        head = REQUEST.pack(
            parked.operation, parked.priority, parked.flags, parked.queue, parked.count,
            self._client, parked.length, self._token, self._sequence, parked.size, parked.crc,
            REQUEST_MAGIC, VERSION, parked.correlation, parked.want, parked.argument, 0,
            parked.parts, 0, parked.expiry)
        if patient:
            self._send(head)
        elif not self._sent_now(head):
            return
        parked.sent = True

    def _leave(self) -> None:
        self._parked = None
        self._busy.release()

    def collect(self, *, now: bool) -> Answer | None:
        """The answer; None: it is not there yet. `now`: it is waited for, and the manager is asked
        to end its own wait for messages."""
        parked = self._parked
        assert parked is not None, "nothing is parked"
        self._user = threading.get_ident()
        try:
            answer = self._collected(parked, now=now)
        except BaseException:
            self._leave()
            raise
        if answer is not None:
            self._leave()
        return answer

    def _collected(self, parked: _Parked, *, now: bool) -> Answer | None:
        while True:
            gate, line = self._gate, self._line
            try:
                if gate is None or line is None:
                    raise Lost("not registered")
                if not parked.sent:
                    self._resent(parked)
                if self._rings(parked) and not line.rang(self._sequence):
                    if not now:
                        return None
                    if parked.operation == _NEXT:
                        line.ask({"op": "cancel", "sequence": self._sequence})
                if not gate.wait():
                    self._await(gate, None)
                return self._read()
            except (Lost, OSError, *LOST) as error:
                parked.sent = False
                if answer := self._resume(self._sequence, time.monotonic() + self._timeout_s,
                                          error):
                    return answer
                if not self.bells and parked.operation == _NEXT:
                    raise ManagerUnavailable(spool=self._paths.root, reason="the one that came "
                                             "back cannot ring: it is older") from error

    def _rings(self, parked: _Parked) -> bool:
        """Whether the manager announces its reply. One that came back, and is older, does not for a
        put, which is then waited for: it takes no longer than any."""
        return parked.operation == _NEXT or self.rings

    def _read(self) -> Answer:
        """The reply, which is whole. Lost: the manager stops."""
        (magic, status, lost, answered, number, text, qpool, lsn, epoch, _
         ) = REPLY.unpack_from(self.reply)
        if answered != self._sequence or magic != REQUEST_MAGIC or epoch != self.epoch:
            raise Lost("a reply of another request")
        if status:
            self._refused(status, text, time.monotonic() + self._timeout_s)
        return Answer(number, qpool, lsn, lost)
