"""The mutation guard: a harness that does not find the bugs of history would prove nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omq.storage import durable
from omq.storage.disk import Disk
from tests.crash.sim.explore import Explorer, Violation, record
from tests.crash.sim.life import BodyGone
from tests.crash.sim.mutants import MUTANTS, Mutant
from tests.crash.sim.workloads import WORKLOADS


@pytest.fixture(autouse=True)
def _real_disk_again() -> Iterator[None]:
    yield
    durable.use(Disk())


def hunt(mutant: Mutant) -> Violation | None:
    """The first state in which the bug shows as it must."""
    def shown(found: Violation) -> bool:
        return any(text.startswith(mutant.shows) for text in found.wrong)

    with mutant.switched_on():
        for seed in mutant.seeds:
            try:
                made = record(mutant.workload, WORKLOADS[mutant.workload], seed, mutant.settings)
            except BodyGone as error:
                return Violation(mutant.workload, seed, -1, "while it lives", (str(error),))
            count = Explorer(made, second=mutant.second, nested=0, until=shown).run()
            if count.violations and shown(count.violations[-1]):
                return count.violations[-1]
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_the_harness_finds(name: str) -> None:
    mutant = MUTANTS[name]
    found = hunt(mutant)
    assert found is not None, f"not found: {mutant.history}"
    assert any(text.startswith(mutant.shows) for text in found.wrong), found


def test_without_it_the_life_of_the_old_generation_is_clean() -> None:
    """Only this one has settings of its own; the other lives are those of test_explore."""
    mutant = MUTANTS["old-generation"]
    made = record(mutant.workload, WORKLOADS[mutant.workload], mutant.seeds[0], mutant.settings)
    count = Explorer(made, second=0, nested=0, extra=0).run()
    assert not count.violations, count.violations[0]
