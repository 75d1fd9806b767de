"""What pool.writer says of the disk: where its checkpoint is, whether it can make room, and what
fills the spool. The manager measures its lag by it, slows producers down, and says it in refusals.

Of a manager that has just started nothing lies after the checkpoint, and nothing was said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TEXT_MAX: Final = 300  # characters of `says`: it travels in each refusal
RESERVED: Final = ("less is free than disk_reserve_bytes",
                   "fewer inodes are free than inode_reserve")


@dataclass(slots=True)
class DiskState:
    """See the module. `file`, `offset`: the place in the journal up to which the pool has all."""

    file: int = 0
    offset: int = 0
    stuck: bool = False  # nothing can be retired, no history can go
    says: str = ""
    lacks: str = RESERVED[0]

    @property
    def refusal(self) -> str:
        """Why there is no room for a message, for a SpoolFull."""
        return "; ".join(filter(None, (self.lacks, self.says)))

    def behind(self, file: int, offset: int, file_bytes: int) -> int:
        """Bytes of the journal, which is written at this place, after the checkpoint."""
        if not self.file:
            self.file, self.offset = file, offset
        return max(0, (file - self.file) * file_bytes + offset - self.offset)
