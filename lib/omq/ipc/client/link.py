"""The client's end of the wire: registration, one request at a time, and a manager that may go
away.

A request is written into the channel, its 96 bytes go on the request queue, and the client waits on
its semaphore, without a time-out of its own: the watcher nudges it when there is reason to look.
The manager's end shows as: semaphore or queue removed, end of the control connection, or no answer.
The client then registers again with its old token and learns whether the request under way was
carried out; if not, the same request goes again under the same number.

Invariants: 1. a request's bytes are kept until it is answered; 2. a request number is never used
for two requests; 3. a reply counts only with the number of the request under way.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from typing import Any, NoReturn

import sysv_ipc

from omq.base.errors import (
    ManagerUnavailable,
    OmqError,
    ShuttingDown,
    TimedOut,
    UnitBackedOut,
    from_status,
)
from omq.base.fault import armed, point
from omq.fast.client_request import ANSWERED, DONE, UNSENT, WOKEN
from omq.format.wire import REPLY, REQUEST, REQUEST_MAGIC, REQUEST_TYPE, VERSION
from omq.ipc.client.control_line import Lost
from omq.ipc.client.registration import LOST, RETRY_S, Registered
from omq.ipc.client.reply_wait import Gate
from omq.ipc.wire.exchange import Answer

BYE_S = 1.0  # how long a good-bye may take
BUSY_S = 0.001  # pause when the request queue is full
_SHUTTING_DOWN = ShuttingDown.status


class Link(Registered):
    """See the module."""

    def control(self, question: dict[str, Any], descriptor: int = -1, patience_s: float = 0.0
                ) -> dict[str, Any]:
        """A question that may be asked again: repeated after a reconnection. `patience_s`: how much
        longer than others its answer may take."""
        self._enter()
        deadline = time.monotonic() + self._timeout_s
        try:
            while True:
                try:
                    if self._line is None:
                        self._register_until(deadline, 0)
                    assert self._line is not None
                    return self._line.ask(question, None, descriptor, patience_s)
                except (OSError, Lost) as error:
                    manager = 0 if self._line is None else self._line.manager
                    if time.monotonic() >= deadline:
                        raise self._absence.error(error, manager) from error
                    self._drop()
                    self._register_until(deadline, 0)
        finally:
            self._busy.release()

    def take_leave(self, question: dict[str, Any]) -> None:
        """A question that only the manager of this registration need hear: one that has gone has
        forgotten what it is about."""
        self._enter()
        try:
            if self._line is not None:
                self._line.ask(question)
        except (OSError, Lost):
            self._drop()
        finally:
            self._busy.release()

    # requests

    def request(self, operation: int, data: bytes, priority: int = 0, flags: int = 0,
                queue: int = 0, count: int = 0, length: int = 0, size: int = 0, crc: int = 0,
                correlation: int = 0, want: int = 0, argument: int = 0, parts: int = 0,
                expiry: int = 0, wait_s: float | None = None, *,
                once: bool = False) -> Answer:
        """Send one request and wait for its reply; `wait_s`: how long the manager itself may wait
        (negative: for ever), which `interrupt` ends. `once`: a manager that comes back and has not
        carried it out is not asked again (UnitBackedOut). A refusal; TimedOut; ManagerUnavailable.

        One function down to the two system calls: clients that take turns on a processor run this
        with cold caches, where what a function touches costs ten times its instructions."""
        if (self._closed or self._pid != os.getpid()
                or not self._busy.acquire(False)):  # noqa: FBT003 (a keyword costs more)
            self._refuse()
        try:
            self._user = threading.get_ident()
            self._sequence = sequence = self._sequence + 1
            back_by = 0.0  # until when a lost manager may come back
            said, gate = UNSENT, self._gate
            if (gate is not None and gate.sends and len(data) <= self.room and not armed()
                    and (wait_s is None or not (self.woken or self.interrupted))):
                said = gate.ask(self._area, self.reply, data, sequence, operation, priority, flags,
                                queue, count, length, size, crc, correlation, want, argument, parts,
                                expiry)
                if said == DONE:
                    if self._patience is not None:
                        self._heard_of_manager()
                    return Answer(gate.count, gate.qpool, gate.lsn, gate.lost)
            point("client.before_request")
            while True:
                try:
                    gate = self._gate
                    if gate is None:
                        raise Lost("not registered")
                    if said == UNSENT:
                        self._put_down(data)
                        head = REQUEST.pack(
                            operation, priority, flags, queue, count, self._client, length,
                            self._token, sequence, size, crc, REQUEST_MAGIC, VERSION, correlation,
                            want, argument, 0, parts, 0, expiry)
                        self._send(head)
                        point("client.after_request")
                    if said == WOKEN or (said != ANSWERED and not self._heard(gate, wait_s)):
                        self._await(gate, wait_s)
                    while True:
                        (magic, status, lost, answered, number, text, qpool, lsn, epoch, _
                         ) = REPLY.unpack_from(self.reply)
                        if answered == sequence and magic == REQUEST_MAGIC and epoch == self.epoch:
                            break
                        self._await(gate, wait_s)  # it was the reply of a request given up
                    if status:
                        if status == _SHUTTING_DOWN:
                            back_by = time.monotonic() + self._timeout_s
                        self._refused(status, text, back_by)
                    point("client.after_reply")
                    if self._patience is not None:
                        self._heard_of_manager()
                    return Answer(number, qpool, lsn, lost)
                except (Lost, OSError, *LOST) as lost_it:
                    said = UNSENT
                    if not back_by or wait_s is not None:
                        back_by = time.monotonic() + self._timeout_s
                    answer = self._resume(sequence, back_by, lost_it)
                    if answer is not None:
                        return answer
                    if once:
                        raise UnitBackedOut from None
        finally:
            self._busy.release()

    def _heard_of_manager(self) -> None:
        """It is there: an interrupt that was met limits no later wait for it. One that nobody has
        met yet still does, also if it comes at this moment."""
        patience, self._patience = self._patience, None
        if self.interrupted:
            self._patience = patience

    def _heard(self, gate: Gate, wait_s: float | None) -> bool:
        """Wait; whether there is a reply. Somebody may have ended the wait, at another gate."""
        return (wait_s is None or not (self.interrupted or self.woken)) and gate.wait()

    def _put_down(self, data: bytes) -> None:
        """Into the request half of the channel."""
        if len(data) > self.room:
            raise OmqError(text=f"a request of {len(data)} bytes")
        self._area[: len(data)] = data

    def _refused(self, status: int, length: int, back_by: float) -> NoReturn:
        """The error of a refusal; Lost when the manager stopped instead, until `back_by`."""
        error = from_status(status, self._fields(length))
        if status == _SHUTTING_DOWN:
            self._wait_for_end(back_by, error)
        raise error

    def _send(self, head: bytes) -> None:
        """On the request queue, which may be full."""
        deadline = 0.0
        while True:
            try:
                self._requests.send(head, block=False, type=REQUEST_TYPE)
                return
            except sysv_ipc.BusyError:
                now = time.monotonic()
                deadline = deadline or now + self._timeout_s
                if now >= deadline:
                    raise TimedOut(seconds=self._timeout_s, what="the request queue") from None
            time.sleep(BUSY_S)

    def _sent_now(self, head: bytes) -> bool:
        """Whether there was room for it on the request queue."""
        try:
            self._requests.send(head, block=False, type=REQUEST_TYPE)
        except sysv_ipc.BusyError:
            return False
        return True

    def _await(self, gate: Gate, wait_s: float | None) -> None:
        """The wait has ended without the reply: until there is one."""
        deadline = math.inf
        if wait_s is None or wait_s >= 0:
            deadline = time.monotonic() + self._timeout_s + (wait_s or 0.0)
        waiting, line = wait_s is not None, self._line
        assert line is not None
        while True:
            if waiting and (self.interrupted or self.woken):
                waiting = False
                line.ask({"op": "cancel", "sequence": self._sequence}, within_s=self._answer_s())
            line.check_alive()
            if time.monotonic() >= deadline:
                self._drop()
                raise TimedOut(seconds=self._timeout_s, what="the queue manager")
            if gate.wait():
                return

    def _wait_for_end(self, deadline: float, refusal: OmqError) -> None:
        """The manager takes nothing more, because it stops: Lost when it has ended, so that the
        next one is asked. The refusal itself when it takes too long."""
        line = self._line
        while line is not None and time.monotonic() < deadline and not self.interrupted:
            line.check_alive()
            time.sleep(RETRY_S)
        raise refusal

    def _fields(self, length: int) -> dict[str, Any]:
        raw = bytes(self.reply[REPLY.size : REPLY.size + length])
        try:
            fields: dict[str, Any] = json.loads(raw)
            return fields
        except ValueError:
            return {"text": raw.decode("utf-8", "replace")}

    def _resume(self, sequence: int, deadline: float, error: Exception) -> Answer | None:
        """After a loss: the answer if the request was carried out after all, as the manager said
        when it stopped, or as the next one does at a new registration."""
        done = None if self._line is None else self._line.last_words()
        self._drop()
        if done is None or int(done["sequence"]) != sequence:
            if time.monotonic() >= deadline:
                raise ManagerUnavailable(spool=self._paths.root, reason=str(error)) from error
            done = self._register_until(deadline, sequence).get("answered")
        if done is not None and int(done["sequence"]) == sequence:
            return Answer(int(done["count"]), int(done["qpool"]), int(done["lsn"]),
                          recovered=True)
        return None

    def close(self) -> None:
        """Say good-bye; the manager takes back what is still held."""
        self._closed = True
        if self._line is not None and self._pid == os.getpid():
            with contextlib.suppress(OSError, Lost, OmqError, ValueError):
                self._line.say_bye(BYE_S)
        self._drop()
        self._let_go()

    def abandon(self) -> None:
        """As if this program had died: no good-bye, and what was settled and not sent is not."""
        self._closed = True
        self._drop()
        self._let_go()
