"""omq-spark ask: questions that operators have, with the SQL and the Python that answer them. They
are in lib/omq/docs/QUESTIONS.md, which is a part of the package; a test runs each of them.

Errors: BadRequest: there is no question of that name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import omq
from omq.base.errors import BadRequest

PAGE: Final = Path(omq.__file__).with_name("docs") / "QUESTIONS.md"
_SECTION: Final = re.compile(
    r"^## (\w+)\n\n\*\*(.+?)\*\*\n(.+?)\n\n```sql\n(.+?)\n```\n\n```python\n(.+?)\n```$",
    re.MULTILINE | re.DOTALL)
_FIRST: Final = re.compile(r"```python\n(.+?)\n```", re.DOTALL)


@dataclass(frozen=True)
class Question:
    """`sql`: of DuckDB and of Spark; `pandas`: leaves a frame with the same columns and rows in
    `answer`."""

    name: str
    title: str
    note: str
    sql: str
    pandas: str


def questions() -> dict[str, Question]:
    """By name, in the order of the page."""
    _, _, text = _page().partition("\n## First\n")
    found = [Question(*each) for each in _SECTION.findall(text)]
    return {each.name: each for each in found}


def preambles() -> tuple[str, str]:
    """What comes first: of DuckDB and pandas, and of Spark."""
    first, second = _FIRST.findall(_page())[:2]
    return first, second


def asked(name: str) -> str:
    """What is printed for a name; without one: all names. BadRequest."""
    known = questions()
    if not name:
        return "".join(f"{each.name:10} {each.title}\n" for each in known.values())
    if name not in known:
        raise BadRequest(reason=f"there is no question {name!r}; there are {', '.join(known)}")
    one = known[name]
    return (f"{one.title}\n{one.note}\n\n-- SQL for DuckDB and Spark\n{one.sql}\n\n"
            f"# pandas\n{one.pandas}\n")


def _page() -> str:
    return PAGE.read_text(encoding="utf-8")
