"""How far the journal of this host is durable, as its queue manager says in the index: for what
sends it elsewhere, and lives while managers come and go.

No errors: without a manager the last LSN that was seen counts, and `known` says whether one was.
"""

from __future__ import annotations

from omq.base.errors import ManagerUnavailable
from omq.base.paths import SpoolPaths
from omq.format.index import Counter
from omq.services.pool.live_index import LiveIndex


class DurableLook:
    """`lsn`: the last one that is known to be durable; `index`: of the manager that runs, None:
    none does."""

    def __init__(self, paths: SpoolPaths) -> None:
        self.index: LiveIndex | None = None
        self.lsn = 0
        self.known = False  # a manager has said so, since this process began
        self._paths = paths

    def look(self) -> int:
        """The last LSN that is durable here."""
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
