"""The data dictionary: what each column means, in which unit, said once.

It is in the Delta tables themselves (the comment of each column, which DESCRIBE TABLE shows),
in what `omq-spark tables --columns` prints, and in lib/omq/docs/DATA-DICTIONARY.md, which `make
dictionary` makes anew of the schemas of a run; tests/spark/test_dictionary.py compares them. Names,
order and types come from the schemas, words from meanings.py. Times in *_ns are nanoseconds since
1970, and instants without such a name timestamps in microseconds, UTC; null: it did not happen, or
nobody knows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from omqtools.omqspark import columns
from omqtools.omqspark.derived import names
from omqtools.omqspark.meanings import EVERYWHERE, MEANINGS

COMMENT: Final = b"comment"  # where Delta, and Spark, look for what a column means


def meaning(table: str, column: str) -> str:
    """What a column means; "": nobody has said it, as of a column of another version's tables."""
    own = MEANINGS[table].columns if table in MEANINGS else {}
    return own.get(column) or EVERYWHERE.get(column, "")


def described(table: str, schema: pa.Schema) -> pa.Schema:
    """A schema with the meaning of each column as its comment."""
    return pa.schema([field.with_metadata({COMMENT: meaning(table, field.name).encode()})
                      for field in schema])


def source_schemas() -> dict[str, pa.Schema]:
    """Of the tables of the data source."""
    return {name: columns.arrow_schema(name, list(columns.TABLES[name]))
            for name in columns.TABLES}


def page(schemas: Mapping[str, pa.Schema]) -> str:
    """All of it for people, as Markdown."""
    out = ["# Data dictionary", "", "Made by `make dictionary` of the schemas and of "
           "`spark/omqspark/meanings.py`; changes belong there.",
           "[ANALYTICS](ANALYTICS.md) says how the tables come about and how to read them.", "",
           "Times in `*_ns` are nanoseconds since 1970 (UTC), timestamps have microseconds and the "
           "zone UTC. Null: it did",
           "not happen, or is not known. What is *not stored* follows from other columns of its "
           "row, and is",
           "there in the views of `omqtools.omqspark.views.database(OUT)`, in `tables.frame`, and "
           "in those",
           "that `omq-spark tables --out OUT --views duckdb` (or `spark`) prints."]
    for name, schema in schemas.items():
        out += ["", f"## {name}", "", f"A row: {MEANINGS[name].row}.", "",
                "| column | type | meaning |", "|---|---|---|"]
        told = set(names(name))
        out += [f"| {field.name} | {word(field.type)} | {meaning(name, field.name)}"
                f"{'; *not stored*' * (field.name in told)} |" for field in schema]
    return "\n".join(out) + "\n"


def word(kind: pa.DataType) -> str:
    """A type as Spark names it."""
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {word(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{word(kind.value_type)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return {"int64": "bigint", "int32": "int", "bool": "boolean", "date32[day]": "date",
            "large_string": "string", "string_view": "string", "large_binary": "binary",
            "binary_view": "binary"}.get(str(kind), str(kind))


def main(argv: list[str]) -> int:
    """`python -m omqtools.omqspark.dictionary OUT`: the page, of the tables of OUT."""
    from omqtools.omqspark import views
    from omqtools.omqspark.out_directory import Out

    sys.stdout.write(page(source_schemas() | views.schemas(Out(argv[0]))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
