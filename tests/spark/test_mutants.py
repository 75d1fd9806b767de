"""The mutants of the analytics can still be made, and the tests can tell some."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.spark.mutants import FAILED, MUTANTS, Mutant, outcome, plant

QUICK = ("intervals have a number in common", "too little memory is not refused",
         "who waits is not waited for")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_line_is_still_there(tmp_path: Path, mutant: Mutant) -> None:
    plant(tmp_path, mutant)
    ast.parse((tmp_path / "omqtools" / "omqspark" / mutant.file).read_text(encoding="utf-8"))


@pytest.mark.cases
@pytest.mark.parametrize("name", QUICK)
def test_some_are_caught(tmp_path: Path, name: str) -> None:
    """`python -m tests.spark.mutants` runs all."""
    (mutant,) = (each for each in MUTANTS if each.name == name)
    code, said = outcome(mutant, mutant.tests, tmp_path)
    assert code == FAILED and "FAILED tests/spark/" in said, said
