"""A bell that any thread rings: who waits for it waits here, or polls its descriptor.

Invariants: 1. a ring is heard by whoever looks after it: who waits says how many rings it has
heard, who polls silences the bell before it looks; 2. the descriptor is written only while it is
open, so a number that is another file's by now is never touched; 3. in the child of a fork the
parent's bell is silent: its lock may be held by a thread that the child has not, and a ring would
wake the parent.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Final


class Bell:
    """See the module."""

    def __init__(self) -> None:
        self.rings = 0
        self.descriptor = -1
        self._pid: Final = os.getpid()
        self._rung: Final = threading.Condition()

    def ring(self) -> None:
        """From any thread."""
        if os.getpid() != self._pid:
            return
        with self._rung:
            self.rings += 1
            self._rung.notify_all()
            if self.descriptor >= 0:
                with suppress(BlockingIOError):  # nobody has silenced it for 2**64 rings
                    os.eventfd_write(self.descriptor, 1)

    def wait(self, heard: int, timeout_s: float | None) -> bool:
        """Until it has rung more often than `heard`; False when the time is over."""
        with self._rung:
            return self._rung.wait_for(lambda: self.rings != heard, timeout_s)

    # for an event loop

    def open(self) -> int:
        """The descriptor, readable from a ring until it is silenced."""
        with self._rung:
            if self.descriptor < 0:
                self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return self.descriptor

    def silence(self) -> None:
        with suppress(BlockingIOError):  # it did not ring
            os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """Of the descriptor alone."""
        with self._rung:
            descriptor, self.descriptor = self.descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)
