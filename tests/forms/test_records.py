"""Pool slots, taken and given one at a time by omq.fast.records and by storage.slots."""

from __future__ import annotations

import importlib.util
import random
from typing import Any

import pytest

from omq.storage.slots import FileSlots
from tests.forms.running import ROOT


@pytest.fixture
def records() -> Any:
    """The source: compiled, its functions are for C alone."""
    spec = importlib.util.spec_from_file_location(
        "records", ROOT / "lib" / "omq" / "fast" / "records.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", range(5))
def test_slots_are_those_of_the_allocator(records: Any, seed: int) -> None:
    """Runs in between leave freed slots behind that are in use again."""
    r, one, other = random.Random(seed), FileSlots(), FileSlots()
    taken: list[int] = []
    for _ in range(3000):
        if r.random() < 0.1:
            first = one.alloc_run(3)
            assert other.alloc_run(3) == first
            taken += range(first, first + 3)
        elif r.random() < 0.4:
            taken.append(one.alloc())
            assert records.take_record(other) == taken[-1]
        elif taken:
            slot = taken.pop(r.randrange(len(taken)) if r.random() < 0.5 else -1)
            one.free(slot)
            records.give_record(other, slot)
        assert (one.used, one.freed, one.live) == (other.used, other.freed, other.live)
        assert len(set(taken)) == len(taken)
