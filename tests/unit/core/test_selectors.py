"""Selectors: what SQL says, three-valued logic, places of errors, and what hostile ones cost."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omq.base.errors import BadSelector
from omq.core.select.parser import Both, Condition, Parser
from omq.core.select.values import Truth, Value, all_of, any_of, not_, pattern

MESSAGE: Mapping[str, Value] = {
    "country": "UK", "amount": "12.5", "count": "7", "flag": "true", "name": "it's", "a.b": "x",
    "priority": 5, "persistent": True, "long": "9" * 400, "blank": "", "property:x-y": "1",
    "my name": "spaced", "under_score": "a_b%c"}


def said(found: Both[Condition] | Condition, message: Mapping[str, Value]) -> Truth:
    if isinstance(found, Condition):
        return found.test(message.get)
    parts = (said(part, message) for part in found.parts)
    if found.kind == "NOT":
        return not_(next(parts))
    return all_of(parts) if found.kind == "AND" else any_of(parts)


def judge(selector: str, message: Mapping[str, Value] = MESSAGE) -> Truth:
    return said(Parser[Condition](selector).parse(), message)


@pytest.mark.parametrize(("selector", "expected"), [
    ("country = 'UK'", True), ("country <> 'UK'", False), ("country != 'US'", True),
    ("country='US' OR amount > 12", True), ("amount > 12 AND count < 7", False),
    ("amount = 12.5", True), ("amount = 125E-1", True), ("amount <= 12.", False),
    ("count BETWEEN 7 AND 9", True), ("count NOT BETWEEN 7 AND 9", False),
    ("count * 2 + 1 = 15", True), ("(count + 1) * 2 = 16", True), ("-count = -7", True),
    ("count / 2 = 3", True), ("-count / 2 = -3", True), ("amount / 5 = 2.5", True),
    ("count - 2 - 2 = 3", True), ("+count = 7", True), ("- (count) < 0", True),
    ("count / 0 = 1", None), ("NOT count / 0 = 1", None), ("amount / 0.0 = 1", None),
    ("country IN ('US', 'UK')", True), ("country NOT IN ('US', 'UK')", False),
    ("priority IN (1, 5)", True), ("count IN (-7, 7)", True), ("none IN ('x')", None),
    ("country LIKE 'U_'", True), ("country LIKE 'u_'", False), ("country NOT LIKE '%S'", True),
    ("under_score LIKE 'a!_b!%c' ESCAPE '!'", True),
    ("under_score LIKE 'a!__!%' ESCAPE '!'", False),
    ("name = 'it''s'", True), ("none IS NULL", True), ("none IS NOT NULL", False),
    ("blank IS NULL", False), ("blank = ''", True), ("none = 'x'", None), ("NOT none = 'x'", None),
    ("none = 'x' OR country = 'UK'", True), ("none = 'x' AND country = 'US'", False),
    ("none = 'x' AND country = 'UK'", None), ("none LIKE '%'", None), ("none = none", None),
    ("flag = TRUE", True), ("flag <> TRUE", False), ("persistent = FALSE", False),
    ("persistent = TRUE AND priority > 4", True), ("country = TRUE", None), ("flag = 1", None),
    ("country > 4", None), ("country = 4", None), ("priority LIKE '5'", None),
    ("a.b = 'x'", True), ("property:x-y = 1", True), ('"my name" = \'spaced\'', True),
    ("long > 1", None), ("not (country = 'UK')", False), ("country = 'UK' and not count = 8", True),
    ("((country) = 'UK')", True), ("(1 + 2) * 2 = 6", True), ("(country = 'UK')", True),
    ("1 = 1", True), ("'a' = 'a'", True), ("9223372036854775807 > 1", True),
    ("country = 'UK' OR country = 'US' AND count = 0", True),
])
def test_what_it_says(selector: str, expected: Truth) -> None:
    assert judge(selector) is expected


@pytest.mark.parametrize(("selector", "place", "words"), [
    ("", 1, "here stands"), ("country", 8, "comparison"), ("country =", 10, "a name, a number"),
    ("country = 'UK", 11, "no end"), ("= 5", 1, "a name"), ("count > 5 AND", 14, "here stands"),
    ("(count > 5", 11, "here stands )"), ("count > 5)", 10, "without its ("),
    ("count > 5 count < 6", 11, "AND, OR"), ("count ~ 5", 7, "nothing here"),
    ("count > 'x'", 1, "= and <>"), ("count BETWEEN 1", 16, "here stands AND"),
    ("count IN 5", 10, "here stands ("), ("count IN ()", 11, "a text or a number"),
    ("count IN (country)", 11, "a text or a number"), ("count LIKE 5", 12, "stands a text"),
    ("count LIKE 'x' ESCAPE 'ab'", 23, "one character"), ("5 LIKE 'x'", 1, "stands a name"),
    ("count LIKE 'a!x' ESCAPE '!'", 12, "must be followed"), ("count IS 5", 10, "here stands NULL"),
    ("count NOT IS NULL", 14, "IS NOT NULL"), ("'a' + 1 = 2", 1, "only numbers"),
    ("- 'a' = 2", 3, "only numbers"), ("count = 9223372036854775808", 9, "64 bits"),
    ("country = 'UK' ; drop", 16, "nothing here"), ("count = 5x", 9, "nothing here"),
    ("NOT", 4, "here stands"), ("TRUE", 5, "comparison"), ("count = NULL", 9, "a name"),
])
def test_the_place_of_an_error_is_told(selector: str, place: int, words: str) -> None:
    with pytest.raises(BadSelector) as told:
        judge(selector)
    assert told.value.fields["position"] == place, told.value
    assert words in str(told.value)


@pytest.mark.parametrize("selector", [
    "(" * 60 + "a = 1" + ")" * 60, "NOT " * 60 + "a = 1", "a = " + "-" * 60 + "1",
    "a = " + "(" * 60 + "1" + ")" * 60, "a = '" + "x" * 5000 + "'", "a = 'ä" + "ö" * 2100 + "'",
    " OR ".join(["a=1"] * 400)])
def test_what_is_too_much_is_refused(selector: str) -> None:
    with pytest.raises(BadSelector):
        judge(selector)


@pytest.mark.parametrize("selector", [
    "a LIKE '" + "%x" * 400 + "y'", "a LIKE '" + "%_x_" * 300 + "'",
    "a LIKE '%" + "_" * 900 + "y%'",
    "a LIKE '" + "%" * 900 + "y'", " AND ".join(["a LIKE '%x%x%x%y'"] * 100),
    "count " + "* 9223372036854775807 " * 180 + "> 0", "count = 1 " + "+ 1 " * 400])
def test_a_hostile_one_costs_little(selector: str) -> None:
    """Processor time: no pattern tries a place twice, no chain goes deep."""
    message: dict[str, Value] = {"a": "x" * 60_000, "count": 7}
    before = time.process_time()
    judge(selector, message)
    assert time.process_time() - before < 5.0


@given(st.text(alphabet="ab_%!\n.", max_size=12), st.text(alphabet="ab_%!\n.", max_size=12))
def test_like_is_that_of_sqlite(text: str, like: str) -> None:
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute("PRAGMA case_sensitive_like = ON")
        try:
            found = pattern(like, "!")(text)
        except ValueError:
            return
        (expected,) = base.execute("SELECT ? LIKE ? ESCAPE '!'", (text, like)).fetchone()
        assert found == bool(expected)


NUMBERS = st.sampled_from(["n", "m", "z", "0", "1", "2", "7", "-3"])
TEXTS = st.sampled_from(["s", "t", "u"])
SUMS = st.recursive(NUMBERS, lambda inner: st.builds(
    "({} {} {})".format, inner, st.sampled_from("+-*/"), inner), max_leaves=5)
CONDITIONS = st.recursive(
    st.builds("{} {} {}".format, SUMS, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), SUMS)
    | st.builds("{} {}BETWEEN {} AND {}".format, SUMS, st.sampled_from(["", "NOT "]), SUMS, SUMS)
    | st.builds("{} {} '{}'".format, TEXTS, st.sampled_from(["=", "<>"]), st.sampled_from("ab"))
    | st.builds("{} {}IN ('a', 'c')".format, TEXTS, st.sampled_from(["", "NOT "]))
    | st.builds("{} {}LIKE '%{}'".format, TEXTS, st.sampled_from(["", "NOT "]),
                st.sampled_from(["a", "_", "b%"]))
    | st.builds("{} IS {}NULL".format, TEXTS | st.sampled_from("nmz"),
                st.sampled_from(["", "NOT "])),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner)
    | st.builds("NOT ({})".format, inner), max_leaves=6)


@pytest.fixture(scope="module")
def base() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as found:
        found.execute("PRAGMA case_sensitive_like = ON")
        yield found


@settings(max_examples=400)
@given(CONDITIONS, st.lists(st.none() | st.integers(-5, 9), min_size=3, max_size=3),
       st.lists(st.none() | st.sampled_from(["a", "b", "ab", "c"]), min_size=3, max_size=3))
def test_the_logic_is_that_of_sqlite(base: sqlite3.Connection, selector: str,
                                     numbers: list[int | None], texts: list[str | None]) -> None:
    message: dict[str, Value] = dict(zip("nmzstu", [*numbers, *texts], strict=True))
    (expected,) = base.execute(
        f"SELECT {selector} FROM (SELECT ? AS n, ? AS m, ? AS z, ? AS s, ? AS t, ? AS u)",
        [*numbers, *texts]).fetchone()
    found = judge(selector, message)
    assert found == (None if expected is None else bool(expected)), selector
