"""A program that a test has started in its instance."""

from __future__ import annotations

import signal

from omq.testing.world import WAIT_S, World


class Program:
    """A program of omq that a test has started: `omq worker`, `omread` ..."""

    def __init__(self, world: World, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self._world = world

    def stop(self, wait_s: float = WAIT_S) -> int | None:
        """SIGTERM and wait; its exit code, None: it still runs."""
        return self._world.end(self.pid, signal.SIGTERM, wait_s)

    def kill(self) -> None:
        """SIGKILL, as a crash would end it."""
        self._world.end(self.pid, signal.SIGKILL)

    def wait(self, wait_s: float = WAIT_S) -> int | None:
        """Until it ends by itself; its exit code, None: it still runs."""
        return self._world.end(self.pid, 0, wait_s)
