"""How rows lie in the Parquet files of OUT: their order, and the encoding of each column, alike by
Arrow's writers and by Spark's. What each of it brings is in ANALYTICS, "What OUT takes"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

DELTA: Final = "DELTA_BINARY_PACKED"
PLAIN: Final = ("size",)
"""Columns of many different numbers in no order: a dictionary of them takes more than they do."""
LIVES: Final = ("born_lsn", "arrived_lsn")  # messages, stays: which of them has it
FEW_ROWS: Final = 20_000
"""Of a file below this nobody skips a part, and the extremes of its columns are a third of it."""


def by_message(table: pa.Table) -> pa.Table:
    """Messages or stays in the order of their numbers, and of arrival: then numbers, instants and
    sizes are next to those that are near to them or the same, and who asks for one message reads
    one row group. Other tables as they are."""
    keys = order(table.schema.names)
    return table.sort_by([(name, "ascending") for name in keys]) if keys else table


def order(names: Sequence[str]) -> list[str]:
    """The columns by which rows with these are written in order; of other tables none."""
    if not set(LIVES) & set(names):
        return []
    return [name for name in ("qpool", "arrived_lsn") if name in names]


def how(schema: pa.Schema, rows: int) -> dict[str, Any]:
    """How columns of a file of so many rows are written: the options of Arrow's writers."""
    rising = [field.name for field in schema if rises(field)]
    return {"compression": "zstd", "store_schema": False,  # Parquet's own says as much, in half
            "write_statistics": rows >= FEW_ROWS,
            "use_dictionary": [each for each in schema.names if each not in (*rising, *PLAIN)],
            "column_encoding": dict.fromkeys(rising, DELTA) if rising else None}


def spark_how(schema: StructType) -> dict[str, str]:
    """The same for Spark's: in the second version of the format it writes differences where it may
    not make a dictionary. Without it these columns take twice as much."""
    return {"parquet.writer.version": "v2"} | {
        f"parquet.enable.dictionary#{field.name}": "false"
        for field in to_arrow_schema(schema, timezone="UTC")
        if rises(field) or field.name in PLAIN}


def rises(field: pa.Field) -> bool:
    """Whether a column is of instants or numbers that go up, nearly each another one: a dictionary
    of them doubles the file, their differences halve it (measured: stays, messages)."""
    return bool(pa.types.is_timestamp(field.type)) or (
        bool(pa.types.is_integer(field.type)) and field.name.endswith(("_ns", "lsn", "qpool")))
