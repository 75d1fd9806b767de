"""omq.fast.values and keys beside what they stand for: values of properties of payloads, whole,
broken or changed by a client meanwhile (format.property_key); lines, turns and places
(core.engine.limited, core.engine.key_turns)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from omq.format.message import Descriptor, Part, encode, encode_properties
from omq.format.property_key import property_in
from tests.forms.mutants import MUTANTS, beside
from tests.forms.two_ways import RULES, SEEDS, bounded, source, tidied, work
from tests.model.mutants import Mutant

NAME = b"tenant"
ONLY_REQUESTS = (
    "what has a rate is plain", "the group is no key", "a key of another queue is believed",
    "the key of a value before", "tokens are not spent", "tokens are not asked for")


@pytest.fixture
def values() -> Any:
    """omq.fast.values as it is written: compiled, its functions are for C alone."""
    return source(name="values")


def payload(r: random.Random) -> bytes:
    """With properties of all lengths, parts, and the wanted one or not."""
    texts = {f"p{number}": "x" * r.choice((0, 1, 30, 700)) for number in range(r.randrange(4))}
    if r.random() < 0.8:
        texts[r.choice(("tenant", "tenant", "tenan", "tenants"))] = r.choice(("", "a", "ä" * 400))
    parts = [Part(3, 4)] * r.choice((0, 0, 2))
    return encode(Descriptor(), parts, encode_properties(texts) if texts else b"",
                  r.randbytes(r.choice((0, 1, 600))))


@pytest.mark.parametrize("seed", range(4))
def test_both_find_the_same_value(values: Any, seed: int) -> None:
    """Also of what is no payload: some bytes are others, or the end is missing."""
    r, found = random.Random(seed), 0
    for _ in range(3000):
        made = bytearray(payload(r))
        for _ in range(r.choice((0, 0, 1, 3))):
            made[r.randrange(r.choice((12, len(made))))] = r.choice((0, 1, 255, r.randrange(256)))
        whole = bytes(made[: len(made) - r.choice((0, 0, 0, 1, r.randrange(len(made))))])
        before = r.randbytes(r.choice((0, 5)))
        area = memoryview(before + whole + r.randbytes(9))
        expected = property_in(whole, NAME)
        assert values.value_in(area, len(before), len(whole), NAME) == expected
        found += expected is not None
    assert found > 300


class _Changing:
    """An area in which the lengths grow once they were read."""

    def __init__(self, first: bytes, then: bytes) -> None:
        self._first, self._then, self.reads = first, then, 0

    def __getitem__(self, where: slice) -> bytes:
        self.reads += 1
        return (self._first if self.reads == 1 else self._then)[where]


def test_what_changes_meanwhile_is_bounded_by_what_was_read(values: Any) -> None:
    """A second look, where properties are long, is not believed beyond what it brought."""
    texts = {"long": "x" * 700, "tenant": "a"}
    first = encode(Descriptor(), [], encode_properties(texts), b"")
    begin = first.index(b"long") - 6
    then = bytearray(first)
    then[begin + 2 : begin + 6] = b"\xff" * 4  # the value has 4 GiB now
    area = _Changing(first, bytes(then))
    assert values.value_in(area, 0, len(first), NAME) is None
    assert area.reads == 2
    then = bytearray(first)
    then[8:12] = b"\xff" * 4  # all properties have
    area = _Changing(first, bytes(then))
    assert values.value_in(area, 0, len(first), NAME) == b"a"


# lines, turns, places


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_ways_keep_the_same(name: str, seed: int) -> None:
    work(source(), RULES[name], seed)


def test_a_line_is_tidied_as_it_gets_shorter() -> None:
    tidied(source())


def test_a_ring_is_tidied_when_a_key_is_forgotten() -> None:
    bounded(source())


@pytest.mark.parametrize("mutant",
                         [each for each in MUTANTS if each.file == "fast/limited_keys.py"],
                         ids=lambda mutant: mutant.name)
def test_what_is_broken_is_told(tmp_path: Path, mutant: Mutant) -> None:
    """But for what only whole requests can tell (python -m tests.forms.mutants)."""
    told = beside(mutant, tmp_path)
    assert (told == "") == (mutant.name in ONLY_REQUESTS)
