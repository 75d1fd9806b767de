"""How far the journal of this host is durable, as its queue manager says in the index: for what
sends it elsewhere, and lives while managers come and go.

Whether the manager still runs is looked at once in ALIVE_NS: what it has said is true behind its
end as well, and memory that is attached stays there.

No errors: without a manager the last LSN that was seen counts, and `known` says whether one was.
"""

from __future__ import annotations

from typing import Final

from omq.base import clock
from omq.base.errors import ManagerUnavailable
from omq.base.paths import SpoolPaths
from omq.format.index import Counter
from omq.services.pool.live_index import LiveIndex

ALIVE_NS: Final = 50_000_000


class DurableLook:
    """`lsn`: the last one that is known to be durable; `index`: of the manager that runs, None:
    none does."""

    def __init__(self, paths: SpoolPaths) -> None:
        self.index: LiveIndex | None = None
        self.lsn = 0
        self.known = False  # a manager has said so, since this process began
        self._paths = paths
        self._due = 0

    def look(self) -> int:
        """The last LSN that is durable here."""
        now = clock.monotonic_ns()
        if now >= self._due or self.index is None:
            self._due = now + ALIVE_NS
            if self.index is not None and not self.index.running:
                self.close()
            if self.index is None:
                try:
                    self.index = LiveIndex(self._paths)
                except ManagerUnavailable:
                    return self.lsn
        self.lsn, self.known = max(self.lsn, self.index.counter(Counter.DURABLE_LSN)), True
        return self.lsn

    def close(self) -> None:
        """Let go of the index."""
        if self.index is not None:
            self.index.close()
            self.index = None
