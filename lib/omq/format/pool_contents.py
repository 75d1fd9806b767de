"""What a pool file holds, in 32 bytes: kept by poolctrl and by the double-write file, so that a
start sees whether a file is absent, cut, emptied, older, another one's, or lost a record.

    row := file, slots, used, highest LSN, sum

`used` counts the slots that are not free, `slots` is one more than the highest of them, `lsn` the
highest LSN that a record which was written there ever had. `sum` adds up a mark of every used slot,
modulo 2**64: a mix of the slot's number and the CRC field of its record. So it is kept by what
changes: less the mark of the old record, plus that of the new one. A zeroed slot and one after the
end of the file add nothing: cutting free space at the end changes no row.

The mix is the finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014; constants by Stafford): two
records that change places, or a record under another CRC, change the sum but for one case in 2**64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.base.limits import POOL_FILES_MAX
from omq.format.layout import Layout
from omq.format.pool import RECORD_BYTES

ROW: Final = Layout("file:H spare:H slots:I used:I reserved:I lsn:Q sum:Q", 32)
_WORDS: Final = RECORD_BYTES // 8
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Content:
    """What one pool file holds; see the module."""

    slots: int = 0
    used: int = 0
    lsn: int = 0
    sum: int = 0

    def like(self, other: Content) -> bool:
        """Do they hold the same records?"""
        return (self.slots, self.used, self.sum) == (other.slots, other.used, other.sum)


Contents = Mapping[int, Content]  # by the number of the pool file


def encode_rows(contents: Contents) -> bytes:
    """ROW for each file, by its number."""
    return b"".join(ROW.pack(file, 0, c.slots, c.used, 0, c.lsn, c.sum)
                    for file, c in sorted(contents.items()))


def decode_rows(data: bytes | memoryview, count: int, at: int) -> dict[int, Content] | None:
    """`count` rows from offset `at`; None when one names a file that there cannot be."""
    rows = [ROW.unpack_from(data, at + i * ROW.size) for i in range(count)]
    if any(row[0] >= POOL_FILES_MAX for row in rows):
        return None
    return {file: Content(slots, used, lsn, total)
            for file, _spare, slots, used, _reserved, lsn, total in rows}


def words_of(data: bytes | memoryview | Vector) -> Vector:
    """The first 8 bytes of each record (magic and CRC field), shape (n,); 0: a free slot."""
    words = np.frombuffer(data, dtype="<u8", count=len(data) // RECORD_BYTES * _WORDS)
    return np.ascontiguousarray(words[::_WORDS])


def marks_of(slots: Vector, words: Vector) -> Vector:
    """The mark (uint64) of each slot by its `words_of`; 0 for a free one. Shapes (n,)."""
    mixed: Vector = slots.astype(np.uint64) << np.uint64(32) | words >> np.uint64(32)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    mixed |= np.uint64(1)
    mixed[words == 0] = 0
    return mixed


def sum_of(marks: Vector) -> int:
    """Marks added up, modulo 2**64."""
    return int(marks.sum(dtype=np.uint64)) & _MASK


def changed(content: Content, slots: Vector, before: Vector, after: Vector, lsn: int, high: int
            ) -> Content:
    """`content` once the marks of `slots` are `after` instead of `before`; `high`: one more than
    the highest slot in use then; `lsn`: the highest of the records that were written."""
    used = content.used + int(np.count_nonzero(after)) - int(np.count_nonzero(before))
    total = (content.sum + sum_of(after) - sum_of(before)) & _MASK
    return Content(high, used, max(content.lsn, lsn), total)
