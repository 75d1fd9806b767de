"""The tests can tell some of the mutants of the analytics. That each can still be made is looked at
in tests/tidy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.mutants import FAILED, MUTANTS, outcome

QUICK = ("intervals have a number in common", "too little memory is not refused",
         "who waits is not waited for")


@pytest.mark.cases
@pytest.mark.parametrize("name", QUICK)
def test_some_are_caught(tmp_path: Path, name: str) -> None:
    """`python -m tests.spark.mutants` runs all."""
    (mutant,) = (each for each in MUTANTS if each.name == name)
    code, said = outcome(mutant, mutant.tests, tmp_path)
    assert code == FAILED and "FAILED tests/spark/" in said, said
