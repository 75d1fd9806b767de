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
import time
from typing import Any

import sysv_ipc

from omq.base.errors import (
    ConnectionForked,
    ManagerUnavailable,
    OmqError,
    TimedOut,
    TooManyConnections,
    from_status,
)
from omq.base.fault import point
from omq.base.paths import SpoolPaths
from omq.format.wire import (
    REPLY,
    REQUEST,
    REQUEST_MAGIC,
    REQUEST_TYPE,
    VERSION,
    halves,
)
from omq.ipc import watcher
from omq.ipc.absence import Absence, Waiting, words
from omq.ipc.control_line import ControlLine, Lost, way_of_requests
from omq.ipc.exchange import Answer, Held
from omq.ipc.gate import GONE, Gate
from omq.storage import segment

BYE_S = 1.0  # how long a good-bye may take
RETRY_S = 0.05  # pause between two attempts to reach a manager that is away
INTERRUPTED_S = 5.0  # who is told to stop waits no longer for a manager: it takes messages back
BUSY_S = 0.001  # pause when the request queue is full
_LOST = (*GONE, sysv_ipc.NotAttachedError)


class Link:
    """See the module."""

    def __init__(self, paths: SpoolPaths, name: str, timeout_s: float,
                 waiting: Waiting | None = None) -> None:
        self._paths = paths
        self._name = name
        self._timeout_s = timeout_s
        self._token = b""
        self._sequence = 0
        self._line: ControlLine | None = None
        self._pid = os.getpid()
        self.reader = Held()
        self.reply = memoryview(b"")
        self.interrupted = False
        self._gate: Gate | None = None
        self._patience: float | None = None  # after an interrupt: until when to wait for a manager
        self._absence = Absence(paths, waiting)
        self._register_until(time.monotonic() + timeout_s, 0)

    # registration

    def _register_until(self, deadline: float, in_doubt: int) -> dict[str, Any]:
        """Register, waiting for a manager if need be."""
        began, manager = time.monotonic(), 0
        while True:
            try:
                facts = self._register(in_doubt)
                self._absence.over()
                return facts
            except TooManyConnections:  # for a moment
                self._drop()
                if time.monotonic() >= deadline or self.interrupted:
                    raise
                time.sleep(RETRY_S)
            except OmqError:  # refused
                self._drop()
                raise
            except (OSError, Lost, sysv_ipc.Error, ValueError) as error:
                manager = 0 if self._line is None else self._line.manager
                self._drop()
                limit = deadline if self._patience is None else min(deadline, self._patience)
                denied = isinstance(error, (PermissionError, sysv_ipc.PermissionsError))
                gave_up = self.interrupted and in_doubt == 0
                if denied or gave_up or time.monotonic() >= limit:  # rights do not come by waiting
                    raise self._absence.error(error, manager, interrupted=gave_up) from error
                self._absence.tell(began, words(error), deadline)
                time.sleep(RETRY_S)

    def _register(self, in_doubt: int) -> dict[str, Any]:
        line = self._line = ControlLine(self._paths.socket, max(1.0, min(self._timeout_s, 10.0)))
        held = self.reader.messages() if self._token else []
        began = time.monotonic()
        facts = line.ask({
            "op": "register", "version": VERSION, "name": self._name,
            "token": self._token.hex(), "in_doubt": in_doubt, "held": held,
            "queue": self.reader.queue, "auxiliary": self.reader.auxiliary},
            lambda: self._absence.tell(began, "it does not answer"))
        self._token = bytes.fromhex(facts["token"])
        self._client = int(facts["client"])
        self.trusted = bool(facts["trusted"])
        self.owns = bool(facts["owns"])
        self.threshold = int(facts["threshold"])
        self.epoch = int(facts["epoch"])
        self.id_prefix = str(facts["id_prefix"])
        self._requests = way_of_requests(facts["requests"], line)
        semaphore_key, semaphore_id = facts["semaphore"]
        self._semaphore = sysv_ipc.Semaphore(semaphore_key)
        if self._semaphore.id != semaphore_id:
            raise Lost("the objects named are not those of the manager")
        self._segment = segment.attach(int(facts["channel"]), write=True)
        self._channel = memoryview(self._segment)
        reply, request = halves(len(self._channel))
        self.reply = self._channel[reply:request]
        self._area = self._channel[request:]
        self.room = len(self._area)
        self._gate = Gate(self._semaphore)
        watcher.add(self._gate, line.descriptor, self._timeout_s)
        return facts

    def _drop(self) -> None:
        """Let go of what belongs to one manager."""
        if self._gate is not None:
            watcher.discard(self._gate)
            self._gate = None
        if self._line is not None:
            self._line.close()
            self._line = None
        if len(self.reply):
            self.reply.release()
            self._area.release()
            self._channel.release()
            with contextlib.suppress(*_LOST):
                self._segment.detach()
            self.reply = memoryview(b"")

    def control(self, question: dict[str, Any], descriptor: int = -1, patience_s: float = 0.0
                ) -> dict[str, Any]:
        """A question that may be asked again: repeated after a reconnection. `patience_s`: how much
        longer than others its answer may take."""
        if self._pid != os.getpid():
            raise ConnectionForked(maker=self._pid, child=os.getpid())
        deadline = time.monotonic() + self._timeout_s
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

    def take_descriptor(self) -> int:
        """What came with the last answer of `control`; -1: nothing. The caller closes it."""
        return -1 if self._line is None else self._line.take_descriptor()

    # requests

    def request(self, operation: int, data: bytes, priority: int = 0, flags: int = 0,
                queue: int = 0, count: int = 0, length: int = 0, size: int = 0, crc: int = 0,
                correlation: int = 0, want: int = 0, argument: int = 0, parts: int = 0,
                expiry: int = 0, wait_s: float | None = None) -> Answer:
        """Send one request and wait for its reply; `wait_s`: how long the manager itself may wait
        (negative: for ever), which `interrupt` ends. The error of a refusal; TimedOut;
        ManagerUnavailable.

        One function down to the two system calls: clients that take turns on a processor run this
        with cold caches, where what a function touches costs ten times its instructions."""
        if self._pid != os.getpid():  # both would answer for one client
            raise ConnectionForked(maker=self._pid, child=os.getpid())
        self._sequence = sequence = self._sequence + 1
        back_by = 0.0  # until when a lost manager may come back
        point("client.before_request")
        while True:
            try:
                gate = self._gate
                if gate is None:
                    raise Lost("not registered")
                if len(data) > self.room:
                    raise OmqError(text=f"a request of {len(data)} bytes")
                self._area[: len(data)] = data
                head = REQUEST.pack(
                    operation, priority, flags, queue, count, self._client, length, self._token,
                    sequence, size, crc, REQUEST_MAGIC, VERSION, correlation, want, argument, 0,
                    parts, 0, expiry)
                try:
                    self._requests.send(head, block=False, type=REQUEST_TYPE)
                except sysv_ipc.BusyError:
                    self._send_later(head)
                point("client.after_request")
                if not gate.wait():
                    self._await(gate, wait_s)
                while True:
                    (magic, status, lost, answered, number, text, qpool, lsn, epoch, _
                     ) = REPLY.unpack_from(self.reply)
                    if answered == sequence and magic == REQUEST_MAGIC and epoch == self.epoch:
                        break
                    self._await(gate, wait_s)  # it was the reply of a request given up
                if status:
                    raise from_status(status, self._fields(text))
                point("client.after_reply")
                self._patience = None
                return Answer(number, qpool, lsn, lost)
            except (Lost, OSError, *_LOST) as error:
                if not back_by or wait_s is not None:
                    back_by = time.monotonic() + self._timeout_s
                answer = self._resume(sequence, back_by, error)
                if answer is not None:
                    return answer

    def _send_later(self, head: bytes) -> None:
        """The request queue was full."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            time.sleep(BUSY_S)
            try:
                self._requests.send(head, block=False, type=REQUEST_TYPE)
                return
            except sysv_ipc.BusyError:
                if time.monotonic() >= deadline:
                    raise TimedOut(seconds=self._timeout_s, what="the request queue") from None

    def _await(self, gate: Gate, wait_s: float | None) -> None:
        """The wait has ended without the reply: until there is one."""
        deadline = math.inf
        if wait_s is None or wait_s >= 0:
            deadline = time.monotonic() + self._timeout_s + (wait_s or 0.0)
        waiting, line = wait_s is not None, self._line
        assert line is not None
        while True:
            if waiting and self.interrupted:
                waiting = False
                line.ask({"op": "cancel"})
            line.check_alive()
            if time.monotonic() >= deadline:
                self._drop()
                raise TimedOut(seconds=self._timeout_s, what="the queue manager")
            if gate.wait():
                return

    def _fields(self, length: int) -> dict[str, Any]:
        raw = bytes(self.reply[REPLY.size : REPLY.size + length])
        try:
            fields: dict[str, Any] = json.loads(raw)
            return fields
        except ValueError:
            return {"text": raw.decode("utf-8", "replace")}

    def _resume(self, sequence: int, deadline: float, error: Exception) -> Answer | None:
        """After a loss: a new registration; the answer if the request was carried out after all."""
        self._drop()
        if time.monotonic() >= deadline:
            raise ManagerUnavailable(spool=self._paths.root, reason=str(error)) from error
        facts = self._register_until(deadline, sequence)
        done = facts.get("answered")
        if done is not None and int(done["sequence"]) == sequence:
            return Answer(int(done["count"]), int(done["qpool"]), int(done["lsn"]),
                          recovered=True)
        return None

    def interrupt(self) -> None:
        """Callable from a signal handler: a wait for messages ends soon."""
        self.interrupted = True
        self._patience = time.monotonic() + INTERRUPTED_S
        if self._gate is not None:
            self._gate.open()

    def close(self) -> None:
        """Say good-bye; the manager takes back what is still held."""
        if self._line is not None and self._pid == os.getpid():
            with contextlib.suppress(OSError, Lost, OmqError, ValueError):
                self._line.say_bye(BYE_S)
        self._drop()
