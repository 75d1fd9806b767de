"""CLOCKS.md lists every use of the wall clock, with its rule and its test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, nodes, product, suite

TEXT = (ROOT / "lib/omq/docs/CLOCKS.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")]
        for line in TEXT.splitlines() if line.startswith("| ")][1:]
WALL = {"wall_ns", "time_ns"}  # called
OF_MODULES = {("time", "time"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}
NO_TEST = ("shown only", "OpenSSL's")


def _is_wall(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Name):
        return called.id in WALL and not node.args
    return isinstance(called, ast.Attribute) and (
        (called.attr in WALL and not node.args)
        or (isinstance(called.value, ast.Name) and (called.value.id, called.attr) in OF_MODULES))


def _name(path: str) -> str:
    inside = Path(path).is_relative_to("lib/omq")
    return str(Path(path).relative_to("lib/omq").with_suffix("")) if inside else path


def _using() -> set[str]:
    return {_name(source.path) for source in product() if any(map(_is_wall, nodes(source)))}


def _listed() -> set[str]:
    return {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[1])}


def test_each_use_of_the_wall_clock_is_listed() -> None:
    assert _using() - _listed() == set(), "add it to lib/omq/docs/CLOCKS.md, with its rule"


def test_what_is_listed_uses_it() -> None:
    assert _listed() - _using() == set()


def test_a_use_is_found_however_it_is_written() -> None:
    for text, found in (("clock.wall_ns()", True), ("wall_ns()", True), ("time.time()", True),
                        ("datetime.now(UTC)", True), ("time.monotonic()", False),
                        ("clock.monotonic_ns()", False), ("time_ns(text)", False)):
        assert any(map(_is_wall, ast.walk(ast.parse(text)))) is found, text


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_row_has_its_test(row: list[str]) -> None:
    assert row[2], "a row says its rule"
    if row[3] not in NO_TEST:
        known = {node.name for source in suite() for node in nodes(source)
                 if isinstance(node, ast.FunctionDef)}
        assert set(row[3].split(", ")) - known == set()
