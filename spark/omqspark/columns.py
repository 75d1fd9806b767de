"""The columns of the event table: how each comes out of a frame header, in Arrow's and Spark's
types.

Spark has no unsigned numbers, so 64-bit hashes are shown as signed ones with the same bits. The
table is the contract of the data source; the data dictionary (lib/omq/docs/ANALYTICS.md) explains
it. A user's schema picks columns from it, in any order: only those are copied.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from omq.format.archive import Rows

EVENTS: Final[dict[str, tuple[str, pa.DataType]]] = {
    "lsn": ("bigint", pa.int64()),
    "time_ns": ("bigint", pa.int64()),
    "ts": ("timestamp", pa.timestamp("us", tz="UTC")),
    "type": ("int", pa.int32()),
    "flags": ("int", pa.int32()),
    "queue": ("int", pa.int32()),
    "priority": ("int", pa.int32()),
    "attempt": ("int", pa.int32()),
    "qpool": ("bigint", pa.int64()),
    "size": ("bigint", pa.int64()),
    "client": ("bigint", pa.int64()),
    "pid": ("bigint", pa.int64()),
    "uid": ("bigint", pa.int64()),
    "lease": ("bigint", pa.int64()),
    "token": ("bigint", pa.int64()),
    "sequence": ("bigint", pa.int64()),
    "correlation": ("bigint", pa.int64()),
    "argument": ("bigint", pa.int64()),
    "unit": ("bigint", pa.int64()),
    "reason": ("int", pa.int32()),
    "target": ("int", pa.int32()),
    "length": ("bigint", pa.int64()),
    "onto": ("array<int>", pa.list_(pa.int32())),
    "onto_priority": ("array<int>", pa.list_(pa.int32())),
    "until_s": ("array<bigint>", pa.list_(pa.int64())),
    "file": ("int", pa.int32()),
    "epoch": ("bigint", pa.int64()),
    "bad": ("string", pa.string()),
}
"""Name -> (type in Spark's DDL, Arrow type)."""

BLOCKS: Final[dict[str, tuple[str, pa.DataType]]] = {
    "file": ("int", pa.int32()),
    "epoch": ("bigint", pa.int64()),
    "block": ("int", pa.int32()),
    "count": ("int", pa.int32()),
    "first_lsn": ("bigint", pa.int64()),
    "last_lsn": ("bigint", pa.int64()),
    "time_min_ns": ("bigint", pa.int64()),
    "time_max_ns": ("bigint", pa.int64()),
    "follows_lsn": ("bigint", pa.int64()),
    "bad": ("string", pa.string()),
}

NAMES: Final[dict[str, tuple[str, pa.DataType]]] = {
    "file": ("int", pa.int32()),
    "epoch": ("bigint", pa.int64()),
    "kind": ("string", pa.string()),
    "key": ("bigint", pa.int64()),
    "lsn": ("bigint", pa.int64()),
    "text": ("string", pa.string()),
    "bad": ("string", pa.string()),
}

TABLES: Final = {"events": EVENTS, "blocks": BLOCKS, "dict": NAMES}
LISTS: Final = {"onto": "queue", "onto_priority": "priority", "until_s": "until"}


def ddl(table: str) -> str:
    """The table's schema as Spark writes it."""
    return ", ".join(f"{name} {spark}" for name, (spark, _) in TABLES[table].items())


def arrow_schema(table: str, names: list[str]) -> pa.Schema:
    """The Arrow schema of some columns, in the order asked for."""
    return pa.schema([(name, TABLES[table][name][1]) for name in names])


def event_batch(rows: Rows, parts: Rows, names: list[str], file: int, epoch: int
                ) -> pa.RecordBatch:
    """Frame headers as one Arrow batch. `parts`: rows of the section PARTS, by LSN."""
    lists = _Lists(rows, parts) if any(name in LISTS for name in names) else None
    arrays = [_column(name, rows, lists, file, epoch) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema("events", names))


def _column(name: str, rows: Rows, lists: _Lists | None, file: int, epoch: int) -> pa.Array:
    kind = EVENTS[name][1]
    if name == "bad":
        return pa.nulls(len(rows), kind)
    if name == "file" or name == "epoch":
        return pa.array(np.full(len(rows), file if name == "file" else epoch), kind)
    if name == "time_ns":
        return pa.array(rows["time"].astype("<i8"), kind)
    if name == "ts":
        return pa.array(rows["time"].astype("<i8") // 1000, pa.int64()).cast(kind)
    if name in LISTS:
        assert lists is not None
        return lists.column(name, kind)
    wide = kind == pa.int64()
    values = rows[name]
    if values.dtype.itemsize == 8:  # the same bits as a signed number
        return pa.array(np.ascontiguousarray(values).view("<i8"), kind)
    return pa.array(values.astype("<i8" if wide else "<i4"), kind)


class _Lists:
    """The queues that frames name in their payloads, as lists beside the frames."""

    def __init__(self, rows: Rows, parts: Rows) -> None:
        lsn = rows["lsn"]
        if len(lsn):
            low, high = np.searchsorted(parts["lsn"], [lsn[0], lsn[-1] + np.uint64(1)])
            parts = parts[low:high]
            if len(lsn) <= int(lsn[-1] - lsn[0]):  # a filter took rows out: theirs go, too
                parts = parts[np.isin(parts["lsn"], lsn)]
        else:
            parts = parts[:0]
        self.parts = parts
        own: Any = np.searchsorted(parts["lsn"], lsn, side="left")
        end: Any = np.searchsorted(parts["lsn"], lsn, side="right")
        self.offsets = np.concatenate([own[:1], end]).astype("<i4")
        self.empty = end == own

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        values = pa.array(self.parts[LISTS[name]], kind.value_type)
        offsets = self.offsets if len(self.offsets) else np.zeros(1, "<i4")
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def bad_batch(table: str, names: list[str], bad: list[str], file: int) -> pa.RecordBatch:
    """Quarantine rows: everything null but `bad` (JSON: path, offset, length, kind, reason)."""
    arrays = []
    for name in names:
        kind = TABLES[table][name][1]
        if name == "bad":
            arrays.append(pa.array(bad, kind))
        elif name == "file":
            arrays.append(pa.array([file] * len(bad), kind))
        else:
            arrays.append(pa.nulls(len(bad), kind))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(table, names))
