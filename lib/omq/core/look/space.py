"""Disk space and room of the index as an operator is told of them: whether the queue manager
refuses new messages.

The manager says so in the index (Counter.SPACE_LOW: less is free than disk_reserve_bytes;
INDEX_LOW: less than index_reserve_percent); how much of the disk is free is asked here. Of a
manager that does not run nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omq.base.amounts import size
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.core.index.view import IndexView
from omq.storage import durable


@dataclass(frozen=True, slots=True)
class Space:
    """Of the file system that the spool is on. `low` and `index_low` None: no manager says it;
    `free_bytes` None: the system does not."""

    low: bool | None
    free_bytes: int | None
    index_low: int | None = None

    @property
    def note(self) -> str:
        """What to tell; empty while there is enough."""
        return "; ".join(filter(None, (self._disk_note(), _INDEX_NOTES[self.index_low or 0])))

    def _disk_note(self) -> str:
        if not self.low:
            return ""
        free = "" if self.free_bytes is None else f": {size(self.free_bytes)} free"
        return (f"disk space LOW{free}; new messages are refused until more than "
                "disk_reserve_bytes is free, done, move and delete go on")

    def record(self) -> dict[str, object]:
        """Its keys in JSON."""
        return {"space_low": self.low, "space_free_bytes": self.free_bytes,
                "index_low": self.index_low}


_INDEX_NOTES: Final = (
    "",
    "the index is almost FULL: new messages of other users than the spool's owner and root are "
    "refused, done, move and delete go on",
    "the index is FULL: new messages are refused, done, move and delete go on")
UNKNOWN: Final = Space(None, None)


def space(paths: SpoolPaths, view: IndexView | None) -> Space:
    """`view`: of the index of a running manager; None: none runs."""
    try:
        free: int | None = durable.free_bytes(paths.journal)
    except OmqError:
        free = None
    if view is None:
        return Space(None, free)
    counters = view.counters()
    return Space(bool(counters["space_low"]), free, min(int(counters["index_low"]), 2))
