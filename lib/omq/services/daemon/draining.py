"""How long a server that was told to stop lets its clients finish: `drain_timeout_s`, but no longer
than SUSPENDED_S while the queue manager is stopped by a signal. At a shutdown of the host nobody
lets it go on, and each service would take its whole time one after the other.

What is cut off was not acknowledged: its client sends it again. Errors: none.
"""

from __future__ import annotations

import time
from typing import Final

from omq.base.paths import SpoolPaths
from omq.ipc.client.manager_absence import is_suspended

SUSPENDED_S: Final = 5.0
"""As long as a reader waits that should stop (ipc.client.registration.INTERRUPTED_S)."""


class Draining:
    """Of one stop; it begins now."""

    def __init__(self, paths: SpoolPaths, wait_s: float) -> None:
        self._paths = paths
        self._ends = time.monotonic() + wait_s
        self._suspended_since: float | None = None

    @property
    def over(self) -> bool:
        """Is nobody let finish any more? Ask again and again."""
        now = time.monotonic()
        if not is_suspended(self._paths):
            self._suspended_since = None
        elif self._suspended_since is None:
            self._suspended_since = now
        elif now - self._suspended_since >= SUSPENDED_S:
            return True
        return now >= self._ends
