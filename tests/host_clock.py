"""The wall clock of a host, as a test sets it: for this process and those that it forks.

Nobody but this test sees it: nothing is set but what `time.time` and `time.time_ns` say here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

NS = 1_000_000_000


class HostClock:
    """Right until somebody sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # A file without a name: children see what is set here later.
        self._shared = os.memfd_create("host-clock")
        os.pwrite(self._shared, bytes(8), 0)
        self._real: Callable[[], int] = time.time_ns
        monkeypatch.setattr(time, "time_ns", self.now_ns)
        monkeypatch.setattr(time, "time", lambda: self.now_ns() / NS)

    def now_ns(self) -> int:
        """As it shows."""
        return self._real() + self.off_s * NS

    @property
    def off_s(self) -> int:
        """How far it is ahead, in seconds."""
        if self._shared < 0:
            return 0
        return int.from_bytes(os.pread(self._shared, 8, 0), "little", signed=True)

    def close(self) -> None:
        """It is right again."""
        self.step(-self.off_s)
        os.close(self._shared)
        self._shared = -1

    def step(self, seconds: int) -> None:
        """Somebody sets it."""
        off = self.off_s + seconds
        os.pwrite(self._shared, off.to_bytes(8, "little", signed=True), 0)
