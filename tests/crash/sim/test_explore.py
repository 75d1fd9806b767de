"""L1: no state that a power cut leaves breaks the promise."""

from __future__ import annotations

from random import Random

from tests.crash.sim.explore import Count, Explorer, record
from tests.crash.sim.jobs import Job, carry_out
from tests.crash.sim.report import describe
from tests.crash.sim.workloads import WORKLOADS, plain
from tests.share import share

SEED = 20


def test_no_state_of_any_short_life_breaks_the_promise() -> None:
    """A twelfth of the states of the lives; `make crash` judges all of many more lives. Of the
    planted bugs this finds as many as a sixth does; with a twenty-fourth three are missed. A run
    of CI takes its share of the cuts (tests.share)."""
    part, parts = share()
    jobs = [Job(name, SEED + i, second=0.015, nested=0.001, extra=4, thin=12, part=part,
                parts=parts)
            for i, name in enumerate(WORKLOADS)]
    total = Count()
    for count in carry_out(jobs):
        assert not count.violations, describe(count.violations[0])
        total.add(count)
    print(f"L1: {total}")  # shown by pytest -s: the counts of CRASH-SAFETY.md
    assert total.lives == len(WORKLOADS)
    assert total.states > 12_000 // parts
    assert total.second > 0 and (total.nested > 0 or parts > 1)  # some five of a share


def test_a_life_is_the_same_each_time_so_that_a_failure_can_be_replayed() -> None:
    one, two = (record("plain", plain, 3) for _ in range(2))
    assert one.log == two.log
    cut, label = len(one.log) - 1, "none"
    count = Explorer(one, second=0, nested=0).run(only=(cut, label))
    assert count.states == 1
    assert Random(3).random() == Random(3).random()
