"""What the tables of mutants change stands in the source, once, and what it becomes is Python.

Here, and not beside the tables: whoever changes a line runs these tests, whatever share of the long
files, and with or without Spark."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import pytest

from tests.forms import mutants as of_forms
from tests.model import mutants as of_model
from tests.spark import mutants as of_spark

OMQ = of_model.ROOT / "lib" / "omq"


class Planted(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def old(self) -> str: ...
    @property
    def new(self) -> str: ...


def missing(mutants: Iterable[Planted], source: Path) -> list[str]:
    """Of which mutants the line is not there once, or is no Python when it is changed."""
    found = []
    for mutant in mutants:
        text = (source / mutant.file).read_text(encoding="utf-8")
        if (count := text.count(mutant.old)) != 1:
            found.append(f"{mutant.name}: stands {count} times in {mutant.file}")
            continue
        try:
            ast.parse(text.replace(mutant.old, mutant.new))
        except SyntaxError as error:
            found.append(f"{mutant.name}: {error}")
    return found


@pytest.mark.parametrize(("mutants", "source"), [
    (of_model.MUTANTS, OMQ), (of_forms.MUTANTS, OMQ), (of_spark.MUTANTS, of_spark.SOURCE),
], ids=("model", "forms", "spark"))
def test_their_lines_are_still_there(mutants: tuple[Planted, ...], source: Path) -> None:
    assert len(mutants) > 50
    assert not missing(mutants, source)


def test_a_line_that_is_gone_is_missing(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text("a = 1\nb = 2\nb = 2\n")
    of = of_model.Mutant
    assert missing([of("gone", "some.py", "c = 3", ""), of("twice", "some.py", "b = 2", ""),
                    of("broken", "some.py", "a = 1", "a ="), of("there", "some.py", "a", "c"),
                    ], tmp_path) == [
        "gone: stands 0 times in some.py", "twice: stands 2 times in some.py",
        "broken: invalid syntax (<unknown>, line 1)"]
