"""The start, omqcheck and omqrecover judge every damaged state alike (tests.crash.sim.judges)."""

from __future__ import annotations

from itertools import product
from random import Random

from omq.core.judge.cases import Case, Verdict
from omq.core.judge.finding import worst
from tests.crash.sim.absence import LIVES, lived
from tests.crash.sim.judges import absences, anywhere, flipped, judge_all, judged, tail
from tests.crash.sim.life import fixed
from tests.share import of_cases, share

SEED = 20
OTHER = 97


def test_of_what_is_absent_cut_older_or_exchanged() -> None:
    total, (_, parts) = 0, share()
    for name, stopped in of_cases(list(product(LIVES, (True, False)))):
        ended, disk = lived(name, SEED, stopped=stopped)
        other, _ = lived(name, OTHER, stopped=stopped)
        with fixed(SEED):
            count, wrong = judge_all(ended, absences(ended, other.files, SEED), disk)
        assert not wrong, wrong[0]
        total += count
    print(f"judges: {total} absent states")  # pytest -s: the counts of CRASH-SAFETY.md
    assert total > 1_500 // parts


def test_of_each_bit_of_a_clean_stops_tail() -> None:
    ended, disk = lived("checkpoints", SEED, stopped=True)
    places = of_cases(tail(ended))
    with fixed(SEED):
        count, wrong = judge_all(ended, (flipped(ended, *place) for place in places), disk)
    assert not wrong, wrong[0]
    assert count == len(places) > 0
    print(f"judges: {count} bits of a clean stop's tail")


def test_of_random_bits() -> None:
    total = 0
    for name, stopped in of_cases(list(product(LIVES, (True, False)))):
        ended, disk = lived(name, SEED, stopped=stopped)
        with fixed(SEED):
            count, wrong = judge_all(ended, anywhere(ended, Random(SEED)), disk)
        assert not wrong, wrong[0]
        total += count
    assert total
    print(f"judges: {total} random bits")


def test_a_bit_of_the_stop_block_costs_nothing() -> None:
    """An operator who reads "loss" would restore an older backup over a whole spool."""
    ended, disk = lived("checkpoints", SEED, stopped=True)
    path = max(path for path in ended.files if "/journal/0" in path)
    fault = flipped(ended, *next(place for place in tail(ended) if place[0] == path))
    with fixed(SEED):
        said = judged(ended, fault, disk)
    assert said is not None and said.served == "served" and not said.refused
    for found in (said.start, said.check, said.scan):
        assert [(each.case, each.row.verdict) for each in found] == [
            (Case.JOURNAL_BLOCK, Verdict.REPAIR)]
    assert worst(said.scan) is Verdict.REPAIR
