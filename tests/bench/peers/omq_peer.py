"""omq behind the same interface as its peers."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import omq
from omq.format.index import Counter
from tests.bench.instance import MANAGER, POOL_WRITER, QUEUE, BenchError, Instance, Settings
from tests.bench.peers.peer import Peer, Wire
from tests.bench.peers.processes import pause, tree

SETTLE_BOUND_S = 300.0
MESSAGES_MAX = 200_000


class OmqPeer(Peer):
    name = "omq"
    title = "omq"
    settings = (
        "as shipped, but for archive = delete (an hour's run would fill the disk), no watchdog and "
        "the event level TRACE; put, put_many; a reader with a batch of n: done of the last and "
        "get of the next are one request")

    def __init__(self, folder: Path, messages_max: int = MESSAGES_MAX, queues: Sequence[str] = (),
                 settings: Settings | None = None) -> None:
        super().__init__(folder)
        self.instance = Instance(folder, messages_max, queues, settings)

    def version(self) -> str:
        return f"omq {omq.__version__}"

    def start(self) -> None:
        self.instance.start(MANAGER)
        self.instance.start(POOL_WRITER)

    def stop(self) -> None:
        self.thaw()
        for name in (MANAGER, POOL_WRITER):
            if self.instance.alive(name):
                self.instance.stop(name)
        self.instance.kill_all()

    def serve(self) -> None:
        self.instance.start(MANAGER)

    def settle(self) -> None:
        """Wait until the pool has everything."""
        target = self.instance.counters()[Counter.DURABLE_LSN]
        deadline = time.monotonic() + SETTLE_BOUND_S
        while self.instance.counters()[Counter.CHECKPOINT_LSN] < target:
            self.instance.check_alive()
            if time.monotonic() > deadline:
                raise BenchError(f"no checkpoint in {SETTLE_BOUND_S:g} s")
            pause(0.1)

    def kill(self) -> None:
        self.thaw()
        for name in (MANAGER, POOL_WRITER):
            if self.instance.alive(name):
                self.instance.stop(name, signal.SIGKILL)

    def putter(self) -> Wire:
        return OmqWire(self.instance.paths.root)

    def getter(self, number: int, batch: int) -> Wire:
        return OmqWire(self.instance.paths.root, batch, main=number == 0)

    def waiting(self) -> int:
        return self.instance.counters()[Counter.MESSAGES]

    def pids(self) -> list[int]:
        names = (name for name in (MANAGER, POOL_WRITER) if self.instance.alive(name))
        return [pid for name in names for pid in tree(self.instance.pid(name))]

    def check_alive(self) -> None:
        self.instance.check_alive()


class OmqWire:
    def __init__(self, spool: Path, batch: int = 0, *, main: bool = True) -> None:
        """`batch` above 0: a reader."""
        self._connection = omq.connect(spool=spool, name="bench")
        self._reader = (self._connection.reader(QUEUE, batch=batch, auxiliary=not main)
                        if batch else None)
        self._held: list[omq.Message] = []

    def put(self, bodies: list[bytes]) -> None:
        if len(bodies) == 1:
            self._connection.put(QUEUE, bodies[0])
        else:
            self._connection.put_many(QUEUE, bodies)

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        assert self._reader is not None
        self._finish()  # told with this request
        self._held = self._reader.next(count, timeout_s)
        return [message.body for message in self._held]

    def _finish(self) -> None:
        for message in self._held:
            message.done()
        self._held = []

    def close(self) -> None:
        if self._reader is not None:
            self._finish()
            self._reader.flush()
            self._reader.close()
        self._connection.close()

    def abandon(self) -> None:
        self._connection.close()  # what it holds comes back
