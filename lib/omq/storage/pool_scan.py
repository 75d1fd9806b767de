"""A pool file read in bulk: records as numpy rows, each checked as format.pool would check it.

The cheap rules run on whole columns, the CRC once for each used record; a record that breaks one is
decoded by format.pool for the reason, so there is one definition of what is valid.

Invariants: 1. memory is bounded by CHUNK_RECORDS; 2. a bad record condemns only itself; 3. `live`
and `more` are true only where the record passed every check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from omq.base.arrays import Rows
from omq.base.checksum import crc32c_each, crc32c_rows
from omq.format.findings import Finding, Kind
from omq.format.pool import (
    CRC_FROM,
    PART,
    PARTS_PER_RECORD,
    RECORD,
    RECORD_BYTES,
    RECORD_MAGIC,
    VERSION,
    PartState,
    RecordKind,
    decode_file_header,
    decode_record,
)
from omq.storage.files import File, read_salvaged

CHUNK_RECORDS: Final = 4096  # 2 MiB: every column of a chunk is read from the cache
GAP_RECORDS: Final = 16  # between two wanted records that are read at once
DTYPE: Final = np.dtype(
    [*RECORD.dtype.descr, ("parts_list", PART.dtype, (PARTS_PER_RECORD,))])
"""One record with its queue parts: the fields of format.pool.RECORD, then parts_list[16]."""
assert DTYPE.itemsize == RECORD_BYTES
Take = Callable[[bytes, int, int], bool]
"""Whether it has taken a chunk, checked as here: its bytes, the pool file, its first slot."""
_MAGIC: Final = np.frombuffer(RECORD_MAGIC, dtype="<u4")[0]
_KNOWN: Final = np.isin(np.arange(16), list(PartState))  # by state



@dataclass(frozen=True, slots=True)
class PoolChunk:
    """Records `first`, `first` + 1, ... of pool file `file`. The three arrays have one length."""

    file: int
    first: int
    records: Rows  # DTYPE
    live: Rows  # bool: a valid message
    more: Rows  # bool: a valid continuation
    findings: list[Finding] = field(default_factory=list)


def scan_pool_file(file: File, number: int, uuid: bytes, take: Take | None = None
                   ) -> Iterator[PoolChunk]:
    """All records of a pool file, in order; none of another instance's or a newer file. Those that
    `take` has taken do not come out."""
    header = decode_file_header(file.read(RECORD_BYTES, 0), number, uuid)
    if header is not None:
        header = replace(header, file=file.path.name)
        yield _check(file, number, 0, b"", [header])
        if header.kind is not Kind.CORRUPT:
            return
    count, cut = divmod(max(0, file.size() - RECORD_BYTES), RECORD_BYTES)
    for first in range(0, count, CHUNK_RECORDS):
        size = min(CHUNK_RECORDS, count - first) * RECORD_BYTES
        data = read_salvaged(file, size, (first + 1) * RECORD_BYTES, RECORD_BYTES)
        if take is None or not take(data, number, first):
            yield _check(file, number, first, data, [])
    if cut:
        where = (count + 1) * RECORD_BYTES
        short = Finding(Kind.SHORT, "record cut by the end of the file", file.path.name, where, cut,
                        count)
        yield _check(file, number, count, b"", [short])


def read_rows(file: File, number: int, records: Rows) -> tuple[Rows, Rows]:
    """The records in these slots (ascending) of a pool file, and the mask of the valid first
    records of messages."""
    rows: Rows = np.zeros(len(records), dtype=DTYPE)
    for begin, end in _runs(records):
        first = int(records[begin])
        count = int(records[end - 1]) + 1 - first
        data = file.read(count * RECORD_BYTES, (first + 1) * RECORD_BYTES)
        run = np.frombuffer(data.ljust(count * RECORD_BYTES, b"\0"), dtype=f"V{RECORD_BYTES}")
        rows.view(f"V{RECORD_BYTES}")[begin:end] = run[records[begin:end] - first]
    whole = memoryview(rows.view("u1"))  # type: ignore[arg-type]
    good = _named(whole, len(rows)) & _columns_fit(rows, number, records)
    used = np.flatnonzero(good)
    if len(used):
        good[used] = _crcs(whole, rows, used)
    return rows, good & (rows["kind"] == RecordKind.LIVE)


def _runs(records: Rows) -> Iterator[tuple[int, int]]:
    """Ascending numbers in stretches to read at once, as [begin, end)."""
    breaks = (np.flatnonzero(np.diff(records) > GAP_RECORDS) + 1).tolist()
    for begin, end in zip([0, *breaks], [*breaks, len(records)], strict=True):
        at = begin
        while at < end:
            stop = int(np.searchsorted(records[:end], int(records[at]) + CHUNK_RECORDS))
            yield at, stop
            at = stop


def no_records(number: int, finding: Finding) -> PoolChunk:
    """The chunk of a pool file that cannot be read at all."""
    rows, none = np.zeros(0, dtype=DTYPE), np.zeros(0, dtype=bool)
    return PoolChunk(number, 0, rows, none, none, [finding])


def _check(file: File, number: int, first: int, data: bytes, findings: list[Finding]) -> PoolChunk:
    count = len(data) // RECORD_BYTES
    rows = np.frombuffer(data, dtype=DTYPE, count=count) if count else np.zeros(0, dtype=DTYPE)
    named = _named(data, count)
    good = named & _columns_fit(rows, number, np.arange(first, first + count))
    used = np.flatnonzero(good)
    good[used] = _crcs(data, rows, used)
    odd = np.flatnonzero(~good)
    for index in odd[named[odd] | _not_zero(data, count, odd)].tolist():
        findings.append(_reason(file, number, first + index, data, index * RECORD_BYTES))
    kind = rows["kind"]
    return PoolChunk(number, first, rows, good & (kind == RecordKind.LIVE),
                     good & (kind == RecordKind.MORE), findings)


def _named(data: bytes | memoryview, count: int) -> Rows:
    words = np.frombuffer(data, dtype="<u4", count=count * RECORD_BYTES // 4) if count else \
        np.zeros(0, dtype="<u4")
    return np.asarray(words.reshape(count, RECORD_BYTES // 4)[:, 0] == _MAGIC)


def _not_zero(data: bytes, count: int, which: Rows) -> Rows:
    words = np.frombuffer(data, dtype="<u8", count=count * RECORD_BYTES // 8) if count else \
        np.zeros(0, dtype="<u8")
    return np.asarray(words.reshape(count, RECORD_BYTES // 8)[which].any(axis=1))


def _columns_fit(rows: Rows, number: int, numbers: Rows) -> Rows:
    """Rows of pool file `number` in slots `numbers`."""
    parts = rows["parts"]
    width = min(int(parts.max(initial=0)), PARTS_PER_RECORD)  # mostly 1: the rest is not looked at
    grade = rows["parts_list"]["grade"][:, :width]
    listed = np.arange(width) < parts[:, None]
    state = grade >> 4
    known = _KNOWN[state] & (grade & 15 <= 9)
    return np.asarray(
        (rows["version"] <= VERSION)
        & ((rows["kind"] == RecordKind.LIVE) | (rows["kind"] == RecordKind.MORE))
        & (parts <= PARTS_PER_RECORD)
        & (rows["used"] == RECORD.size + parts.astype(np.uint32) * PART.size)
        & (rows["file"] == number)
        & (rows["record"] == numbers)
        & (known | ~listed).all(axis=1))


def _crcs(data: bytes | memoryview, rows: Rows, used: Rows) -> Rows:
    lengths = rows["used"][used]
    if len(used) * 2 > len(rows) and bool((lengths == lengths[0]).all()):  # as good as always
        whole = memoryview(data)[: len(rows) * RECORD_BYTES]
        found = crc32c_rows(whole, RECORD_BYTES, CRC_FROM, int(lengths[0]))
        return np.asarray((np.array(found, dtype=np.uint32) == rows["crc"])[used])
    begins = used * RECORD_BYTES
    each = crc32c_each(memoryview(data), (begins + CRC_FROM).tolist(), (begins + lengths).tolist())
    return np.asarray(np.array(each, dtype=np.uint32) == rows["crc"][used])


def _reason(file: File, number: int, record: int, data: bytes, at: int) -> Finding:
    found = decode_record(data, at, number, record)
    reason = found if isinstance(found, Finding) else Finding(Kind.CORRUPT, "record is not valid")
    return replace(reason, file=file.path.name, offset=(record + 1) * RECORD_BYTES,
                   length=RECORD_BYTES, record=record)
