"""Fronts of groups beside a dictionary, where many groups have one hash."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest

from omq.core.engine.group_fronts import Fronts
from omq.core.index.tables import Tables

ROWS = 60


def tables() -> Tables:
    return Tables.private(ROWS, ROWS, 100, 10)


def rows(t: Tables, r: random.Random) -> tuple[list[int], memoryview]:
    """A group for each entry, of few hashes; entries of one group follow each other."""
    keys = np.zeros(ROWS, "<u8").data
    many = (each << 40 | 1 << 63 for each in range(1 << 20))
    alike = [key for key in islice(many, 40_000) if t.bucket(key) in (1, 2)]
    groups = []
    for entry in range(ROWS):
        t.e_message[entry], t.e_queue[entry] = entry, 3 + entry // 2 % 3
        keys[entry] = alike.pop(r.randrange(len(alike)))
        if entry % 2:
            keys[entry] = keys[entry - 1]
        groups.append(t.e_queue[entry] << 64 | keys[entry])
    return groups, keys


@pytest.mark.parametrize("seed", range(4))
def test_as_a_dictionary_has_them(seed: int) -> None:
    r, t = random.Random(seed), tables()
    groups, keys = rows(t, r)
    fronts, known = Fronts(t, keys), dict[int, int]()
    for _ in range(1500):
        entry = r.randrange(ROWS)
        group = groups[entry]
        if group in known and r.random() < 0.5:
            del fronts[group], known[group]
        else:  # the first of its group, or the one after the first
            fronts[group] = known[group] = entry
        assert (len(fronts), dict(fronts), bool(fronts)) == (len(known), known, bool(known))
        assert [fronts.get(each, -1) for each in groups] == [known.get(each, -1)
                                                             for each in groups]
        assert [each in fronts for each in groups] == [each in known for each in groups]


def test_a_start_has_all_of_them() -> None:
    t = tables()
    groups, keys = rows(t, random.Random(7))
    fronts = Fronts(t, keys)
    some = np.array(range(0, ROWS, 2))
    fronts.load(np.asarray(t.v["e_queue"])[some], np.asarray(keys)[some], some)
    assert dict(fronts) == {groups[entry]: entry for entry in some.tolist()}
    for entry in some.tolist():
        del fronts[groups[entry]]
    assert dict(fronts) == {}


def test_what_is_not_there_is_an_error() -> None:
    t = tables()
    groups, keys = rows(t, random.Random(1))
    for fronts in (Fronts(t, keys), Fronts(t, memoryview(b""))):
        with pytest.raises(KeyError):
            fronts[groups[0]]
        with pytest.raises(KeyError):
            del fronts[groups[0]]
        assert fronts.get(groups[0]) is None
