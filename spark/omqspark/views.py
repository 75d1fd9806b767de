"""All columns of the tables for whoever reads them with SQL: those that are stored, and those that
follow from them (derived.py).

    database(OUT)         a DuckDB with a view for each table, of the versions of the last run
    statements("duckdb")  SQL for a database that knows the tables by their names: stays_whole ...

Errors: NoTables, BadRequest (tables of another version).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from omqtools.omqspark import tables
from omqtools.omqspark.derived import DERIVED, fields
from omqtools.omqspark.duck_text import PLAIN, duck, literal
from omqtools.omqspark.out_directory import Out
from omqtools.omqspark.readable_columns import RENAMED

if TYPE_CHECKING:
    import duckdb

QUOTES: Final = {"duckdb": '"', "spark": "`"}
"""Engine -> what a name is in."""
_NAMES: Final = (("timestamp_micros", "make_timestamptz"), ("unix_micros", "epoch_us"))


def selected(table: str, source: str, engine: str) -> str:
    """SELECT of all columns of a table, whose stored ones `source` has."""
    text = source
    for level in DERIVED.get(table, ()):
        inner = text if text == source else f"({text})"
        told = ", ".join(f"{_said(one, engine)} AS {name}" for name, one in level.items())
        text = f"SELECT *, {told} FROM {inner}"
    return f"SELECT * FROM {source}" if text == source else text


def _said(text: str, engine: str) -> str:
    if engine == "spark":
        return text
    for spark, own in _NAMES:
        text = re.sub(rf"\b{spark}\b", own, text)
    return duck(text)


def statements(engine: str) -> str:
    """`NAME_whole`: views with all columns. `engine`: of QUOTES."""
    return "".join(f"CREATE OR REPLACE TEMPORARY VIEW {table}_whole AS "
                   f"{selected(table, table, engine)};\n" for table in DERIVED)


def old_names(engine: str) -> str:
    """`NAME_6`: columns that had other names before version 7 with both."""
    quote = QUOTES[engine]
    return "".join(
        f"CREATE OR REPLACE TEMPORARY VIEW {table}_6 AS SELECT *, "
        + ", ".join(f"{now} AS {quote}{before}{quote}" for before, now in names.items())
        + f" FROM {table};\n" for table, names in RENAMED.items())


def schemas(lake: Out) -> dict[str, pa.Schema]:
    """All columns of each table: those that are stored, then those that follow from them."""
    return {name: pa.schema([*schema, *fields(name)])
            for name, schema in tables.schemas(lake).items()}


def database(out: str) -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory that has each table under its name, as of the last run and with all
    columns. It asks for no extension; instants are UTC."""
    import duckdb

    lake = Out(out)
    own = duckdb.connect(config=PLAIN)
    own.execute(f"SET TimeZone = {literal('UTC')}")
    for name in tables.versions(lake)["versions"]:
        own.register(f"{name}_stored", tables.table(lake, name).to_pyarrow_dataset())
        own.execute(f"CREATE TEMPORARY VIEW {name} AS {selected(name, f'{name}_stored', 'duckdb')}")
    return own
