"""The machine can tell the mutants of tests/model/mutants.py, one in each module. That each can
still be made is looked at in tests/tidy."""

from __future__ import annotations

import pytest

from tests.model.lives import SHOWN, kept, outcome_on
from tests.model.mutants import EXAMPLES, MUTANTS, Mutant
from tests.model.steps import play
from tests.model.test_barrier_model import BarrierMachine

FIRST_OF_EACH_MODULE = {mutant.file: mutant for mutant in reversed(MUTANTS)
                        if mutant.name in kept()}


@pytest.mark.cases
@pytest.mark.parametrize("mutant", FIRST_OF_EACH_MODULE.values(), ids=lambda mutant: mutant.name)
def test_its_life_shows_it(mutant: Mutant) -> None:
    """One in each module; `make crash` runs all, and searches as well."""
    outcome = outcome_on(mutant)
    assert outcome.startswith(SHOWN), f"{outcome}: python -m tests.model.lives --record NAME"


@pytest.mark.cases
@pytest.mark.parametrize("name", kept())
def test_omq_itself_lives_it(name: str) -> None:
    play(BarrierMachine, kept()[name])


def test_each_module_has_a_life() -> None:
    """But those whose mutants show only in a long search."""
    assert {m.file for m in MUTANTS if m.examples == EXAMPLES} <= FIRST_OF_EACH_MODULE.keys()
