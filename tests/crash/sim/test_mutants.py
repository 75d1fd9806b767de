"""The mutation guard: a harness that does not find the bugs of history would prove nothing."""

from __future__ import annotations

import pytest

from omq.format.frame_rules import RULES
from tests.crash.sim.explore import Explorer, record
from tests.crash.sim.frame_mutants import ALL, NOTHING, ROWS
from tests.crash.sim.hunt import hints, hunt
from tests.crash.sim.mutants import MUTANTS
from tests.crash.sim.workloads import WORKLOADS


@pytest.mark.cases
@pytest.mark.parametrize("name", ALL)
def test_the_harness_finds(name: str) -> None:
    mutant = ALL[name]
    found = hunt(mutant, hints().get(name))
    assert found is not None, f"not found: {mutant.history}"
    assert any(text.startswith(mutant.shows) for text in found.wrong), found


def test_each_type_of_frame_has_its_row() -> None:
    """A new one is passed over by redo in a mutant of its own, or redo makes nothing of it."""
    assert ROWS.keys() | NOTHING.keys() == RULES.keys()
    assert not ROWS.keys() & NOTHING.keys()


def test_without_it_the_life_of_the_old_generation_is_clean() -> None:
    """Only this one has settings of its own; the other lives are those of test_explore."""
    mutant = MUTANTS["old-generation"]
    made = record(mutant.workload, WORKLOADS[mutant.workload], mutant.seeds[0], mutant.settings)
    count = Explorer(made, second=0, nested=0, extra=0).run()
    assert not count.violations, count.violations[0]
