"""A standby under power cuts of either disk, a stream that is late, cut and begun anew."""

from __future__ import annotations

from random import Random

import pytest

from tests.crash.sim.life import Life, fixed
from tests.crash.sim.pair import ALL, Pair, Standby, boundaries, judged, make_base, promoted
from tests.crash.sim.pair_explore import MOVING, How, StandbyCuts, primary_cut
from tests.crash.sim.pair_mutants import MUTANTS, found
from tests.crash.sim.platter import image_of
from tests.crash.sim.workloads import WORKLOADS

CUTS = ("plain", "groups", "checkpoints", "moves", "rotation", "generations", "behind_store",
        "large", "units")
MOVES_BODIES = ("rotation", "behind_store", "emptied", "large")

OTHERS = {"restart"}
"""It makes a primary of its own."""


@pytest.mark.parametrize("name", sorted(WORKLOADS.keys() - OTHERS))
def test_a_promoted_standby_is_the_primary(name: str) -> None:
    """Every life, with a stream that is late and cut; the primary lets go of what it has sent."""
    for seed in range(3):
        with fixed(seed):
            begin, base, model = make_base()
            life = Life(begin.mount(record=True), model=dict(model))
            pair = Pair(life, Standby(base.mount(record=True)), Random(seed), ahead=bool(seed % 2),
                        breaks=0.3, delay=0.3)
            WORKLOADS[name](life, Random(seed))
            pair.settle()
            known = boundaries(life.disk, model)
            acked = pair.standby.acked
            assert acked >= life.writer.durable_lsn
            wrong = judged(promoted(image_of(pair.standby.disk)), known, acked, ALL)
            assert not wrong, wrong


@pytest.mark.cases
@pytest.mark.parametrize("name", CUTS)
def test_power_cuts_of_the_standby(name: str) -> None:
    count = StandbyCuts(name, 1, How(), thin=6).run()
    assert not count.violations, count.violations[0]
    assert count.images > 100 and count.second


@pytest.mark.cases
@pytest.mark.parametrize("name", MOVES_BODIES)
def test_power_cuts_of_a_standby_that_copies_bodies(name: str) -> None:
    """Journal and store files go on both sides."""
    count = StandbyCuts(name, 1, MOVING, thin=4).run()
    assert not count.violations, count.violations[0]
    assert count.images > 100


@pytest.mark.cases
@pytest.mark.parametrize("name", ["plain", "groups", "rotation", "checkpoints"])
def test_power_cuts_of_the_primary_under_a_standby_that_is_ahead(name: str) -> None:
    for restart in (False, True):
        call, there = 1, True
        while there:
            there, wrong = primary_cut(name, 1, call, restart=restart)
            assert not wrong, wrong
            call += 5
        assert call > 10


@pytest.mark.cases
@pytest.mark.parametrize("name", MUTANTS)
def test_the_explorers_find(name: str) -> None:
    assert found(name), f"not found: {name}"
