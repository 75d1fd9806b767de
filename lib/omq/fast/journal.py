"""The block of a group into the journal and onto the disk: as Block.write_in_steps, JournalWriter's
append and File's write and sync, in one function and on the same objects.

Crash argument: theirs. The block is written whole by one pwritev(2), its header with the durable
LSN as it was before; `durable_lsn` moves when fdatasync(2) has returned; what the disk refuses
latches. The system calls go through omq.storage.disk, so the simulator of power cuts sees them.
While a crash point is armed the block is written in steps, where the points are.
"""

from __future__ import annotations

from typing import Any

from omq.base import fault
from omq.base import shim as cython
from omq.base.checksum import crc32c
from omq.core.engine.engine import Engine
from omq.fast.columns import Columns, bits
from omq.format.durations import SYNCS_TIMED, TIME_SHIFT
from omq.format.index import Counter
from omq.format.journal import BLOCK, BLOCK_MAGIC, CRC_FROM, FRAME, VERSION, BlockFlag
from omq.storage import durable
from omq.storage.disk import IOV_MAX
from omq.storage.journal import PADDING

if cython.compiled:
    from cython.cimports.omq.fast.crc32c import crc32c as _crc32c
    from cython.cimports.omq.fast.crc32c import has_crc32c as _has_crc32c
    from cython.cimports.omq.fast.sysv import mono_ns as _mono_ns
else:
    from omq.base.shim import crc32c as _crc32c
    from omq.base.shim import has_crc32c as _has_crc32c
    from omq.base.shim import mono_ns as _mono_ns

_NAMES = ("magic", "crc", "version", "header", "count", "uuid", "epoch", "first_lsn", "durable",
          "time", "number", "sequence", "payload", "length", "flags", "term", "next_qpool",
          "reserved")
assert BLOCK.names == _NAMES and FRAME.size == BLOCK.size == 128 and CRC_FROM == 8
assert tuple(map(BLOCK.offset, _NAMES)) == (0, 4, 8, 10, 12, 16, 32, 40, 48, 56, 64, 68, 72, 76, 80,
                                            84, 88, 96)
_MAGIC, _VERSION = BLOCK_MAGIC, VERSION
_UNSYNCED, _IOV_MAX = int(BlockFlag.UNSYNCED), IOV_MAX
_FRAMES, _SYNC_US, _US, _SHIFT = int(Counter.FRAMES), int(Counter.SYNC_US), 1000, TIME_SHIFT
_TIMED = SYNCS_TIMED
_FEW = 16  # frames: more are summed as fast by the library, with its call
_GROUPS, _FILE, _BYTES = int(Counter.GROUPS), int(Counter.JOURNAL_FILE), int(Counter.JOURNAL_BYTES)


class Journal:
    """See the module. `write` takes the place of Block.write_in_steps, so it is one of Python's."""

    def __init__(self, engine: Engine, columns: Columns) -> None:
        block = engine.core.block
        writer: Any = block.writer
        self._block, self._writer, self._c = block, writer, columns
        epoch = writer.epoch
        self._page: int = epoch.page
        self._file_bytes: int = epoch.file_bytes
        self._view = view = memoryview(writer.buffer)
        self._b8, self._b32, self._b64 = view, view.cast("I"), view.cast("Q")
        view[:128] = bytes(128)
        BLOCK.pack_into(view, 0, _MAGIC, 0, _VERSION, 128, 0, epoch.uuid, epoch.number, 0, 0, 0, 0,
                        0, 0, 0, 0, epoch.term, 0, b"")

    def write(self, force: cython.uint) -> None:
        """All frames of the block, of which there are some; synced when one is persistent, when
        many were not, or by `force`. DiskError."""
        if fault.armed():
            self._block.write_in_steps(force)
        else:
            self._write(force)

    def _write(self, force: cython.uint) -> None:
        block, writer = self._block, self._writer
        count: cython.Py_ssize_t = block.count
        payload_bytes: cython.Py_ssize_t = block.payload_bytes
        unsynced: cython.Py_ssize_t = block.unsynced
        offset: cython.Py_ssize_t = writer.offset
        first: cython.ulonglong = block.first_lsn
        last: cython.ulonglong = writer.last_lsn
        assert first == last + 1
        heads: cython.Py_ssize_t = 128 + 128 * count
        length: cython.Py_ssize_t = heads + payload_bytes + self._page - 1
        length = length // self._page * self._page
        assert length <= self._room(offset)
        unsynced += count
        flushed: cython.bint = bool(
            force or block.persistent or unsynced >= block.unsynced_max)
        self._seal(count, first, payload_bytes, length, 0 if flushed else _UNSYNCED)
        file = writer.file
        buffers = [self._view[:heads], *block.payloads, PADDING[: length - heads - payload_bytes]]
        self._put_down(file, buffers, offset, length)
        writer.offset = offset + length
        writer.sequence += 1
        writer.last_lsn = last + count
        took: cython.longlong = -1
        syncs: cython.ulonglong = writer.syncs
        if flushed:
            if writer.written is not None:
                writer.written(last + count)
            if syncs % _TIMED == 0:
                took = -_mono_ns()
            self._sync(file)
            if took != -1:
                took += _mono_ns()
            writer.durable_lsn = last + count
            writer.syncs = syncs + 1
            unsynced = 0
        block.unsynced = unsynced
        block.left = min(block.bytes_max, self._room(offset + length)) - 128
        self._flushed(count, payload_bytes, offset + heads, took)
        block.first_lsn = first + count
        block.count = block.payload_bytes = 0
        block.payloads = []
        block.persistent = False
        block.puts.clear()

    def _room(self, offset: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """As JournalWriter.room, at this offset of the file."""
        left: cython.Py_ssize_t = self._file_bytes - offset
        return left // self._page * self._page

    def _seal(self, count: cython.Py_ssize_t, first: cython.ulonglong,
              payload_bytes: cython.Py_ssize_t, length: cython.Py_ssize_t, flags: cython.uint
              ) -> None:
        """As format.journal.seal_block. What never changes in a header was written once."""
        block, writer, view = self._block, self._writer, self._view
        if not cython.compiled:
            epoch = writer.epoch
            BLOCK.pack_into(view, 0, _MAGIC, 0, _VERSION, 128, count, epoch.uuid, epoch.number,
                            first, writer.durable_lsn, block.time_ns, writer.file_number,
                            writer.sequence, payload_bytes, length, flags, epoch.term,
                            block.next_qpool, b"")
        else:
            self._b32[3], self._b64[5], self._b64[6] = count, first, writer.durable_lsn
            self._b64[7], self._b32[16], self._b32[17] = (
                block.time_ns, writer.file_number, writer.sequence)
            self._b32[18], self._b32[19], self._b32[20] = payload_bytes, length, flags
            self._b64[11] = block.next_qpool
        end: cython.Py_ssize_t = 128 + 128 * count
        self._b32[1] = (_crc32c(self._b8, 8, end) if count <= _FEW and _has_crc32c()
                        else crc32c(view[8:end]))

    def _put_down(self, file: Any, buffers: list[Any], offset: cython.Py_ssize_t,
                  length: cython.Py_ssize_t) -> None:
        """As File.write."""
        durable.check_latch()
        written: cython.Py_ssize_t
        try:
            written = durable.current().pwritev(
                file.fd, buffers if len(buffers) <= _IOV_MAX else buffers[:_IOV_MAX], offset)
            if written != length:
                file.write_rest(buffers, offset, written)
        except OSError as error:
            raise durable.failure("write", file.path, error) from error

    def _sync(self, file: Any) -> None:
        """As File.sync."""
        durable.check_latch()
        try:
            durable.current().fdatasync(file.fd)
        except OSError as error:
            raise durable.failure("fdatasync", file.path, error) from error

    def _flushed(self, count: cython.Py_ssize_t, payload_bytes: cython.Py_ssize_t,
                 base: cython.Py_ssize_t, took: cython.longlong) -> None:
        """As Engine's: the block's payloads have their place in the file."""
        block, c = self._block, self._c
        slot: cython.Py_ssize_t
        for slot in block.puts:
            c.m_offset[slot] += base
        c.counters[_GROUPS] += 1
        c.counters[_FILE] = self._writer.file_number
        c.counters[_BYTES] += 128 * count + payload_bytes
        c.counters[_FRAMES] += count
        c.j_groups[bits(count - 1)] += 1
        if took >= 0:
            c.j_syncs[bits(took >> _SHIFT)] += 1
            c.counters[_SYNC_US] += took // _US
