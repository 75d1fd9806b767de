"""How many requests a group of the manager should wait for (ipc.server.requests says why)."""

from __future__ import annotations

from omq.base import shim as cython

_PAUSE_BITS = 10
PAUSE_MAX = 1 << _PAUSE_BITS
"""Groups without another try, at most, after waits in vain."""


class Company:
    """See the module. `most`: above it, for none."""

    def __init__(self, most: cython.Py_ssize_t) -> None:
        self._most = most
        self._wanted = 0
        self._proven = False  # so many came when they were waited for
        self._before = 0
        self._vain = 0  # waits in a row
        self._pause = 0  # groups to come that wait for nobody

    def wanted(self, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A group has `count` requests: how many it should have."""
        return max(count, self._wanted) if count else 0

    def had(self, count: cython.Py_ssize_t, waited: cython.bint) -> None:
        """A group goes on with `count` requests."""
        if waited and count:
            self._proven = count >= self._wanted
            self._vain = 0 if self._proven else min(self._vain + 1, _PAUSE_BITS)
            self._pause = 0 if self._proven else 1 << self._vain
            self._wanted = count if self._proven else 0
        elif count and self._pause:
            self._pause -= 1
        elif count:
            self._wanted = max(count, self._wanted) if self._proven else count + self._before
        if self._wanted > self._most:
            self._wanted, self._proven = 0, False
        if count:
            self._before = count
