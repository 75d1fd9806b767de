"""omq.fast.groups beside what it stands for: rings of groups, numbers, and groups that are whole
(core.engine.groups)."""

from __future__ import annotations

from pathlib import Path

import pytest

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
