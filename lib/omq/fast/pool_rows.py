"""Plain records of the Message Pool at a start: checked, and taken apart into columns, by one loop.

A chunk is plain if each of its slots is free or holds a valid message of one record, on one queue
at most, without a note. Of any other chunk nothing is taken: storage.pool_scan judges it and
core.load.pool_columns takes it apart, as they do with all of them where this is not compiled. Both
ways fill the same columns, byte for byte (tests/forms/test_pool_rows.py).

Invariants: 1. what is taken has passed every check of storage.pool_scan; 2. a slot that is not free
and not taken makes its whole chunk not plain, so nothing damaged is passed over in silence.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.format.pool import (
    CRC_FROM,
    NO_RECORD,
    PART,
    PARTS_PER_RECORD,
    RECORD,
    RECORD_BYTES,
    RECORD_MAGIC,
    VERSION,
    PartState,
    RecordKind,
)

if cython.compiled:
    from cython.cimports.omq.fast.crc32c import crc32c as _crc32c
    from cython.cimports.omq.fast.crc32c import has_crc32c as _has_crc32c
else:
    from omq.base.shim import crc32c as _crc32c
    from omq.base.shim import has_crc32c as _has_crc32c

_PLACES = {"magic": 0, "crc": 4, "version": 8, "kind": 9, "used": 10, "file": 12, "note": 13,
           "parts": 14, "flags": 16, "record": 20, "next": 24, "lsn": 28, "qpool": 36, "time": 44,
           "message_id": 52, "correlation_id": 76, "location": 100, "length": 104, "offset": 108,
           "body_crc": 112, "size": 116, "expiry": 124, "pid": 132, "uid": 136, "origin": 142,
           "group": 144, "group_sequence": 152, "trace": 168}
assert all(RECORD.offset(name) == at for name, at in _PLACES.items())
assert RECORD.size == 176 and RECORD_BYTES == 512 and CRC_FROM == 8 and PARTS_PER_RECORD == 16
assert PART.size == 21 and tuple(map(PART.offset, PART.names)) == (0, 2, 3, 4, 5, 9, 13)
assert PART.names == ("queue", "grade", "attempts", "retries", "until", "submitted", "sequence")

_MAGIC = int.from_bytes(RECORD_MAGIC, "little")
_NONE, _VERSION, _LIVE = NO_RECORD, VERSION, int(RecordKind.LIVE)
_STATES = sum(1 << int(state) for state in PartState)


def usable() -> bool:
    """Whether it is quicker than what it replaces: compiled, on a processor that has the
    instruction."""
    return bool(_has_crc32c())


class PoolRows:
    """See the module. `bind` the columns, then `take` chunk after chunk."""

    def __init__(self) -> None:
        self.parts = 0  # of the chunk that was taken last: messages that are on a queue
        self._known = _STATES

    def bind(self, messages: dict[str, Any], parts: dict[str, Any]) -> None:
        """The columns to fill: numpy vectors, by the names of core.load.pool_columns."""
        self._qpool, self._lsn, self._trace = messages["qpool"], messages["lsn"], messages["trace"]
        self._time, self._expiry = messages["time"].view("<u8"), messages["expiry"].view("<u8")
        self._size, self._group = messages["size"], messages["group"]
        self._location, self._offset = messages["location"], messages["offset"]
        self._length, self._crc = messages["length"], messages["body_crc"]
        self._pid, self._uid, self._record = messages["pid"], messages["uid"], messages["record"]
        self._next, self._flags = messages["next"], messages["flags"]
        self._number, self._origin = messages["group_sequence"], messages["origin"]
        self._file = messages["file"]
        self._id = messages["message_id"].view("<u4")
        self._correlation = messages["correlation_id"].view("<u4")
        self._queue, self._grade, self._attempts = parts["queue"], parts["grade"], parts["attempts"]
        self._retries, self._until = parts["retries"], parts["until"]
        self._submitted, self._sequence = parts["submitted"], parts["sequence"]
        self._row = parts["row"]

    def take(self, data: bytes, file: cython.uint, first: cython.uint, row: cython.Py_ssize_t,
             part: cython.Py_ssize_t) -> int:
        """How many messages the slots from `first` on hold; they are in the columns from `row` on,
        their places on queues from `part` on. -1: the chunk is not plain, and what is in the
        columns there counts for nothing."""
        at: cython.Py_ssize_t = 0
        slot: cython.uint = first
        made: cython.Py_ssize_t = 0
        listed: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        head: cython.uint
        place: cython.uint
        grade: cython.uint
        count: cython.uint
        used: cython.uint
        self._bytes = data
        self._words = memoryview(data).cast("I")
        end: cython.Py_ssize_t = len(data) // RECORD_BYTES * 128
        while at < end:
            if self._words[at] != _MAGIC:
                for i in range(at, at + 128):
                    if self._words[i]:
                        return -1
                at, slot = at + 128, slot + 1
                continue
            head, place = self._words[at + 2], self._words[at + 3]
            used, count = head >> 16, place >> 16
            if (head & 255 > _VERSION or head >> 8 & 255 != _LIVE or count > 1
                    or used != 176 + 21 * count or place & 255 != file or place >> 8 & 255
                    or self._words[at + 5] != slot or self._words[at + 6] != _NONE
                    or _crc32c(self._bytes, 4 * at + 8, 4 * at + used) != self._words[at + 1]):
                return -1
            if count:
                grade = self._words[at + 44] >> 16 & 255
                if grade & 15 > 9 or not self._known >> (grade >> 4) & 1:
                    return -1
                self._place(at, part + listed, row + made)
                listed += 1
            self._message(at, row + made)
            made, at, slot = made + 1, at + 128, slot + 1
        self.parts = listed
        return made

    def _message(self, at: cython.Py_ssize_t, row: cython.Py_ssize_t) -> None:
        """The record at this word, into the columns."""
        i: cython.Py_ssize_t
        self._file[row], self._flags[row] = self._words[at + 3] & 255, self._words[at + 4]
        self._record[row], self._next[row] = self._words[at + 5], self._words[at + 6]
        self._lsn[row], self._qpool[row] = self._long(at + 7), self._long(at + 9)
        self._time[row] = self._long(at + 11)
        for i in range(6):
            self._id[6 * row + i] = self._words[at + 13 + i]
            self._correlation[6 * row + i] = self._words[at + 19 + i]
        self._location[row], self._length[row] = self._words[at + 25], self._words[at + 26]
        self._offset[row], self._crc[row] = self._words[at + 27], self._words[at + 28]
        self._size[row], self._expiry[row] = self._long(at + 29), self._long(at + 31)
        self._pid[row], self._uid[row] = self._words[at + 33], self._words[at + 34]
        self._origin[row] = self._words[at + 35] >> 16
        self._group[row], self._number[row] = self._long(at + 36), self._words[at + 38]
        self._trace[row] = self._long(at + 42)

    def _place(self, at: cython.Py_ssize_t, part: cython.Py_ssize_t,
               row: cython.Py_ssize_t) -> None:
        """Its first queue part, which begins at byte 176 and is not aligned behind its fifth
        byte."""
        a: cython.uint = self._words[at + 44]
        b: cython.uint = self._words[at + 45]
        c: cython.uint = self._words[at + 46]
        d: cython.uint = self._words[at + 47]
        self._queue[part], self._grade[part] = a & 0xFFFF, a >> 16 & 255
        self._attempts[part], self._retries[part] = a >> 24, b & 255
        self._until[part] = b >> 8 | (c & 255) << 24
        self._submitted[part] = c >> 8 | (d & 255) << 24
        above: cython.ulonglong = self._long(at + 48) & 0xFFFFFFFFFF
        self._sequence[part] = above << 24 | d >> 8
        self._row[part] = row

    def _long(self, at: cython.Py_ssize_t) -> cython.ulonglong:
        """Eight bytes from this word on."""
        low: cython.ulonglong = self._words[at]
        high: cython.ulonglong = self._words[at + 1]
        return low | high << 32
