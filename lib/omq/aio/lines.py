"""Lines: native connections with a thread each, and the jobs that coroutines give them.

A line is opened when there is a job and no line is idle, up to a number; it stays until the end. So
a connection that only puts has one thread, and one that is not used has none. A job is carried out
by one line, whole. What a native connection refuses is the job's error; a line that could not be
opened is the error of the job that wanted it, and the next job tries anew.

Invariants: 1. a native connection is used by its own thread alone; 2. a job is carried out once, or
withdrawn before it began; 3. `close` returns when the last thread has ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from omq.base.errors import ConnectionClosed
from omq.ipc.client.connection import Client

CLOSED: Final = "of omq.aio"


class Job(Protocol):
    """Something that a native connection does; it tells those who wait for it by itself."""

    def carry_out(self, connection: Client) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def take_in(self, other: Job) -> bool:
        """Whether the other is done with this one, by the same request."""
        ...


class Lines:
    """Up to `most` lines. `give` and `withdraw` from the event loop, `close` from any thread."""

    def __init__(self, connect: Callable[[], Client], most: int, name: str) -> None:
        self._connect, self._most, self._name = connect, most, name
        self._jobs: deque[Job] = deque()
        self._changed: Final = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closing = False
        self.errors: Final[list[BaseException]] = []  # of the ends of native connections

    def give(self, job: Job) -> None:
        """ConnectionClosed."""
        with self._changed:
            if self._closing:
                raise ConnectionClosed(name=CLOSED)
            self._jobs.append(job)
            if len(self._jobs) > self._idle and len(self._threads) < self._most:
                thread = threading.Thread(
                    target=self._serve, name=f"omq {self._name} {len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            else:
                self._changed.notify()

    def withdraw(self, job: Job) -> bool:
        """Whether it had not begun, and will not."""
        with self._changed:
            if job not in self._jobs:
                return False
            self._jobs.remove(job)
            return True

    def close(self) -> None:
        """What was given is carried out, and the lines end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _take(self) -> Job | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs or self._closing)
            self._idle -= 1
            if not self._jobs:
                return None
            job = self._jobs.popleft()
            while self._jobs and job.take_in(self._jobs[0]):
                self._jobs.popleft()
            return job

    def _serve(self) -> None:
        connection: Client | None = None
        while (job := self._take()) is not None:
            try:
                if connection is None:
                    connection = self._connect()
            except Exception as error:  # the coroutine's, whatever it is
                job.fail(error)
            else:
                job.carry_out(connection)
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                self.errors.append(error)
