"""omq.fast.groups beside what it stands for: rings of groups, numbers, and groups that are whole
(core.engine.groups)."""

from __future__ import annotations

import random
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import pytest

from omq.base.limits import PRIORITIES
from omq.fast.lane import Lane
from omq.format.message import GROUP_AT, Descriptor, encode, group_of
from tests.forms.mutants import MUTANTS, beside
from tests.forms.two_rings import SEEDS, Way, work
from tests.forms.two_ways import source
from tests.model.mutants import Mutant

TOLD = ("a number in a group is lost", "numbers are not counted",
        "who comes without a number changes nothing", "numbers that leave are counted",
        "a group that is whole by a settlement tells nobody",
        "a member that is found waits for its turn still", "all members have the turn",
        "a ring is not closed", "a group of one stays", "the turn is taken from the front")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_ways_keep_the_same(seed: int) -> None:
    assert work(source(name="groups"), seed) > 3


@pytest.mark.parametrize("name", TOLD)
def test_what_is_broken_is_told(tmp_path: Path, name: str) -> None:
    (mutant,) = [each for each in MUTANTS if each.name == name]
    assert isinstance(mutant, Mutant)
    assert beside(mutant, tmp_path)


@pytest.mark.parametrize("number", [0, 1, 255, 256, 70_300, 1 << 31 | 1, 0xFFFFFFFF])
def test_a_key_and_its_number_are_those_of_the_descriptor(number: int) -> None:
    """Also behind other bytes; what has no whole descriptor has no key."""
    payload = encode(Descriptor(group_id=b"g" * 16, group_sequence=number), [], b"", b"body")
    rings = source(name="groups").Rings(Way().core, Way().t, None)
    assert rings.key(memoryview(b"xx" + payload), 2) == group_of(payload)[0]
    assert rings.number == number
    assert rings.key(memoryview(payload[: GROUP_AT + 5]), 0) == 0


def test_ids_that_begin_alike_are_told_apart() -> None:
    """Some of them have the same place among the recent ones."""
    rings = source(name="groups").Rings(Way().core, Way().t, None)
    for _ in range(2):
        for number in range(1500):
            payload = encode(Descriptor(group_id=b"g" * 16 + b"%d" % number), [], b"", b"")
            assert rings.key(memoryview(payload), 0) == group_of(payload)[0]


@pytest.mark.parametrize("made", [Lane, source(name="lane").Lane], ids=["as it is", "interpreted"])
@pytest.mark.parametrize("seed", range(6))
def test_a_lane_is_a_heap(made: type[Any], seed: int) -> None:
    """Of any length, full and empty by turns, and with items that are equal."""
    r, lane, heap = random.Random(seed), made(), list[tuple[int, int, int]]()
    fill = r.choice((3, 70, 1000))
    for step in range(6000):
        if heap and (r.random() < 0.4 or step // fill % 2):
            assert lane.first() == heap[0]
            assert (lane.sequence(), lane.entry()) == heap[0][1:]
            lane.drop()
            heappop(heap)
        else:
            sequence = r.choice((step, r.getrandbits(64), r.randrange(9)))
            item = r.randrange(PRIORITIES), sequence, sequence % 0xFFFFFFFF
            lane.push(*item)
            heappush(heap, (-item[0], *item[1:]))
        assert len(lane) == lane.count == len(heap)
        if step % 100 == 0:
            items = lane.items()
            assert sorted(items) == sorted(heap)
            assert all(items[(i - 1) // 2] <= items[i] for i in range(1, len(items)))
    while heap:
        assert lane.first() == heappop(heap)
        lane.drop()
    assert not lane
    with pytest.raises(IndexError):
        lane.drop()
