"""TASKS's table of task queues: no cell is empty, each says how it is known, and what was tried has
its trial."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "lib/omq/docs/TASKS.md"
TRIED = ROOT / "tests/bench/tasks/tried"
KNOWN = re.compile(r"[^|]+? \((tried|documents)\)(; paid: [^|]+ \(documents\))?")
TEST = re.compile(r"test_[a-z0-9_]+")
TRIALS = {
    "delay": "delay", "planned times": "planned_times", "retries with pauses": "retries",
    "priority": "priority", "the same once": "once", "results": "results", "chains": "chains",
    "groups that are waited for": "groups", "limits of rate": "rate",
    "so many at once, of a queue and of each key": "at_once", "fixtures for tests": "fixtures",
    "a task that is being processed gets its cancellation, and says how far it is": "cancel",
    "one transaction with your data": "transaction"}
"""Row of the table -> the name of its trial."""


def table() -> dict[str, dict[str, str]]:
    """Row -> column -> cell."""
    text = DOCUMENT.read_text("utf-8").partition("\n## Compared with other task queues\n")[2]
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head = rows[0][1:]
    return {row[0]: dict(zip(head, row[1:], strict=True)) for row in rows[2:]}


def trials(library: str) -> set[str]:
    """Functions of its module that do something."""
    path = TRIED / f"{library.lower()}_tried.py"
    if not path.exists():
        return set()
    return {node.name for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.FunctionDef)}


def test_all_of_them_are_there() -> None:
    assert set(next(iter(table().values()))) == {
        "omq", "Celery", "dramatiq", "RQ", "huey", "procrastinate", "BullMQ", "River"}
    assert len(table()) >= 17


@pytest.mark.parametrize("row", table())
def test_each_cell_says_how_it_is_known(row: str) -> None:
    for column, cell in table()[row].items():
        if column == "omq":
            continue
        found = KNOWN.fullmatch(cell)
        assert found, f"{row}, {column}: {cell!r} says neither (tried) nor (documents)"
        if found[1] == "tried":
            assert TRIALS.get(row) in trials(column), f"{row}, {column}: there is no trial"


@pytest.mark.parametrize("row", table())
def test_each_cell_of_omq_has_its_test_or_document(row: str) -> None:
    cell = table()[row]["omq"]
    tests = TEST.findall(cell)
    assert cell and (tests or row in ("kept in", "languages") or ".md)" in cell), cell
    known = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(tests) <= known, cell


def test_what_is_tried_is_said() -> None:
    """A trial that no cell knows is a cell that says too little."""
    for column in ("Celery", "dramatiq", "RQ", "huey", "procrastinate", "BullMQ", "River"):
        said = {TRIALS[row] for row, cells in table().items() if "(tried)" in cells[column]}
        assert trials(column) & set(TRIALS.values()) == said
