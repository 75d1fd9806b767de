"""SQL as Spark has it, in DuckDB's words: only what this package writes.

Errors: none here; what DuckDB does not know it says itself, with the text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

PLAIN: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False, "autoload_known_extensions": False}
"""How a DuckDB is opened: it asks nobody for an extension."""
_WORDS: Final = (
    (r"\b(\d+)L\b", r"(\1::BIGINT)"),
    (r"\bdiv\b", "//"),
    (r"\b(\w+) -> ", r"lambda \1: "),
    (r"\bstruct\(", "struct_pack("),
    (r"\barray\(", "list_value("),
    (r"\bfilter\(", "list_filter("),
    (r"\btransform\(", "list_transform("),
    (r"\bconcat\(", "list_concat("),
    (r"\bsize\(", "len("),
)
_PACKED: Final = re.compile(r"struct_pack\((\w+) AS (\w+), (\w+) AS (\w+)\)")
MACROS: Final = (
    "shiftleft(a, b) AS CASE WHEN a = 1 AND b = 63 THEN (-9223372036854775807 - 1)::BIGINT "
    "ELSE a << b END",
    "shiftright(a, b) AS a >> b",
    "timestamp_micros(a) AS make_timestamp(a)",
    "unix_micros(a) AS epoch_us(a)",
    "try_element_at(a, b) AS a[b]",
)
"""Functions that Spark has and DuckDB has by another name. The highest bit of 64 is the sign, which
DuckDB does not shift into."""


def duck(text: str) -> str:
    """The same expression."""
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    return _PACKED.sub(r'struct_pack("\2" := \1, "\4" := \3)', text)


@cache
def quoted(name: str) -> str:
    """A column: `name`, or `name.field` of a struct."""
    return ".".join(f'"{part}"' for part in name.split("."))


def literal(value: object) -> str:
    """A value in SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"({value})" if value < 0 else str(value)
    escaped = str(value).replace("'", "''")
    return f"'{escaped}'"
