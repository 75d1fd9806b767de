"""The slot allocator against a set of numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omq.storage.slots import SlotAllocator


@given(st.lists(st.integers(0, 9), max_size=300), st.sets(st.integers(0, 20)))
def test_it_agrees_with_a_set(steps: list[int], loaded: set[int]) -> None:
    slots = SlotAllocator()
    slots.load(0, loaded)
    used = set(loaded)
    pick = random.Random(1)
    for step in steps:
        if step < 5 or not used:
            high = slots.high_water(0)
            slot = slots.alloc(0)
            assert slot not in used
            assert slot < high or len(used) == high, "the file grows only when it is full"
            used.add(slot)
        else:
            slot = max(used) if step == 9 else pick.choice(sorted(used))
            slots.free(0, slot)
            used.remove(slot)
        assert slots.high_water(0) == max(used, default=-1) + 1
        assert slots.live(0) == len(used)


def test_the_last_freed_comes_first() -> None:
    slots = SlotAllocator()
    slots.load(0, range(10))
    for slot in (2, 5, 3):
        slots.free(0, slot)
    assert [slots.alloc(0) for _ in range(4)] == [3, 5, 2, 10]


def test_trailing_space_sinks() -> None:
    slots = SlotAllocator()
    slots.load(0, range(10))
    for slot in (7, 8, 5, 9):
        slots.free(0, slot)
    assert slots.high_water(0) == 7
    slots.free(0, 6)
    assert slots.high_water(0) == 5
    assert slots.alloc(0) == 5, "stale entries above the mark are passed over"


def test_a_slot_is_freed_once() -> None:
    slots = SlotAllocator()
    slots.load(0, [0, 1])
    slots.free(0, 0)
    with pytest.raises(AssertionError):
        slots.free(0, 0)


def test_load_takes_numpy() -> None:
    slots = SlotAllocator()
    slots.load(3, np.array([4, 1], dtype=np.uint32))
    assert (slots.live(3), slots.high_water(3), slots.alloc(3)) == (2, 5, 0)


def test_the_originals_rule_for_files() -> None:
    """Process id modulo 100 if that file exists, else the next highest unused number."""
    slots = SlotAllocator()
    assert slots.choose_file(4711) == 0
    assert slots.choose_file(4711) == 1
    for file in range(16):
        slots.load(file, [])
    assert slots.choose_file(1212) == 12
    assert slots.choose_file(1299) == 16
    assert slots.choose_file(1216) == 16
    slots.load(99, [])
    assert slots.choose_file(20) == 20, "behind 99QP the modulus itself is made"
    assert slots.files() == [*range(17), 20, 99]


def test_excluded_files_are_not_chosen() -> None:
    slots = SlotAllocator()
    slots.load(0, [])
    slots.exclude(1)
    assert slots.choose_file(1) == 2
    slots.exclude(99)
    assert slots.choose_file(99) == 0, "with 99QP taken, the next number around that may be used"
    assert slots.files() == [0, 2]
