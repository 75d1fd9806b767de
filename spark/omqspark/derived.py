"""Columns of `messages` and `stays` that are not stored, since each follows from others of its row.

An instant is in a file once, as a timestamp with the nanoseconds behind its microsecond next to it;
other instants are how long they came after it, which is nothing for most. What people and this
package look at has all columns: `whole` tells them of stored rows, `packed` makes these of whole
ones, by the same SQL in Spark and in DuckDB, and views.py gives them to whoever reads the tables
with something else. Sub-microseconds of an instant cannot be compressed, so each that is stored
twice costs four bytes a row, and the tables had fourteen of them (ADR 0117).

Invariant: whole(packed(rows)) are the rows, also where times go backwards and where a message was
never born, handed out or ended in what the archive has.
Errors: none here.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from omqtools.omqspark.engine import F

_MICROS: Final = "timestamp_micros(({}) div 1000)"
_NS: Final = "unix_micros({}) * 1000 + {}"
_REST: Final = "CAST({}_ns % 1000 AS INT)"
_GIVEN: Final = "arrived_ns + wait_ns"
_LAST_GIVEN: Final = f"{_GIVEN} + again_ns"
_READY: Final = "arrived_ns + withheld_ns"
_SERVICE: Final = f"left_ns - ({_LAST_GIVEN})"
_FIRST_GIVE: Final = "coalesce(born_ns, 0) + first_wait_ns"
_LAST: Final = "coalesce(end_ns, 0) + behind_end_ns"

STORED: Final = {
    "messages": {
        "born_rest": _REST.format("born"), "ended_rest": _REST.format("end"),
        "first_wait_ns": "first_give_ns - coalesce(born_ns, 0)",
        "behind_end_ns": "last_ns - coalesce(end_ns, 0)",
        "behind_end_lsn": "last_lsn - coalesce(end_lsn, 0)",
        "before_born_lsn": "coalesce(born_lsn, 0) - first_lsn"},
    "stays": {
        "arrived_rest": _REST.format("arrived"), "left_rest": _REST.format("left"),
        "withheld_ns": "ready_ns - arrived_ns", "again_ns": "last_given_ns - given_ns",
        "others_ns": "service_ns - work_ns",
        "behind_left_lsn": "last_lsn - coalesce(left_lsn, 0)"}}
"""Table -> a column that stands for others -> its SQL, of whole rows."""

DERIVED: Final[dict[str, tuple[dict[str, str], dict[str, str]]]] = {
    "messages": (
        {"born_ns": _NS.format("born", "born_rest"),
         "end_ns": _NS.format("ended_at", "ended_rest"),
         "last_lsn": "behind_end_lsn + coalesce(end_lsn, 0)",
         "first_lsn": "coalesce(born_lsn, 0) - before_born_lsn"},
        {"first_give_ns": _FIRST_GIVE, "last_ns": _LAST, "life_ns": "end_ns - born_ns",
         "first_give": _MICROS.format(_FIRST_GIVE), "last": _MICROS.format(_LAST)}),
    "stays": (
        {"arrived_ns": _NS.format("arrived", "arrived_rest"),
         "left_ns": _NS.format("left_at", "left_rest"),
         "last_lsn": "behind_left_lsn + coalesce(left_lsn, 0)"},
        {"given_ns": _GIVEN, "last_given_ns": _LAST_GIVEN, "ready_ns": _READY,
         "ready_wait_ns": "wait_ns - withheld_ns", "service_ns": _SERVICE,
         "work_ns": f"{_SERVICE} - others_ns", "given": _MICROS.format(_GIVEN),
         "last_given": _MICROS.format(_LAST_GIVEN), "ready": _MICROS.format(_READY)})}
"""Table -> a column that is not stored -> its SQL, of stored columns; then such as need those."""


def fields(table: str) -> list[pa.Field]:
    """The columns of a table that are not stored, with their types."""
    return [pa.field(name, pa.int64() if name.endswith(("_ns", "_lsn")) else
                     pa.timestamp("us", tz="UTC")) for name in names(table)]


def told(frame: DataFrame, table: str, *wanted: str) -> DataFrame:
    """Some of the first of DERIVED, of rows that have the stored columns which these need."""
    return frame.withColumns({name: F.expr(DERIVED[table][0][name]) for name in wanted})


def names(table: str) -> list[str]:
    """The columns of a table that are not stored; none of most."""
    return [name for level in DERIVED.get(table, ()) for name in level]


def packed(frame: DataFrame, table: str) -> DataFrame:
    """Whole rows as they are stored."""
    return frame.withColumns({name: F.expr(text) for name, text in STORED[table].items()}).drop(
        *names(table))


def whole(frame: DataFrame, table: str) -> DataFrame:
    """Stored rows with all columns; those that only stand for others go."""
    if table not in DERIVED:
        return frame
    for level in DERIVED[table]:
        frame = frame.withColumns({name: F.expr(text) for name, text in level.items()})
    return frame.drop(*STORED[table])
