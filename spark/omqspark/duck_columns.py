"""pyspark's functions and columns, as far as this package uses them, as SQL of DuckDB.

A name as argument is a column, everywhere where pyspark has it so; other values are literals. Where
the engines differ, it is Spark's meaning that is written: whole numbers stay 64 bits wide, nulls
come first where the order rises, and `max_by` gives the null that is next to the highest value.
Errors: none here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from omqtools.omqspark.duck_text import duck, literal, quoted

TYPES: Final = {"bigint": "BIGINT", "int": "INTEGER", "date": "DATE", "string": "VARCHAR"}


class Column:
    """An expression. `wide`: an aggregate that DuckDB makes wider than 64 bits."""

    def __init__(self, text: str, name: str = "", *, wide: bool = False) -> None:
        self._text, self.name, self._wide = text, name, wide

    @property
    def text(self) -> str:
        return f"CAST({self._text} AS BIGINT)" if self._wide else self._text

    def alias(self, name: str) -> Column:
        return Column(self._text, name, wide=self._wide)

    def over(self, window: Window) -> Column:
        own = Column(f"{self._text} OVER ({window.text})", wide=self._wide)
        return Column(own.text)

    def cast(self, kind: str) -> Column:
        return Column(f"CAST({self.text} AS {TYPES[kind]})")

    def isin(self, *values: Any) -> Column:
        told = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values
        among = ", ".join(_value(each).text for each in told)
        return Column(f"({self.text} IN ({among}))" if among else "false")

    def between(self, low: Any, high: Any) -> Column:
        return self._with(">=", low)._with("AND", self._with("<=", high))

    def isNull(self) -> Column:
        return Column(f"({self.text} IS NULL)")

    def isNotNull(self) -> Column:
        return Column(f"({self.text} IS NOT NULL)")

    def bitwiseAND(self, other: Any) -> Column:
        return self._with("&", other)

    def _with(self, sign: str, other: Any) -> Column:
        return Column(f"({self.text} {sign} {_value(other).text})")

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return self._with("=", other)

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return self._with("<>", other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> Column:
        return self._with("<", other)

    def __le__(self, other: Any) -> Column:
        return self._with("<=", other)

    def __gt__(self, other: Any) -> Column:
        return self._with(">", other)

    def __ge__(self, other: Any) -> Column:
        return self._with(">=", other)

    def __add__(self, other: Any) -> Column:
        return self._with("+", other)

    def __sub__(self, other: Any) -> Column:
        return self._with("-", other)

    def __mul__(self, other: Any) -> Column:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Column:
        return _value(other) * self

    def __truediv__(self, other: Any) -> Column:
        return self._with("/", other)

    def __and__(self, other: Any) -> Column:
        return self._with("AND", other)

    def __or__(self, other: Any) -> Column:
        return self._with("OR", other)

    def __invert__(self) -> Column:
        return Column(f"(NOT {self.text})")

    def __getitem__(self, field: str) -> Column:
        return Column(f'struct_extract({self.text}, {literal(field)})', field)

    def __bool__(self) -> bool:
        raise TypeError("an expression is neither true nor false; use & and |")


class _Case(Column):
    """`when`, which goes on."""

    def when(self, test: Column, value: Any) -> _Case:
        return _Case(f"{self._text} WHEN {test.text} THEN {_value(value).text}")

    def otherwise(self, value: Any) -> Column:
        return Column(f"({self._text} ELSE {_value(value).text} END)")

    @property
    def text(self) -> str:
        return f"({self._text} END)"

    def alias(self, name: str) -> Column:
        return Column(self.text, name)


@dataclass(frozen=True)
class Window:
    """A window, as text."""

    by: str = ""
    order: str = ""
    rows: str = ""
    unboundedPreceding: Final = -(1 << 63)

    @property
    def text(self) -> str:
        return f"{self.by} {self.order} {self.rows}"

    @staticmethod
    def partitionBy(*columns: Any) -> Window:
        return Window(f"PARTITION BY {_all(columns)}")

    def orderBy(self, *columns: Any) -> Window:
        return replace(self, order=f"ORDER BY {_all(columns)}")

    def rowsBetween(self, first: int, last: int) -> Window:
        return replace(self, rows=f"ROWS BETWEEN {_edge(first)} AND {_edge(last)}")


def _edge(at: int) -> str:
    if at == Window.unboundedPreceding:
        return "UNBOUNDED PRECEDING"
    return "CURRENT ROW" if at == 0 else f"{-at} PRECEDING"


def _value(value: Any) -> Column:
    return value if isinstance(value, Column) else Column(literal(value))


def _column(value: Any) -> Column:
    return col(value) if isinstance(value, str) else _value(value)


def _all(columns: tuple[Any, ...]) -> str:
    return ", ".join(_column(each).text for each in columns)


def col(name: str) -> Column:
    return Column(quoted(name), name.rpartition(".")[2])


def lit(value: Any) -> Column:
    return _value(value)


def expr(text: str) -> Column:
    return Column(f"({duck(text)})")


def desc(name: str) -> Column:
    return Column(f"{quoted(name)} DESC")


def when(test: Column, value: Any) -> _Case:
    return _Case(f"CASE WHEN {test.text} THEN {_value(value).text}")


def _call(name: str, *, wide: bool = False) -> Callable[..., Column]:
    """A function of DuckDB that is the same."""
    def call(*columns: Any) -> Column:
        return Column(f"{name}({_all(columns)})", wide=wide)

    return call


min = _call("min")
max = _call("max")
sum = _call("sum", wide=True)
bool_or = _call("bool_or")
bit_or = _call("bit_or")
coalesce = _call("coalesce")
greatest = _call("greatest")
least = _call("least")
array = _call("list_value")
sequence = _call("generate_series")
array_contains = _call("list_contains")
array_position = _call("list_position")
array_sort = _call("list_sort")
explode = _call("unnest")
first = _call("any_value")
lag = _call("lag")


def count(column: Any) -> Column:
    everything = isinstance(column, str) and column == "*"
    return Column("count(*)" if everything else f"count({_column(column).text})")


def count_if(test: Any) -> Column:
    return Column(f"count(*) FILTER (WHERE {_column(test).text})")


def max_by(column: Any, order: Any) -> Column:
    return Column(f"arg_max([{_column(column).text}], {_column(order).text})[1]")


def min_by(column: Any, order: Any) -> Column:
    return Column(f"arg_min([{_column(column).text}], {_column(order).text})[1]")


def last(column: Any, *, ignorenulls: bool) -> Column:
    return Column(f"last_value({_column(column).text}{' IGNORE NULLS' * ignorenulls})")


def pmod(column: Any, divisor: Column) -> Column:
    one = _column(column).text
    return Column(f"((({one} % {divisor.text}) + {divisor.text}) % {divisor.text})")


def to_date(column: Any) -> Column:
    return _column(column).cast("date")


def struct(*columns: Any) -> Column:
    told = [_column(each) for each in columns]
    return Column(f"struct_pack({', '.join(f'{quoted(one.name)} := {one.text}' for one in told)})")


def try_element_at(column: Any, at: Any) -> Column:
    return Column(f"({_column(column).text})[{_column(at).text}]")


def create_map(*columns: Column) -> Column:
    pairs = zip(columns[::2], columns[1::2], strict=True)
    return Column(f"MAP {{{', '.join(f'{key.text}: {value.text}' for key, value in pairs)}}}")


def filter(column: Column, keep: Callable[[Column], Column]) -> Column:
    return Column(f"list_filter({column.text}, lambda _x: {keep(Column('_x')).text})")


def collect_list(column: Any) -> Column:
    one = _column(column).text
    return Column(f"coalesce(list({one}) FILTER (WHERE {one} IS NOT NULL), [])")


def broadcast(frame: Any) -> Any:
    return frame
