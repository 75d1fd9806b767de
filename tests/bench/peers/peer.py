"""What every system under comparison is to the bench: a Peer that runs a server, and a Wire to it.

The client programs are the same for all (tests/bench/peers/clients.py); a Wire has only what
differs. Both calls of a Wire return when what they acknowledge is as durable as the system makes
it; where a system gives no answer to an acknowledgement, its `settings` say so.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from tests.bench.peers.processes import Server, cpu_of, freeze_all, thaw_all


class Wire(Protocol):
    """One client's connection, made and used in the client's own process."""

    def put(self, bodies: list[bytes]) -> None:
        """Put all of them, in one exchange where the system allows it."""

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        """Finish what the call before gave, then get up to `count` more; none in time: []. A
        system that can do both in one exchange does."""

    def close(self) -> None:
        """Finish what was got last, and go."""

    def abandon(self) -> None:
        """Go without finishing what was got last."""


class Peer(ABC):
    """One system: `start`, then wires from any process, then `stop`."""

    name = ""  # what --only takes
    title = ""
    lean = False  # its client is of our own making, where the usual library costs more
    batches = True  # it can put and get many in one exchange
    settings = ""  # everything that is not its default, and how it is used

    def __init__(self, folder: Path) -> None:
        """`folder` is the peer's own and exists."""
        self.folder = folder
        self.servers: list[Server] = []

    @abstractmethod
    def version(self) -> str:
        """Of the server, and of the client library."""

    @abstractmethod
    def start(self) -> None:
        """Run it, empty, and make the queue."""

    @abstractmethod
    def stop(self) -> None:
        """End everything that `start` began; may be called at any time."""

    def serve(self) -> None:
        """Start so far that a client can be served."""
        self.start()

    def kill(self) -> None:
        """End it as a crash would; `start` then finds what it left."""
        freeze_all(self.pids())
        for server in self.servers:
            server.stop(signal.SIGKILL)

    @abstractmethod
    def putter(self) -> Wire:
        """A connection for a client that puts."""

    @abstractmethod
    def getter(self, number: int, batch: int) -> Wire:
        """A connection for a client that gets this many at a time; number 0 is the first."""

    @abstractmethod
    def waiting(self) -> int:
        """Messages that it holds now, handed out or not."""

    def pids(self) -> list[int]:
        """Its processes, for CPU time and memory; none for a library."""
        return [pid for server in self.servers for pid in server.pids()]

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of its processes together."""
        pids = self.pids()
        return {"server": cpu_of(pids)} if pids else {}

    def freeze(self) -> None:
        """Stop running while another system is measured."""
        freeze_all(self.pids())

    def thaw(self) -> None:
        """Run again."""
        thaw_all(self.pids())

    def check_alive(self) -> None:
        """BenchError when a server of it has died."""
        for server in self.servers:
            server.check_alive()


class ServerPeer(Peer):
    """A system that is one server process at one port."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = Server(self.name, folder)
        self.servers = [self.server]
        self.port = 0

    def stop(self) -> None:
        self.server.stop()
