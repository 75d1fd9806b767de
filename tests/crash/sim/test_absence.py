"""L6: nothing that is absent, cut, older, exchanged or zeros is silent."""

from __future__ import annotations

from itertools import product

import pytest

from tests.crash.sim.absence import LIVES, Tally, try_all
from tests.crash.sim.absence_mutants import MUTANTS
from tests.share import of_cases, share

SEED = 20


def test_what_is_missing_or_not_what_it_was_is_served_or_named() -> None:
    total, (_, parts) = Tally(), share()
    for name, stopped in of_cases(list(product(LIVES, (True, False)))):
        total.add(try_all(name, SEED, stopped=stopped))
    print(f"L6: {total.tried} faults: {total}")  # pytest -s: the counts of CRASH-SAFETY.md
    assert not total.silent, total.silent[0]
    assert total.tried > 1_500 // parts
    assert min(total.served, total.refused, total.reported, total.bodies) > 50 // parts


@pytest.mark.cases
@pytest.mark.parametrize("name", MUTANTS)
def test_a_start_that_leaves_out_a_check_is_found(name: str) -> None:
    mutant = MUTANTS[name]
    with mutant.switched_on():
        for seed in range(SEED, SEED + 8):
            silent = try_all(mutant.life, seed, stopped=mutant.stopped).silent
            if any(mutant.part in each and f" {mutant.kind}" in each for each in silent):
                return
    pytest.fail(f"not found: {mutant.bug}")
