"""By which engine a batch is computed: Spark, or DuckDB in this process where its rows are few.

What an event means is written once, in the expressions of lifecycle.py, gold.py and so on. They are
written with the names of pyspark; here these names stand for those of the engine at hand: pyspark's
own, or duck_columns.py, which makes the same of them in DuckDB's SQL. A Spark plan costs a tenth of
a second of processor even over nothing, and a batch needs some 34 of them; DuckDB's cost
milliseconds (ADR 0115). tests/spark/test_engines.py shows that both give the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

__all__ = ("F", "Window", "columnar", "is_columnar")
_few: Final[ContextVar[bool]] = ContextVar("_few", default=False)


@contextmanager
def columnar() -> Iterator[None]:
    """Meanwhile, in this thread, expressions are DuckDB's."""
    token = _few.set(True)
    try:
        yield
    finally:
        _few.reset(token)


def is_columnar() -> bool:
    """Whether it is so now."""
    return _few.get()


class _Functions:
    """The functions of the engine at hand."""

    def __getattr__(self, name: str) -> Any:
        where = "omqtools.omqspark.duck_columns" if _few.get() else "pyspark.sql.functions"
        return getattr(import_module(where), name)


class _Windows:
    """The same of Window."""

    def __getattr__(self, name: str) -> Any:
        where = "omqtools.omqspark.duck_columns" if _few.get() else "pyspark.sql"
        return getattr(import_module(where).Window, name)


if TYPE_CHECKING:
    from pyspark.sql import Window
    from pyspark.sql import functions as F
else:
    F, Window = _Functions(), _Windows()
