"""What the pool files should hold, kept by what is written into them, and what they do hold.

`should` begins as poolctrl or the double-write file says it (`take`) and changes with each chunk of
a checkpoint. It never takes over what a file is found to be: so a file that somebody removed, cut
or exchanged stays different until a repair counts anew.

Costs 8 bytes for each slot of the files that are written to, read from a file when it is first
touched; where nothing is known, all files are counted as they are.

Errors: DiskError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.format.double_write import Images
from omq.format.pool import RECORD, RECORD_BYTES, RECORD_MAGIC
from omq.format.pool_contents import Content, Contents, changed, marks_of, sum_of, words_of
from omq.storage.files import File, read_salvaged
from omq.storage.pool_scan import CHUNK_RECORDS

_MAGIC: Final = int.from_bytes(RECORD_MAGIC, "little")
_LSN: Final = RECORD.offset("lsn")
_STEP: Final = 4096  # slots looked at together for the highest in use
Opened = Callable[[int], File | None]


def count_file(file: File | None) -> tuple[Content, Vector]:
    """What a file holds as it is, and the mark of each slot of it."""
    records = 0 if file is None else max(0, file.size() // RECORD_BYTES - 1)
    marks: Vector = np.zeros(records, dtype=np.uint64)
    highest = 0
    for first in range(0, records, CHUNK_RECORDS):
        assert file is not None
        size = min(CHUNK_RECORDS, records - first) * RECORD_BYTES
        data = read_salvaged(file, size, (first + 1) * RECORD_BYTES, RECORD_BYTES)
        words = words_of(data)
        marks[first : first + len(words)] = marks_of(np.arange(first, first + len(words)), words)
        highest = max(highest, _highest_lsn(np.frombuffer(data, dtype="u1"), words))
    return Content(_high(marks, records), int(np.count_nonzero(marks)), highest,
                   sum_of(marks)), marks


def _highest_lsn(data: Vector, words: Vector) -> int:
    named = words & np.uint64(0xFFFFFFFF) == _MAGIC
    rows = data[: len(words) * RECORD_BYTES].reshape(len(words), RECORD_BYTES)
    lsns = np.ascontiguousarray(rows[:, _LSN : _LSN + 8]).view("<u8")[:, 0]
    return int(lsns[named].max(initial=0))


def _high(marks: Vector, below: int) -> int:
    """One more than the highest slot in use below a slot above which none is."""
    while below:
        begin = max(0, below - _STEP)
        used = np.flatnonzero(marks[begin:below])
        if len(used):
            return begin + int(used[-1]) + 1
        below = begin
    return 0


@dataclass(slots=True)
class Chunk:
    """What a chunk makes of the files, until it is durable."""

    should: dict[int, Content]
    marks: list[tuple[int, Vector, Vector]] = field(default_factory=list)  # file, slots, marks


class KeptContents:
    """See the module."""

    def __init__(self) -> None:
        self.should: dict[int, Content] | None = None  # None: not known yet
        self._marks: dict[int, Vector] = {}  # of the files that were counted
        self._spoilt: set[int] = set()

    def take(self, contents: Contents | None) -> None:
        """What the files should hold; what was counted of them stays."""
        self.should = None if contents is None else dict(contents)
        spoilt, self._spoilt = self._spoilt, set()
        self.spoil(spoilt)

    def count(self, file: int, opened: File | None) -> Content:
        """Count a file as it is."""
        found, self._marks[file] = count_file(opened)
        return found

    def with_chunk(self, images: Images, opened: Opened, touched: Callable[[int, Content], None]
                   ) -> Chunk:
        """What it will be with these images (ascending) in place; `commit` makes it so. A file that
        is counted here for the first time is passed to `touched`."""
        assert self.should is not None
        made = Chunk(dict(self.should))
        files = images.slots >> 32
        for file in files[np.flatnonzero(np.diff(files, prepend=-1))].tolist():
            if file not in self._marks:
                touched(file, self.count(file, opened(file)))
            begin, end = np.searchsorted(files, [file, file + 1]).tolist()
            self._change(made, file, images.part(begin, end))
        return made

    def _change(self, made: Chunk, file: int, images: Images) -> None:
        slots = images.slots & 0xFFFFFFFF
        if len(slots) > 1 and bool((slots[1:] == slots[:-1]).any()):  # the later one stays
            last = np.append(slots[1:] != slots[:-1], True)
            slots, data = slots[last], images.data[last]
        else:
            data = images.data
        words = np.ascontiguousarray(data[:, :8]).view("<u8")[:, 0]
        after = marks_of(slots, words)
        highest = _highest_lsn(np.ascontiguousarray(data).reshape(-1), words)
        before = made.should.get(file, Content())
        marks = self._room(file, int(slots[-1]) + 1)
        old = marks[slots]
        marks[slots] = after
        high = _high(marks, max(before.slots, int(slots[-1]) + 1))
        marks[slots] = old
        made.marks.append((file, slots, after))
        made.should[file] = changed(before, slots, old, after, highest, high)

    def _room(self, file: int, slots: int) -> Vector:
        marks = self._marks[file]
        if slots > len(marks):
            more: Vector = np.zeros(slots + slots // 4, dtype=np.uint64)
            more[: len(marks)] = marks
            self._marks[file] = marks = more
        return marks

    def commit(self, made: Chunk) -> None:
        """The chunk is durable in the double-write file."""
        self.should = made.should
        for file, slots, after in made.marks:
            self._marks[file][slots] = after

    def spoil(self, files: Iterable[int]) -> None:
        """Changes of these are left out: no file as it was is what should be there any more."""
        for file in {*files} - self._spoilt:
            self._spoilt.add(file)
            if self.should is not None:
                before = self.should.get(file, Content())
                self.should[file] = replace(before, sum=(before.sum + 1) % (1 << 64))

    def forget(self) -> None:
        """Nothing is known any more: the files were written without this."""
        self.should = None
        self._marks.clear()

    def everything(self, files: Iterable[int], opened: Opened) -> dict[int, Content]:
        """What should be there; where that is not known, what is there counts from now on."""
        if self.should is None:
            self.should = {file: self.count(file, opened(file)) for file in files}
        return self.should
