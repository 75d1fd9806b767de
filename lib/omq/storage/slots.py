"""Which slot of which pool file a new message gets: O(1), whatever was freed before.

Kept in memory only; at a start it is loaded from the slots found in use.

Invariants, for each file:
1. `used[n]` is 1 exactly for the slots in use below the high-water mark; above it all are free.
2. The highest slot below the mark is in use: the mark sinks as soon as that one is freed, so that
   the trailing space can be cut at the next checkpoint.
3. Every free slot below the mark is on the stack of freed slots. Entries at or above the mark are
   stale and are dropped when they come up. The mark rises when the stack is empty, and for a run
   of slots; a slot that is on the stack twice because of that is dropped when it is found in use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from omq.base.arrays import Vector
from omq.base.limits import POOL_FILES_MAX


@dataclass(slots=True)
class FileSlots:
    """The slots of one pool file."""

    used: bytearray = field(default_factory=bytearray)  # its length is the high-water mark
    freed: list[int] = field(default_factory=list)
    live: int = 0

    def alloc(self) -> int:
        high = len(self.used)
        self.live += 1
        while self.freed:
            slot = self.freed.pop()
            if slot < high and not self.used[slot]:
                self.used[slot] = 1
                return slot
        self.used.append(1)
        return high

    def alloc_run(self, count: int) -> int:
        """`count` slots in a row, at the end of the file: rare, so no search for a gap."""
        high = len(self.used)
        self.used += b"\1" * count
        self.live += count
        return high

    def free(self, slot: int) -> None:
        assert slot < len(self.used) and self.used[slot], f"slot {slot} is free already"
        self.live -= 1
        self.used[slot] = 0
        if slot + 1 < len(self.used):
            self.freed.append(slot)
            return
        while self.used and not self.used[-1]:
            self.used.pop()
        if not self.used:
            self.freed.clear()


class SlotAllocator:
    """Slots of all pool files of an instance."""

    __slots__ = ("_excluded", "_files")

    def __init__(self) -> None:
        self._excluded: set[int] = set()
        self._files: dict[int, FileSlots] = {}

    def load(self, file: int, used: Iterable[int] | Vector) -> None:
        """Take over a file with these slots in use (an empty one, too); replaces what was known."""
        if isinstance(used, np.ndarray):
            numbers = used.astype(np.int64, copy=False)
        else:
            numbers = np.fromiter(used, dtype=np.int64)
        flags = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, dtype=np.uint8)
        flags[numbers] = 1
        # The lowest free slot comes up first: files stay dense after a restart.
        freed = np.flatnonzero(flags == 0)[::-1].tolist()
        self._files[file] = FileSlots(bytearray(flags.tobytes()), freed, int(flags.sum()))

    def exclude(self, file: int) -> None:
        """Never choose this file: what lies there under its name is not ours or cannot be read."""
        self._excluded.add(file)
        self._files.pop(file, None)

    def file(self, file: int) -> FileSlots:
        """The slots of a pool file, for who takes and gives many."""
        return self._files[file]

    def alloc(self, file: int, run: int = 1) -> int:
        """A free slot of a pool file, now in use; the first of `run` slots in a row."""
        slots = self._files[file]
        return slots.alloc() if run == 1 else slots.alloc_run(run)

    def free(self, file: int, record: int, run: int = 1) -> None:
        """The slots may be used again. They must be in use."""
        slots = self._files[file]
        for number in range(record, record + run):
            slots.free(number)

    def free_many(self, files: Vector,
                  records: Vector) -> None:
        """The same for one slot of each message; shapes (n,)."""
        known = self._files
        for file, record in zip(files.tolist(), records.tolist(), strict=True):
            known[file].free(record)

    def high_water(self, file: int) -> int:
        """Slots that the file needs: one more than the highest in use."""
        return len(self._files[file].used)

    def live(self, file: int) -> int:
        """Slots in use."""
        return self._files[file].live

    def in_use(self, file: int, record: int, run: int = 1) -> bool:
        """Whether all of `run` slots in a row are in use."""
        used = self._files[file].used if file in self._files else bytearray()
        return record + run <= len(used) and all(used[record : record + run])

    def files(self) -> list[int]:
        """Pool files known, ascending."""
        return sorted(self._files)

    def choose_file(self, pid: int) -> int:
        """The pool file for a submitter, by the rule of the original: pid modulo 100 if that file
        exists, else the next highest unused number. The caller keeps the answer for the client."""
        wanted = pid % POOL_FILES_MAX
        if wanted in self._files:
            return wanted
        number = max({*self._files, *self._excluded}, default=-1) + 1
        if number >= POOL_FILES_MAX:
            around = ((wanted + step) % POOL_FILES_MAX for step in range(POOL_FILES_MAX))
            number = next(n for n in around if n not in self._excluded)
        if number not in self._files:
            self._files[number] = FileSlots()
        return number
