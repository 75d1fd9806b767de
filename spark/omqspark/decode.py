"""Archive files to Arrow batches: events, seals and names. Plain functions, no Spark.

Damage never raises: it becomes rows with `bad`, and every block that is right still comes out; of a
bad block, the frames of journal blocks whose own CRC is right (`salvage`). Filters use the seals to
skip blocks, then are applied to the rows, so what comes out is exactly what was asked for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omq.base.arrays import Rows
from omq.base.checksum import crc32c
from omq.format.archive import (
    BLOCK_BYTES,
    FRAME_BLOCKS,
    NAME,
    ROW,
    ArchiveHeader,
    NameKind,
    Section,
    rows_per_block,
)
from omq.format.archive_block import Block, columns, open_block, seal_rows
from omq.format.findings import Finding, Kind
from omq.format.journal import BLOCK, CRC_FROM, FRAME
from omq.storage.archive_file import ArchiveFile
from omq.storage.archive_names import texts
from omqtools.omqspark.columns import (
    GROUPS,
    LISTS,
    Beside,
    arrow_schema,
    bad_batch,
    event_batch,
    fields_of,
)
from omqtools.omqspark.plan import Split, bad_text, filesystem, opened

_TEST: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": np.isin}
FIELDS: Final = {"lsn": "lsn", "time_ns": "time", "type": "type", "queue": "queue",
                 "qpool": "qpool"}
"""Columns that a filter can be pushed down for -> field of the frame header."""
_TOLD: Final = [kind for kind in NameKind if kind is not NameKind.GROUP]  # that is in the events


@dataclass(frozen=True, slots=True)
class Filter:
    """`column` `test` `value`, with value a number, or a list of numbers for "in"."""

    column: str
    test: str
    value: Any

    def keep(self, rows: Mapping[str, Rows]) -> Any:
        return _TEST[self.test](rows[FIELDS[self.column]], self.value)

    def may_hold(self, seals: Rows) -> Any:
        """For each block: can a row in it pass?"""
        values = np.atleast_1d(np.asarray(self.value))
        if self.column in ("type", "queue"):
            if self.test not in ("=", "in"):
                return np.ones(len(seals), bool)
            mask = 31 if self.column == "type" else 63
            bits = np.bitwise_or.reduce(np.uint64(1) << (values.astype("<u8") & np.uint64(mask)))
            field = seals["types" if self.column == "type" else "queues"].astype("<u8")
            return (field & bits) != 0
        low, high = {"lsn": ("first_lsn", "last_lsn"), "time_ns": ("time_min", "time_max"),
                     "qpool": ("qpool_min", "qpool_max")}[self.column]
        first, last = int(values.min()), int(values.max())
        below = seals[low] <= last if self.test in ("=", "in", "<", "<=") else True
        above = seals[high] >= first if self.test in ("=", "in", ">", ">=") else True
        return below & above & np.ones(len(seals), bool)


def event_batches(task: Sequence[Split], names: list[str], filters: Sequence[Filter] = (),
                  where: str = "") -> Iterator[pa.RecordBatch]:
    """All batches of one task."""
    fs, _ = filesystem(where)
    for split in task:
        with opened(fs, split) as file:
            if isinstance(file, Finding):
                yield bad_batch("events", names, [bad_text(file)], split.number)
                continue
            try:
                yield from _events_of(file, split, names, filters)
            except OSError as error:  # the file system gave up in the middle of it
                bad = Finding(Kind.UNREADABLE, f"cannot be read: {error}", split.path)
                yield bad_batch("events", names, [bad_text(bad)], split.number)


def _events_of(file: ArchiveFile, split: Split, names: list[str], filters: Sequence[Filter]
               ) -> Iterator[pa.RecordBatch]:
    header = file.header
    if split.whole:
        file.check()
        if file.findings:
            yield bad_batch("events", names, [bad_text(f) for f in file.findings], header.number)
    wanted = _wanted(file, filters)
    chosen = fields_of([*names, *(each.column for each in filters)])
    beside = Beside(
        file.rows(Section.PARTS) if LISTS.keys() & set(names) else np.zeros(0, ROW.dtype),
        file.rows(Section.NAMES) if GROUPS & set(names) else np.zeros(0, NAME.dtype))
    salvager = Salvager(file)
    for index in range(split.first, split.end):
        blocks: list[Block] = []
        for block, got in file.blocks(Section.FRAMES, range(index, index + 1), wanted):
            if isinstance(got, Finding):
                yield bad_batch("events", names, [bad_text(got)], header.number)
                blocks += salvager.blocks(block, got)
            else:
                blocks.append(got)
        if blocks:
            fields = columns(blocks, chosen)
            count = sum(map(len, blocks))
            if filters:
                keep = np.logical_and.reduce([each.keep(fields) for each in filters])
                fields = {name: values[keep] for name, values in fields.items()}
                count = int(np.count_nonzero(keep))
            if count:
                yield event_batch(fields, count, beside, names, header.number, header.epoch)


def _wanted(file: ArchiveFile, filters: Sequence[Filter]) -> Rows | None:
    if not filters:
        return None
    seals = file.seals()
    if isinstance(seals, Finding):
        return None
    keep = np.ones(len(seals), bool)
    for each in filters:
        keep &= each.may_hold(seals)
    return keep


class Salvager:
    """The frames of a bad block that the journal's own CRC still vouches for."""

    def __init__(self, file: ArchiveFile) -> None:
        self.file = file
        self._heads: list[bytes] = []
        self._places: Rows | None = None

    def blocks(self, block: int, finding: Finding) -> list[Block]:
        """Good frames of block number `block`, if its bytes can be decompressed at all."""
        if finding.record < 0:  # the compressed frame itself is lost
            return []
        raw = self.file.frame(block // FRAME_BLOCKS)
        if isinstance(raw, Finding):
            return []
        if self._places is None:
            heads = self.file.rows(Section.HEADS)
            self._heads = [head["bytes"].tobytes() for head in heads[1:]]
            self._places = self.file.rows(Section.PLACES)
        if len(self._places) != len(self._heads):
            return []
        step = rows_per_block(Section.FRAMES)
        at = block % FRAME_BLOCKS * BLOCK_BYTES
        first = block * step
        count = min(step, self.file.header.frames - first)
        if count <= 0 or at + BLOCK_BYTES > len(raw):  # a head that counts otherwise
            return []
        rows = Block(raw, at, Section.FRAMES, count, 0).rows()
        good = [rows[low:high] for low, high in self._good(rows, first)]
        if not good:
            return []
        head = self.file.header
        sealed = seal_rows(head.uuid, head.number, block, Section.FRAMES, FRAME.joined(good))
        found = open_block(sealed, 0, head, block, Section.FRAMES)
        assert isinstance(found, Block)
        return [found]

    def _good(self, rows: Rows, first: int) -> Iterator[tuple[int, int]]:
        """(from, to) of the journal blocks that lie wholly in these rows, whose first is row
        `first` of the file."""
        assert self._places is not None
        starts = np.concatenate([[0], np.cumsum(self._places["count"].astype("<i8"))]) - first
        for i in np.flatnonzero((starts[:-1] >= 0) & (starts[1:] <= len(rows))).tolist():
            low, high = int(starts[i]), int(starts[i + 1])
            head = self._heads[i]
            (stored,) = np.frombuffer(head, "<u4", 1, BLOCK.offset("crc"))
            if crc32c(rows[low:high].tobytes(), crc32c(head[CRC_FROM:])) == stored:
                yield low, high


def _whole_files(task: Sequence[Split], where: str
                 ) -> Iterator[tuple[Split, ArchiveFile | Finding]]:
    """Each file of a task once, open while it is looked at."""
    fs, _ = filesystem(where)
    for split in task:
        if split.whole:
            with opened(fs, split) as file:
                yield split, file


def block_batches(task: Sequence[Split], names: list[str], where: str = ""
                  ) -> Iterator[pa.RecordBatch]:
    """The seals of the frame blocks: one row a block, without decompressing anything."""
    for split, file in _whole_files(task, where):
        seals = file if isinstance(file, Finding) else file.seals()
        if isinstance(seals, Finding) or isinstance(file, Finding):
            assert isinstance(seals, Finding)
            yield bad_batch("blocks", names, [bad_text(replace(seals, file=split.path))],
                            split.number)
        else:
            yield _seal_batch(seals[seals["section"] == Section.FRAMES], file.header, names)


def _seal_batch(seals: Rows, header: ArchiveHeader, names: list[str]) -> pa.RecordBatch:
    fields: dict[str, Any] = {
        "file": seals["number"], "block": seals["block"], "count": seals["count"],
        "first_lsn": seals["first_lsn"], "last_lsn": seals["last_lsn"],
        "time_min_ns": seals["time_min"], "time_max_ns": seals["time_max"],
        "epoch": np.full(len(seals), header.epoch),
        "follows_lsn": np.full(len(seals), header.follows_lsn), "bad": [None] * len(seals)}
    schema = arrow_schema("blocks", names)
    arrays = [pa.array(fields[f.name]).cast(f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def name_batches(task: Sequence[Split], names: list[str], where: str = ""
                 ) -> Iterator[pa.RecordBatch]:
    """Names and texts of each file."""
    for split, file in _whole_files(task, where):
        if isinstance(file, Finding):
            yield bad_batch("dict", names, [bad_text(file)], split.number)
            continue
        rows = file.rows(Section.NAMES)
        if file.findings:
            yield bad_batch("dict", names, [bad_text(f) for f in file.findings], split.number)
        found = [(kind.name.lower(), key, lsn, text) for kind in _TOLD
                 for (lsn, key), text in texts(rows, kind).items()]
        columns: dict[str, list[Any]] = {
            "file": [file.header.number] * len(found), "kind": [row[0] for row in found],
            "epoch": [file.header.epoch] * len(found), "key": [row[1] for row in found],
            "lsn": [row[2] for row in found], "text": [row[3] for row in found],
            "bad": [None] * len(found)}
        schema = arrow_schema("dict", names)
        arrays = [pa.array(columns[f.name], f.type) for f in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
