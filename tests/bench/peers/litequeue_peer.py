"""litequeue as it comes, but for the sync at every commit."""

from __future__ import annotations

from importlib.metadata import version as distribution
from typing import Any

import litequeue

from tests.bench.peers.peer import Wire
from tests.bench.peers.processes import polled
from tests.bench.peers.sqlite_queue import BUSY_S, SqlitePeer


class LitequeuePeer(SqlitePeer):
    name = "litequeue"
    title = "litequeue"
    batches = False
    settings = (
        "the library as it is (WAL), synchronous set to FULL; put, pop and done are one commit "
        "each, of one message: it has no calls for many; finished rows pruned every 1,000")

    def version(self) -> str:
        return f"litequeue {distribution('litequeue')}, {super().version()}"

    def start(self) -> None:
        self._queue()

    def putter(self) -> Wire:
        return LitequeueWire(self._queue())

    def getter(self, number: int, batch: int) -> Wire:
        del number, batch
        return LitequeueWire(self._queue())

    def waiting(self) -> int:
        queue = self._queue()
        (found,) = queue.conn.execute(
            "SELECT count(*) FROM Queue WHERE status < 2").fetchone()
        return int(found)

    def _queue(self) -> litequeue.LiteQueue:
        queue = litequeue.LiteQueue(self.path, timeout=BUSY_S)
        queue.conn.execute("PRAGMA synchronous = FULL")
        return queue


class LitequeueWire:
    PRUNE_EVERY = 1000

    def __init__(self, queue: litequeue.LiteQueue) -> None:
        self._queue = queue
        self._held: list[str] = []
        self._finished = 0

    def put(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self._queue.put(body)

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        self._finish()
        found = polled(lambda: self._pop(count), timeout_s,
                       lambda: self._queue.peek() is not None)
        self._held = [each.message_id for each in found]
        return [each.data for each in found]

    def _pop(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and (each := self._queue.pop()) is not None:
            found.append(each)
        return found

    def _finish(self) -> None:
        for number in self._held:
            self._queue.done(number)
        self._finished += len(self._held)
        self._held = []
        if self._finished >= self.PRUNE_EVERY:
            self._queue.prune(include_failed=False)
            self._finished = 0

    def close(self) -> None:
        self._finish()
        self._queue.conn.close()

    def abandon(self) -> None:
        self._queue.conn.close()
