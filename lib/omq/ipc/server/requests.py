"""The manager's end of the request queue: waits in one place, then takes all that is there.

Two clients that ask, are answered and ask again fall into step: while the request of one is made
durable that of the other arrives, so that each group has one request and costs a sync of its own.
So the manager waits a moment for those who were answered in the group before: as many requests as
the last two groups had make one group. Only up to as many clients as there are processors: with
more, whoever waits takes the processor from those it waits for. A wait in vain is not repeated
soon. Where replies wait for standbys, requests wait for the answer to the group before, and then
for those whom it has released (`pace`, ADR 0200).

A signal ends the wait with an empty batch. A message that is too long to be a request is taken off
and told to `garbage`. If somebody removes the queue (ipcrm), IpcRemoved: the manager ends and the
next one makes a new queue, to which the clients come by themselves. See ipc.wire.errnos.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Final, Protocol

import sysv_ipc

from omq.base.errors import IpcRemoved
from omq.fast.company import PAUSE_MAX, Company
from omq.format.wire import REQUEST_TYPE
from omq.ipc.server.answer_pace import AnswerPace, answers
from omq.ipc.wire.errnos import Outcome, outcome

GATHER_NS: Final = 100_000
"""How long a group waits for the others: a client asks again this soon if at all."""
GATHER_PACED_NS: Final = 500_000
"""As GATHER_NS where replies wait for standbys: those who were just released ask again. A group of
all of them costs one piece, one sync and one answer instead of two."""
STEP_S: Final = 0.00005
"""Between two looks for them: the processor is theirs meanwhile."""
MSG_NOERROR: Final = 0o10000
"""linux/msg.h: cut what is too long instead of refusing it; sysv_ipc does not offer it."""
IPC_NOWAIT: Final = 0o4000  # linux/ipc.h


class Intake(Protocol):
    """omq.fast.intake, compiled. False: go the way without it, which says why."""

    def take_first(self, queue: int, out: list[bytes]) -> bool: ...
    def take_all(self, queue: int, out: list[bytes], limit: int) -> bool: ...
    def take_company(self, queue: int, out: list[bytes], limit: int, wanted: int, wait_ns: int
                     ) -> bool: ...


class Requests:
    """The request queue, taken in batches."""

    def __init__(self, queue: sysv_ipc.MessageQueue, garbage: Callable[[], None],
                 intake: Intake | None = None) -> None:
        self.queue = queue
        self._garbage = garbage
        self._receive = queue.receive
        self._intake = intake
        self.company = Company(len(os.sched_getaffinity(0)))
        self.gather_ns = GATHER_NS
        self._left: list[bytes] = []  # after the answers of standbys that were taken first
        self._together = Company(PAUSE_MAX)
        self.pace: AnswerPace | None = None  # None: nothing waits for standbys

    def take(self, limit: int) -> list[bytes]:
        """Wait for one request or wake-up, then take all that are there, or come at once, up to
        `limit`."""
        out, self._left = self._left, []
        return self.rest(out, limit)

    def rest(self, out: list[bytes], limit: int) -> list[bytes]:
        """The same, after these."""
        company = self.company
        try:
            if not out:
                self._first(out)
            self._drain(out, limit)
            if self.pace is not None:
                return self._paced(out, limit, self.pace)
            wanted = company.wanted(len(out))
            waited = len(out) < wanted
            if waited:
                self._gather(out, limit, wanted)
            company.had(len(out), waited)
        except (sysv_ipc.Error, OSError, MemoryError) as error:
            self._met(error)
        return out

    def _paced(self, out: list[bytes], limit: int, pace: AnswerPace) -> list[bytes]:
        """Answers of standbys by themselves, before the requests that came with them; these when
        the answer is there that they should wait for."""
        said = answers(out)
        if not said and out and pace.waits():
            while not said and len(out) < limit:
                before = len(out)
                self._first(out)
                if len(out) == before:
                    break
                self._drain(out, limit)
                said = answers(out)
            pace.ended()
        if said:
            self._left = [raw for raw in out if raw not in said]
            return said
        together = self._together
        wanted = together.wanted(len(out))
        waited = len(out) < wanted
        if waited:
            end = time.monotonic_ns() + GATHER_PACED_NS
            while len(out) < wanted and time.monotonic_ns() < end:
                time.sleep(STEP_S)
                self._drain(out, limit)
        together.had(len(out), waited)
        return out

    def _first(self, out: list[bytes]) -> None:
        """Wait until something is there."""
        if self._intake is None or not self._intake.take_first(self.queue.id, out):
            first, kind = self._receive(block=True)
            if kind == REQUEST_TYPE:
                out.append(first)

    def _gather(self, out: list[bytes], limit: int, wanted: int) -> None:
        """Those that come at once."""
        if self._intake is not None and self._intake.take_company(
                self.queue.id, out, limit, wanted, self.gather_ns):
            return
        end = time.monotonic_ns() + self.gather_ns
        while len(out) < wanted and time.monotonic_ns() < end:
            os.sched_yield()
            self._drain(out, limit)

    def _drain(self, out: list[bytes], limit: int) -> None:
        """All that are there."""
        if self._intake is not None and self._intake.take_all(self.queue.id, out, limit):
            return
        receive, add = self._receive, out.append
        try:
            while len(out) < limit:
                raw, kind = receive(block=False)
                if kind == REQUEST_TYPE:
                    add(raw)
        except sysv_ipc.BusyError:
            pass

    def _met(self, error: Exception) -> None:
        """A group ends early: with what has come so far."""
        met = outcome("msgrcv", error)
        if met is Outcome.GONE:
            raise IpcRemoved(what="message queue", id=self.queue.id) from error
        if met is Outcome.GARBAGE:
            take_off(self.queue.id)
            self._garbage()
        elif met is Outcome.BUG:
            raise error


def take_off(queue: int) -> None:
    """The first message of a queue, whatever its length; nothing when there is none."""
    nothing = ctypes.create_string_buffer(ctypes.sizeof(ctypes.c_long))
    ctypes.CDLL(None).msgrcv(queue, nothing, ctypes.c_size_t(0), ctypes.c_long(0),
                             MSG_NOERROR | IPC_NOWAIT)
