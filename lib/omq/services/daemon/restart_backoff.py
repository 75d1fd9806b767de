"""Exponential back-off between restarts of one process.

Invariants: 1. the wait doubles from `min_s` to `max_s` while starts fail one after another; 2. a
process that lived longer than `max_s` counts as healthy and starts again from `min_s`, so a crash
once a day never waits long and a crash loop never burns the machine; 3. `min_s` 0 means that only
the first restart is immediate, then the wait doubles from one second.
"""

from __future__ import annotations

_DOUBLINGS_MAX = 32  # beyond this min_s * 2**n only grows the integer, not the wait


class Backoff:
    """The waits of one process; not shared."""

    def __init__(self, min_s: float, max_s: float) -> None:
        assert min_s >= 0 and max_s > 0
        self._min_s = min_s
        self._max_s = max(min_s, max_s)
        self._failures = 0

    def next_wait_s(self, lived_s: float) -> float:
        """Seconds to wait before the next start, given how long the process lived."""
        if lived_s > self._max_s:
            self._failures = 0
        failures = self._failures
        self._failures = min(failures + 1, _DOUBLINGS_MAX)
        if self._min_s == 0:
            return 0.0 if failures == 0 else min(self._max_s, 2.0 ** (failures - 1))
        return min(self._max_s, self._min_s * 2.0**failures)

    def reset(self) -> None:
        """Forget the failures: the operator asked for a start."""
        self._failures = 0
