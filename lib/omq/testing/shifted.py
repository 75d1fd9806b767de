"""A clock that a test moves: the true one and two offsets that several processes share.

The offsets lie in a memory file without a name, whose descriptor the test, its host and the forked
daemons share; a write of 48 bytes is seen by all of them at their next look. `install` puts it in
the place of `omq.base.clock`, by which omq tells all times that are stored, waited for or compared.

    bytes 0..7     how far time since boot is ahead, ns, little-endian
    bytes 8..15    how far the wall clock is ahead, ns, little-endian, signed
    bytes 16..31   what names this boot, once power was cut; zeros: as the kernel says

Nothing of the machine is changed. Programs that a test starts by itself have the true clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from omq.base import clock

_NO_BOOT: Final = bytes(16)
_BYTES: Final = 32


class ShiftedClock:
    """See the module. `descriptor`: of the memory file."""

    def __init__(self, descriptor: int = -1) -> None:
        self.descriptor = descriptor
        if descriptor < 0:
            self.descriptor = os.memfd_create("omq-clock")
            os.pwrite(self.descriptor, bytes(_BYTES), 0)
        self._true_boot = clock.boot_id()

    def wall_ns(self) -> int:
        """The date as the instance sees it."""
        return time.time_ns() + self._offset(8)

    def monotonic_ns(self) -> int:
        """Its time since boot."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + self._offset(0)

    def boot_id(self) -> bytes:
        """Its boot; another one after each power cut."""
        named = os.pread(self.descriptor, 16, 16)
        return self._true_boot if named == _NO_BOOT else named

    @property
    def moved(self) -> bool:
        """Whether it differs from the machine's."""
        return os.pread(self.descriptor, _BYTES, 0) != bytes(_BYTES)

    def pass_ns(self, ns: int) -> None:
        """Let time pass, for both clocks at once."""
        both = [self._offset(at) + ns for at in (0, 8)]
        os.pwrite(self.descriptor, b"".join(_bytes(each) for each in both), 0)

    def step_ns(self, ns: int) -> None:
        """Set the wall clock: the other goes on as it did."""
        os.pwrite(self.descriptor, _bytes(self._offset(8) + ns), 8)

    def reboot(self) -> None:
        """From now on it is another boot."""
        os.pwrite(self.descriptor, os.urandom(16), 16)

    def reset(self) -> None:
        """The machine's own again. Only where nobody looks at it."""
        os.pwrite(self.descriptor, bytes(_BYTES), 0)

    def install(self) -> Callable[[], None]:
        """For all of omq in this process and those that it forks; what is returned undoes it."""
        before = clock.wall_ns, clock.monotonic_ns, clock.boot_id
        _put(self.wall_ns, self.monotonic_ns, self.boot_id)
        return lambda: _put(*before)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)

    def _offset(self, at: int) -> int:
        return int.from_bytes(os.pread(self.descriptor, 8, at), "little", signed=True)


def _put(wall: Callable[[], int], monotonic: Callable[[], int], boot: Callable[[], bytes]) -> None:
    clock.wall_ns, clock.monotonic_ns, clock.boot_id = wall, monotonic, boot


def _bytes(offset: int) -> bytes:
    return offset.to_bytes(8, "little", signed=True)
