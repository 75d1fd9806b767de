"""What a decoder says of bytes that it cannot accept: a typed finding, never an exception.

Kinds matter more than words: recovery decides by kind (lib/omq/docs/RECOVERY), the text is for
people.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Why bytes were not accepted."""

    END = "end"  # zeros: prepared space that was never written; not an error
    TORN = "torn"  # above everything known durable: an append that the crash cut
    CORRUPT = "corrupt"  # at or below what was known durable: damage
    NEWER = "newer"  # written by a newer omq; not damage
    FOREIGN = "foreign"  # another instance's uuid, or not ours at all
    SHORT = "short"  # fewer bytes than the layout needs
    GAP = "gap"  # log sequence numbers are missing
    UNREADABLE = "unreadable"  # the file system gave an error: nothing is known of the bytes
    DUPLICATE = "duplicate"  # two records with one QPoolId: the higher LSN wins


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: where (file, offset in bytes, length in bytes, record), what, and why."""

    kind: Kind
    reason: str
    file: str = ""
    offset: int = 0
    length: int = 0
    record: int = -1
    lsn: int = 0
    count: int = 1  # how much is damaged: places, or messages whose bodies are gone

    def __str__(self) -> str:
        where = f"{self.file} offset {self.offset:#010x}"
        if self.record >= 0:
            where += f" record {self.record}"
        return f"{self.kind.value}: {where}: {self.reason}"
