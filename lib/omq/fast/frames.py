"""Frames into the block under construction (core.engine.block), and whether they fit.

`open` takes the block's numbers and those of the party that the frames name, `close` gives them
back; nobody else touches the block in between.
"""

from __future__ import annotations

from omq.base import shim as cython
from omq.core.engine.block import Block
from omq.fast.party import Party
from omq.format.journal import BLOCK, FRAME

_NAMES = ("type", "priority", "flags", "queue", "attempt", "lsn", "time", "qpool", "size", "length",
          "crc", "offset", "client", "pid", "file", "spare", "parts", "record", "uid", "lease",
          "token", "sequence", "correlation", "argument", "unit", "reason", "target", "reserved")
_OFFSETS = (0, 1, 2, 4, 6, 8, 16, 24, 32, 40, 44, 48, 52, 56, 60, 61, 62, 64, 68, 72, 80, 88, 96,
            104, 112, 120, 124, 126)
assert FRAME.size == BLOCK.size == 128 and FRAME.names == _NAMES
assert tuple(map(FRAME.offset, _NAMES)) == _OFFSETS
_PACK = FRAME.pack_into


class Frames:
    """See the module. `payload_bytes`: of the block so far, the place of the next payload; `unit`:
    LSN of the first frame of what belongs together, 0: the frames are by themselves; `reason`: of
    each frame."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._buffer = block.writer.buffer
        view = memoryview(self._buffer)
        self._b8, self._b16 = view, view.cast("H")
        self._b32, self._b64 = view.cast("I"), view.cast("Q")
        self.first_lsn = self.count = self.payload_bytes = self._time = self.unit = 0
        self.reason = 0
        self._client = self._pid = self._uid = self._token = self._persistent = 0

    def fits(self, frames: cython.Py_ssize_t, payload_bytes: cython.Py_ssize_t) -> cython.bint:
        """As Block.reserve asks before it would write what there is: only then."""
        block = self._block
        count: cython.Py_ssize_t = block.count
        collected: cython.Py_ssize_t = block.payload_bytes
        count += frames
        return bool(count <= block.frames_max
                    and count * 128 + collected + payload_bytes <= block.left)

    def open(self, party: Party) -> None:
        """Frames of this party follow."""
        block = self._block
        self.first_lsn, self.count = block.first_lsn, block.count
        self.payload_bytes, self._time = block.payload_bytes, block.time_ns
        self._client, self._pid, self._uid = party.client, party.pid, party.uid
        self._token = party.token
        self._persistent = 0

    def close(self) -> None:
        """They count."""
        block = self._block
        block.count, block.payload_bytes = self.count, self.payload_bytes
        if self._persistent:
            block.persistent = True

    def frame(self, kind: cython.uint, priority: cython.uint, flags: cython.uint,
              queue: cython.uint, attempt: cython.uint, qpool: cython.ulonglong,
              size: cython.ulonglong, length: cython.uint, crc: cython.uint,
              offset: cython.Py_ssize_t, file: cython.uint, record: cython.uint, parts: cython.uint,
              lease: cython.ulonglong, sequence: cython.ulonglong, correlation: cython.ulonglong,
              argument: cython.longlong) -> cython.ulonglong:
        """Append one; its LSN. Its payload, if it has one, is the caller's to append."""
        lsn: cython.ulonglong = self.first_lsn + self.count
        at: cython.Py_ssize_t = 128 + 128 * self.count
        self.count += 1
        self._persistent |= flags & 1
        if not cython.compiled:
            _PACK(self._buffer, at, kind, priority, flags, queue, attempt, lsn, self._time, qpool,
                  size, length, crc, offset, self._client, self._pid, file, 0, parts, record,
                  self._uid, lease, self._token, sequence, correlation, argument, self.unit,
                  self.reason, 0, 0)
            return lsn
        at8: cython.Py_ssize_t = at // 8
        at4: cython.Py_ssize_t = at // 4
        at2: cython.Py_ssize_t = at // 2
        self._b8[at], self._b8[at + 1] = kind, priority
        self._b16[at2 + 1], self._b16[at2 + 2], self._b16[at2 + 3] = flags, queue, attempt
        self._b64[at8 + 1], self._b64[at8 + 2] = lsn, self._time
        self._b64[at8 + 3], self._b64[at8 + 4] = qpool, size
        self._b32[at4 + 10], self._b32[at4 + 11] = length, crc
        self._b32[at4 + 12], self._b32[at4 + 13] = offset, self._client
        self._b32[at4 + 14] = self._pid
        self._b8[at + 60], self._b8[at + 61], self._b16[at2 + 31] = file, 0, parts
        self._b32[at4 + 16], self._b32[at4 + 17] = record, self._uid
        self._b64[at8 + 9], self._b64[at8 + 10] = lease, self._token
        self._b64[at8 + 11], self._b64[at8 + 12] = sequence, correlation
        self._b64[at8 + 13] = argument
        self._b64[at8 + 14], self._b64[at8 + 15] = self.unit, self.reason
        return lsn
