"""The text of pool records with nothing unusual, many by one call of `%`.

Plain is a valid record of a message on one queue, READY, ACTIVE or HELD, whose body is in no
container. Its lines are those of core.look.pool_dump, which tests compare; what records have in
common (a second, a file of bodies, queue and priority) is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from omq.base.arrays import Rows, Vector
from omq.core.index.item_refs import place
from omq.format.pool import NO_RECORD, RECORD_BYTES, PartState, RecordFlag
from omq.storage.pool_scan import PoolChunk

RECORDS: Final = 512  # rendered at a time
_UNUSUAL: Final = int(RecordFlag.CONTAINER | RecordFlag.MORE_RECORDS)
_KEPT_MAX: Final = 100_000
_RECORD: Final = (
    "{rule}\nPool File={file}\nRecord Num=%d\nOffset=0x%08X\nFileName=%s%d\nFlags=\n"
    "NextRecord=NONE\nCreate Time=%s\nQPoolId=%d\n%s\nDefer Time=NONE\nSubmit Time=%s\n")


def is_plain(chunk: PoolChunk) -> Rows:
    """Mask of the plain records of a chunk."""
    rows = chunk.records
    state = rows["parts_list"]["grade"][:, 0] >> 4
    return np.asarray(chunk.live & (rows["parts"] == 1) & (rows["next"] == NO_RECORD)
                      & (rows["flags"] & _UNUSUAL == 0) & (state != PartState.DEFERRED))


class PlainText:
    """Makes the text; `part` gives the lines of flags and queue of a record from its flags, the
    number of its queue, and its grade; `moment` those of a second."""

    def __init__(self, rule: str, queues: Mapping[int, str], part: Callable[[int, str, int], str],
                 moment: Callable[[int], str]) -> None:
        self._rule = rule
        self._moments = Made(moment)
        self._files = Made(lambda word: place(word, 0)[:-1])
        self._parts = Made(lambda key: part(
            key >> 24, queues.get(key >> 8 & 0xFFFF, f"#{key >> 8 & 0xFFFF}"), key & 0xFF))

    def of(self, chunk: PoolChunk, begin: int, end: int) -> str:
        """The text of these records, which are plain; without the last line end."""
        rows = chunk.records[begin:end]
        part = rows["parts_list"][:, 0]
        numbers = chunk.first + np.arange(begin, end, dtype=np.int64)
        keys = (rows["flags"].astype(np.int64) << 24 | part["queue"].astype(np.int64) << 8
                | part["grade"])
        columns = (
            numbers.tolist(), ((numbers + 1) * RECORD_BYTES).tolist(),
            self._files.each(rows["location"]), rows["offset"].tolist(),
            self._moments.each(rows["time"] // 1_000_000_000), rows["qpool"].tolist(),
            self._parts.each(keys), self._moments.each(part["submitted"]))
        values: list[int | str] = [""] * (len(columns) * len(rows))
        for at, column in enumerate(columns):
            values[at :: len(columns)] = column
        text = _RECORD.replace("{rule}", self._rule).replace("{file}", str(chunk.file))
        return (text * len(rows) % tuple(values))[:-1]


class Made(dict[int, str]):
    """Texts by number, each made once."""

    def __init__(self, make: Callable[[int], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, number: int) -> str:
        shown = self[number] = self._make(number)
        return shown

    def each(self, numbers: Vector) -> list[str]:
        """The text of each number."""
        if len(self) > _KEPT_MAX:
            self.clear()
        return list(map(self.__getitem__, numbers.tolist()))
