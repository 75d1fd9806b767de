"""The tables that set omq next to others: no cell is empty, each says how it is known, and each
test that one names exists."""

from __future__ import annotations

import re

import pytest

from tests.tidy.test_mail_doc import DEFINED, NAMED
from tests.tidy.tree import ROOT

TABLES = (("MAIL.md", "## Next to other mail systems", 6, 35),
          ("NETWORK.md", "## Next to other brokers", 5, 30))
CELL = re.compile(r"not known|(yes|part|no)(: [^|]+)?(, D)?")


def problems(text: str, heading: str, columns: int) -> list[str]:
    """What is wrong with a table."""
    section = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    found = ["there are few rows"] if len(rows) < 10 else []
    for row in rows:
        if len(row) != columns:
            found.append(f"{row[0]}: {len(row)} cells")
            continue
        for number, cell in enumerate(row[1:]):
            if not CELL.fullmatch(cell):
                found.append(f"{row[0]}: {cell!r} says neither that it is there nor that it is not")
            said = cell.startswith(("yes", "part"))
            if number == 0 and said and not NAMED.search(cell):
                found.append(f"{row[0]}: omq's cell names no test")
            if number and cell != "not known" and not (cell.endswith(", D") or NAMED.search(cell)):
                found.append(f"{row[0]}: {cell!r} does not say how it is known")
    return found


@pytest.mark.parametrize(("file", "heading", "columns", "least"), TABLES)
def test_each_cell_says_how_it_is_known(file: str, heading: str, columns: int, least: int) -> None:
    text = (ROOT / "lib/omq/docs" / file).read_text()
    assert problems(text, heading, columns) == []
    section = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    assert section.count("\n|") >= least + 2, "the table has lost rows"
    there = {name for path in (ROOT / "tests").rglob("test_*.py")
             for name in DEFINED.findall(path.read_text())}
    assert not set(NAMED.findall(section)) - there


@pytest.mark.parametrize("cell", ["", "yes", "perhaps, D", "no"])
def test_a_cell_that_says_nothing_is_seen(cell: str) -> None:
    rows = "\n".join("| x | no | no, D |" for _ in range(10))
    assert problems(f"\n## A\n| a | b | c |\n|---|---|---|\n{rows}\n", "## A", 3) == []
    bad = f"\n## A\n| a | b | c |\n|---|---|---|\n{rows}\n| y | no | {cell} |\n"
    assert problems(bad, "## A", 3)
