"""The columns of the event table: how each comes out of a frame header, in Arrow's and Spark's
types.

Spark has no unsigned numbers, so 64-bit hashes are shown as signed ones with the same bits. The
table is the contract of the data source; the data dictionary (dictionary.py) explains it. A user's
schema picks columns from it, in any order: only those are copied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omq.base.arrays import Rows
from omq.format.archive import NameKind
from omq.format.message import LAST_IN_GROUP

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
    "group_id": ("string", pa.string()),
    "group_sequence": ("bigint", pa.int64()),
    "group_last": ("boolean", pa.bool_()),
    "file": ("int", pa.int32()),
    "epoch": ("bigint", pa.int64()),
    "bad": ("string", pa.string()),
}
"""Name -> (type in Spark's DDL, Arrow type)."""

BRONZE: Final = tuple(name for name in EVENTS if name != "ts")
"""The columns of events that OUT stores: `ts` is `time_ns` in microseconds."""

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
_FIELD: Final = {"time_ns": "time", "ts": "time"}  # where the frame header says it otherwise
_NO_LSN: Final = np.zeros(0, "<u8")
GROUPS: Final = frozenset({"group_id", "group_sequence", "group_last"})
_ELSEWHERE: Final = {"bad", "file", "epoch", *LISTS, *GROUPS}
SPARSE: Final = frozenset({"bad", *LISTS, *GROUPS})
"""Columns that are null in sound rows, too."""


def ddl(table: str) -> str:
    """The table's schema as Spark writes it."""
    return ", ".join(f"{name} {spark}" for name, (spark, _) in TABLES[table].items())


def arrow_schema(table: str, names: Sequence[str], never_null: Collection[str] = ()) -> pa.Schema:
    """The Arrow schema of some columns, in the order asked for."""
    return pa.schema([pa.field(name, TABLES[table][name][1], nullable=name not in never_null)
                      for name in names])


class Beside:
    """What the frames of a file say in their payloads: queues, rows of PARTS, and the groups of
    births, rows of NAMES; by LSN."""

    def __init__(self, rows: Rows, names: Rows) -> None:
        self.rows = rows
        self.lsn = np.ascontiguousarray(rows["lsn"])
        self._groups = names[names["kind"] == NameKind.GROUP]

    def groups(self, lsn: Rows) -> dict[str, pa.Array]:
        """The columns of GROUPS for the frames with these ascending LSNs; null: in no group."""
        own = self._groups["lsn"]
        first, end = np.searchsorted(own, [lsn[0], lsn[-1] + np.uint64(1)]) if len(lsn) else (0, 0)
        mine = self._groups[first:end]
        place = np.searchsorted(lsn, mine["lsn"])
        there = lsn[place] == mine["lsn"] if len(mine) else np.zeros(0, bool)
        mine, place = mine[there], place[there]
        if not len(mine):  # nearly always: no row of them is looked at
            return {name: pa.nulls(len(lsn), EVENTS[name][1]) for name in GROUPS}
        texts = pa.array([row["text"].tobytes()[: int(row["length"])].decode() for row in mine])
        key = mine["key"].astype("<i8")
        which = np.zeros(len(lsn), "<i4")
        which[place] = np.arange(len(mine))
        none = np.ones(len(lsn), bool)
        none[place] = False
        of = pa.array(which, mask=none)
        return {"group_id": texts.take(of),
                "group_sequence": pa.array(key & LAST_IN_GROUP - 1).take(of),
                "group_last": pa.array((key & LAST_IN_GROUP) != 0).take(of)}

    def parts(self, lsn: Rows) -> tuple[Rows, Rows]:
        """(rows of the frames with these ascending LSNs, where those of each frame begin)"""
        offsets = np.zeros(len(lsn) + 1, "<i4")
        if not len(lsn):
            return self.rows[:0], offsets
        low, high = np.searchsorted(self.lsn, [lsn[0], lsn[-1] + np.uint64(1)])
        mine, own = self.rows[low:high], self.lsn[low:high]
        if int(lsn[-1] - lsn[0]) == len(lsn) - 1:  # none is missing
            place: Any = (own - lsn[0]).astype("<i8")
        else:  # by a filter or by damage: then their parts go, too
            place = np.searchsorted(lsn, own)
            there = lsn[place] == own
            mine, place = mine[there], place[there]
        np.cumsum(np.bincount(place, minlength=len(lsn)), out=offsets[1:])
        return mine, offsets


def fields_of(names: list[str]) -> dict[str, Any]:
    """Fields of the frame header that these columns come from, each with the numpy type of its
    column: Spark's numbers are signed, and as wide or wider."""
    found = {_FIELD.get(name, name): _width(name) for name in names if name not in _ELSEWHERE}
    return found | {"lsn": _width("lsn")} if set(names) & {*LISTS, *GROUPS} else found


def _width(name: str) -> Any:
    return np.dtype("<i4" if EVENTS[name][1] == pa.int32() else "<i8")


def event_batch(fields: dict[str, Rows], count: int, beside: Beside, names: list[str], file: int,
                epoch: int) -> pa.RecordBatch:
    """Frame headers, as one array for each field (of `fields_of`), as one Arrow batch."""
    mine, offsets = beside.parts(fields["lsn"].view("<u8") if set(names) & set(LISTS) else _NO_LSN)
    groups = beside.groups(fields["lsn"].view("<u8")) if set(names) & GROUPS else {}
    none = pa.array(offsets[1:] == offsets[:-1])
    arrays = []
    for name in names:
        kind = EVENTS[name][1]
        if name == "bad":
            arrays.append(pa.nulls(count, kind))
        elif name in groups:
            arrays.append(groups[name])
        elif name in ("file", "epoch"):
            value = file if name == "file" else epoch
            arrays.append(pa.array(np.full(count, value, kind.to_pandas_dtype())))
        elif name in LISTS:
            values = pa.array(mine[LISTS[name]], kind.value_type)
            arrays.append(pa.ListArray.from_arrays(pa.array(offsets), values, type=kind,
                                                   mask=none))  # null: cheaper than an empty one
        elif name == "ts":
            arrays.append(pa.array(fields["time"] // 1000).view(kind))
        else:
            arrays.append(pa.array(fields[_FIELD.get(name, name)], kind))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema("events", names))


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
