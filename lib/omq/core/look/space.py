"""Disk space and room of the index as operators see them: whether the queue manager refuses new
messages.

The manager says so in the index (Counter.SPACE_LOW: less is free than disk_reserve_bytes or
inode_reserve; INDEX_LOW: less than index_reserve_percent); how much of the disk is free, and what
fills the spool when it is little, is asked here (storage.disk_usage). Of a manager that does not
run nothing is known.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from omq.base.amounts import size
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.core.index.view import IndexView
from omq.storage import disk_usage, durable
from omq.storage.disk_usage import NOTHING, Filled


@dataclass(frozen=True, slots=True)
class Space:
    """Of the file system that the spool is on. `low` and `index_low` None: no manager says it;
    `free_bytes` None: the system does not; `inodes` 0: it does not count them."""

    low: bool | None
    free_bytes: int | None
    index_low: int | None = None
    inodes: int = 0
    inodes_free: int = 0
    lacks_inodes: bool = False  # low of these, not of bytes
    filled: Filled = NOTHING  # looked at while it is low

    @property
    def note(self) -> str:
        """What to tell; empty while there is enough."""
        return "; ".join(filter(None, (self.disk_note, self.index_note)))

    @property
    def index_note(self) -> str:
        """Of the index."""
        return _INDEX_NOTES[self.index_low or 0]

    @property
    def disk_note(self) -> str:
        """Of bytes and inodes, with what fills the spool."""
        if not self.low:
            return ""
        free = "" if self.free_bytes is None else f": {size(self.free_bytes)} free"
        what, key = "disk space", "disk_reserve_bytes is"
        if self.lacks_inodes:
            what, key = "inodes", "inode_reserve are"
            free = f": {self.inodes_free} of {self.inodes} free (a file takes one)"
        return "; ".join(filter(None, (
            f"{what} LOW{free}; new messages are refused until more than {key} free, done, move "
            "and delete go on",
            self.filled.files_text if self.lacks_inodes else self.filled.text)))

    def record(self) -> dict[str, object]:
        """Its keys in JSON."""
        return {"space_low": self.low, "space_free_bytes": self.free_bytes,
                "index_low": self.index_low,
                "inodes_free": self.inodes_free if self.inodes else None,
                "space_parts": dict(self.filled.parts) or None}


_INDEX_NOTES: Final = (
    "",
    "the index is almost FULL: new messages of other users than the spool's owner and root are "
    "refused, done, move and delete go on",
    "the index is FULL: new messages are refused, done, move and delete go on")
UNKNOWN: Final = Space(None, None)


def space(paths: SpoolPaths, view: IndexView | None) -> Space:
    """`view`: of the index of a running manager; None: none runs."""
    free: int | None = None
    inodes = inodes_free = 0
    with suppress(OmqError):
        found = durable.file_system(paths.journal)
        free, inodes, inodes_free = found.free, found.inodes, found.inodes_free
    if view is None:
        return Space(None, free, None, inodes, inodes_free)
    counters = view.counters()
    low = int(counters["space_low"])
    return Space(bool(low), free, min(int(counters["index_low"]), 2), inodes, inodes_free, low == 2,
                 disk_usage.filled(paths) if low else NOTHING)
