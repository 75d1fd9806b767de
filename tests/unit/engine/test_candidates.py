"""Groups that may be whole, by their size: beside a list that is looked through; and what a look
for one costs (core.engine.candidates)."""

from __future__ import annotations

import random

import pytest

from omq.core.engine.candidates import Candidates
from omq.core.engine.groups import GROUPED, Groups
from omq.core.index.tables import Tables
from omq.format.index import EntryState
from omq.format.message import LAST_IN_GROUP

A = 3


@pytest.mark.parametrize("seed", range(10))
def test_the_first_that_fits_is_found(seed: int) -> None:
    """Beside a list in the order in which groups came, with their sizes."""
    chance, made = random.Random(seed), Candidates()
    came = list[tuple[int, int]]()
    for _ in range(2000):
        group, size = chance.randrange(40), chance.choice([1, 2, 2, 3, 7])
        if chance.random() < 0.5:
            made.add(group, size)
            if (group, size) not in came:
                came = [each for each in came if each[0] != group] + [(group, size)]
        else:
            made.drop(group)
            came = [each for each in came if each[0] != group]
        for most in range(9):
            fit = [each for each, count in came if count <= most]
            assert made.first(most) == (fit[0] if fit else -1)
        assert list(made.sizes.items()) == came
        assert all((each in made) == (each in dict(came)) for each in range(40))


@pytest.mark.parametrize("left", ["too large", "not whole"])
def test_a_look_for_a_whole_group_does_not_walk_along_all(left: str) -> None:
    """Members that are looked at: those of one group, and of the others once at most, whether they
    are larger than what is asked for or have one in other hands."""
    count = 500
    tables = Tables.private(3 * count + 10, 3 * count + 10)
    try:
        groups, t = Groups(tables), tables

        def member(key: int, number: int, state: EntryState = EntryState.READY) -> None:
            slot, entry = t.messages.take(), t.entries.take()
            t.m_flags[slot] = int(t.m_flags[slot]) | GROUPED
            groups.born(slot, key, number)
            t.e_message[entry], t.e_queue[entry] = slot, A
            t.e_state[entry], t.e_sequence[entry] = state, entry + 1
            groups.arrive(entry)

        for key in range(1, count + 1):
            member(key, 1)
            member(key, 2 if left == "too large" else 2 | LAST_IN_GROUP, EntryState.ACTIVE)
            if left == "too large":
                member(key, 3 | LAST_IN_GROUP)
        member(count + 1, 1 | LAST_IN_GROUP)
        looked = 0
        walk = groups.members

        def counting(group: int, most: int) -> list[int]:
            nonlocal looked
            looked += 1
            return walk(group, most)

        groups.members = counting  # type: ignore[method-assign]
        for turn in range(3):
            (found,) = groups.whole(A, 2, lambda entry: False)
            assert groups.number(found) == 1
            assert looked == turn + 1 if left == "too large" else looked <= count + turn + 1
    finally:
        tables.release()
