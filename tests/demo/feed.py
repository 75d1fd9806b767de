"""Feeds mail by real SMTP: several connections at once, each a thread with the standard smtplib.

A feeder is a patient client: what transaction.py says to try again it does again after a
short wait, on a new connection. A transaction in doubt is counted and sent again under the same id,
so the check can tell the duplicate that may come of it from a fault.

Invariants: 1. an item leaves the feeder accepted, refused, or not at all (after `stop`);
2. `accepted` counts only final 250 replies.
Errors: what SMTP can answer is handled here; an error that nobody foresaw ends its thread, and
`join` raises it.
"""

from __future__ import annotations

import smtplib
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from tests.demo.mails import Sent
from tests.demo.transaction import InDoubt, Outcome, TryLater, transact

_REPLY_WAIT_S = 60.0  # RFC 5321 4.5.3.2 asks for minutes; on loopback a minute is a dead server
_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 1.0  # a restarted daemon should not wait for its clients
_MAILS_PER_CONNECTION = 50  # as a mail relay does: connections are reused, not kept for ever
_HELO = "feeder.demo.test"


@dataclass(slots=True)
class FeedCounts:
    """Totals so far; a copy, safe to keep."""

    total: int
    accepted: int = 0
    finished: int = 0
    refused: int = 0
    in_doubt: int = 0
    postponed: int = 0
    reason: str = ""  # of the latest postponement


class Progress(Protocol):
    """A feed as those see it who follow it."""

    def counts(self) -> FeedCounts: ...
    def wait_accepted(self, count: int) -> bool: ...
    @property
    def running(self) -> bool: ...


class Feed:
    """A running feed of all items to one SMTP server."""

    def __init__(self, address: tuple[str, int], items: Iterable[Sent], connections: int) -> None:
        self._address = address
        self._waiting = deque(items)
        self._counts = FeedCounts(total=len(self._waiting))
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._running = connections
        self.outcomes = {item.demo_id: Outcome() for item in self._waiting}
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="feeder")
        self._ends: list[Future[None]] = []
        self._began_s = self._ended_s = 0.0

    def start(self) -> None:
        """Open the connections and begin."""
        self._began_s = time.monotonic()
        self._ends = [self._pool.submit(self._run) for _ in range(self._running)]
        self._pool.shutdown(wait=False)

    def stop(self) -> None:
        """End after the transactions under way; `join` then returns soon."""
        self._stopping.set()

    def join(self) -> None:
        """Wait for all threads; raises what ended one of them unexpectedly."""
        for end in self._ends:
            end.result()

    def counts(self) -> FeedCounts:
        """The totals so far."""
        with self._changed:
            return replace(self._counts)

    @property
    def running(self) -> bool:
        """Whether any thread still works."""
        with self._changed:
            return self._running > 0

    @property
    def seconds(self) -> float:
        """From the start to the end of the last thread so far."""
        with self._changed:
            return max(self._ended_s - self._began_s, 0.0)

    def wait_accepted(self, count: int) -> bool:
        """Block until so many items are accepted; False when the feed ends before."""
        with self._changed:
            self._changed.wait_for(lambda: self._counts.accepted >= count or not self._running)
            return self._counts.accepted >= count

    def _run(self) -> None:
        connection: smtplib.SMTP | None = None
        try:
            carried = 0
            while not self._stopping.is_set():
                try:
                    item = self._waiting.popleft()
                except IndexError:
                    break
                if carried % _MAILS_PER_CONNECTION == 0:
                    _close(connection)
                    connection = None
                connection = self._deliver(connection, item)
                carried += 1
        finally:
            with self._changed:
                self._running -= 1
                self._ended_s = time.monotonic()
                self._changed.notify_all()
            _close(connection)

    def _deliver(self, connection: smtplib.SMTP | None, item: Sent) -> smtplib.SMTP | None:
        """Repeat the transaction to its final answer; returns the connection to go on with."""
        outcome = self.outcomes[item.demo_id]
        delay_s = _RETRY_FIRST_S
        while not self._stopping.is_set():
            try:
                if connection is None:
                    connection = self._connect()
                transact(connection, item, outcome)
            except InDoubt:
                outcome.in_doubt += 1
                self._count(in_doubt=1)
            except (TryLater, OSError) as reason:  # smtplib's own errors are OSErrors too
                outcome.postponed += 1
                self._count(postponed=1, reason=str(reason))
            else:
                accepted = int(outcome.accepted)
                self._count(finished=1, accepted=accepted, refused=len(outcome.refused))
                return connection
            _close(connection)
            connection = None
            self._stopping.wait(delay_s)
            delay_s = min(delay_s * 2, _RETRY_MAX_S)
        return connection

    def _connect(self) -> smtplib.SMTP:
        connection = smtplib.SMTP(*self._address, local_hostname=_HELO, timeout=_REPLY_WAIT_S)
        if connection.sock is not None:  # no 40 ms wait for a delayed acknowledgement
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.ehlo()
        return connection

    def _count(
        self,
        *,
        finished: int = 0,
        accepted: int = 0,
        refused: int = 0,
        in_doubt: int = 0,
        postponed: int = 0,
        reason: str = "",
    ) -> None:
        with self._changed:
            self._counts.finished += finished
            self._counts.accepted += accepted
            self._counts.refused += refused
            self._counts.in_doubt += in_doubt
            self._counts.postponed += postponed
            self._counts.reason = reason or self._counts.reason
            self._changed.notify_all()


def _close(connection: smtplib.SMTP | None) -> None:
    if connection is None:
        return
    try:
        connection.quit()
    except OSError:  # it was lost already, or answers oddly: closed either way
        connection.close()
