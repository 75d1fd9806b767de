"""Hash chains lie by a secret (core.index.keyed_buckets): keys that were looked for to be in one
chain are in many, and those that are truly alike leave theirs at no cost."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omq.base.siphash import SECRET_BYTES, halves, new_secret, siphash
from omq.core.check.invariants import check
from omq.core.engine.group_fronts import Fronts
from omq.core.index.keyed_buckets import KeyedBuckets, siphash_each
from omq.core.index.tables import Tables
from omq.format.index import IndexLayout
from omq.format.message import id_hash
from tests.unit.engine.test_waiters_by_id import put
from tests.unit.engine.world import A, World, make_world

KEYS = 3000
ALIKE = [number << 32 | 0xABCDE for number in range(1, KEYS + 1)]
"""What somebody finds who hashes as many ids as it takes: their last 32 bits are the same."""
LONGEST = 12
"""3000 keys by chance in 4096 chains: once in 10**9 draws one has more."""
SECRETS = (bytes(SECRET_BYTES), bytes(range(SECRET_BYTES)))


def chains(t: Tables, heads: str, following: str) -> list[int]:
    """How long the chains are that are not empty."""
    found, links = [], getattr(t, following)
    for at in filter(None, getattr(t, heads)):
        length = 0
        while at:
            length, at = length + 1, links[at - 1]
        found.append(length)
    return found


@pytest.mark.parametrize(("secret", "number", "expected"), [
    ("2923be84e16cd6ae529049f1f1bbe9eb", 0, 0x97622C04ECFBDC7C),
    ("2923be84e16cd6ae529049f1f1bbe9eb", 1, 0x5532F1572EFE846B),
    ("2923be84e16cd6ae529049f1f1bbe9eb", 0xFEDCBA9876543210, 0x33647839B1CE7935),
    ("2d2086832cc2fe3fd18cb51d6c5e99a5", 0, 0x5B3F3C2AC7795E18),
    ("2d2086832cc2fe3fd18cb51d6c5e99a5", 0xFEDCBA9876543210, 0xC60B0703AE5B5BD8),
])
def test_the_hash_is_the_one_of_python(secret: str, number: int, expected: int) -> None:
    """What Python 3.11 says with PYTHONHASHSEED=1 and 2, from which it makes these secrets."""
    both = halves(bytes.fromhex(secret))
    assert siphash(both, number) == expected
    assert siphash_each(both, np.array([number, 1], "<u8")).tolist() == [
        expected, siphash(both, 1)]


@pytest.mark.parametrize("chains_there", [1, 2, 1024, 1 << 20])
def test_one_and_many_are_in_the_same_chains(chains_there: int) -> None:
    keyed = KeyedBuckets(chains_there, SECRETS[1])
    some, alike = np.random.default_rng(4).integers(0, 1 << 64, 50, dtype="<u8"), ALIKE[:9]
    keys = np.concatenate((some, np.arange(3000, dtype="<u8"), some, np.array(alike, "<u8")))
    assert keyed.of_each(keys).tolist() == [keyed.of(key) for key in keys.tolist()]
    assert len(keyed.of_each(keys[:0])) == 0


def test_numbers_that_follow_each_other_are_neighbours_in_chains_of_their_own() -> None:
    keyed = KeyedBuckets(1024, SECRETS[1])
    found = [keyed.of(7 << 10 | low) for low in range(1024)]
    assert len(set(found)) == 1024
    assert all(one ^ other == low ^ (low + 1) for low, (one, other) in enumerate(
        pairwise(found)))


@pytest.mark.parametrize("secret", [*SECRETS, None])
def test_ids_that_were_looked_for_are_in_many_chains(secret: bytes | None) -> None:
    layout = IndexLayout.of(KEYS, KEYS, 64, 64)
    t = Tables(memoryview(bytearray(layout.size)), layout, secret)
    assert len({key & t.mask for key in ALIKE}) == 1, "without the secret it is one chain"
    for slot, key in enumerate(ALIKE):
        t.m_key[slot] = t.m_corr[slot] = key
        t.index_id(slot, key)
        t.index_correlation(slot, key)
    for heads, following in (("b_id", "m_idnext"), ("b_corr", "m_corrnext")):
        found = chains(t, heads, following)
        assert (sum(found), max(found) <= LONGEST) == (KEYS, True), max(found)


@pytest.mark.parametrize("secret", SECRETS)
def test_groups_that_were_looked_for_are_in_many_chains(secret: bytes) -> None:
    t = Tables.private(KEYS, KEYS, secret=secret)
    rows, keys = np.arange(KEYS), np.array(ALIKE, "<u8")
    t.v["e_message"][:], t.v["e_queue"][:] = rows, A
    by_hand, by_start = Fronts(t, keys.data), Fronts(t, keys.data)
    for entry, key in enumerate(ALIKE):
        by_hand[A << 64 | key] = entry
    by_start.load(np.full(KEYS, A, "<u2"), keys, rows)
    for fronts in (by_hand, by_start):
        longest = max(Tally(fronts._chain(A << 64 | key) for key in ALIKE).values())
        assert (len(list(fronts)), longest <= LONGEST) == (KEYS, True)
        assert dict(fronts) == {A << 64 | key: entry for entry, key in enumerate(ALIKE)}


def looked_for(bits: int) -> Iterator[str]:
    """Ids whose hashes have the same last bits: a client that may put can find them."""
    wanted = (1 << bits) - 1
    return (text for text in map(str, count()) if id_hash(text.encode()) & wanted == 5)


def test_a_client_finds_ids_and_gains_nothing(tmp_path: Path) -> None:
    world: World = make_world(tmp_path / "spool")
    t = world.core.t
    texts = [*islice(looked_for(t.layout.buckets.bit_length() - 1), 60)]
    for text in texts:
        put(world, correlation=text)
    assert {key & t.mask for key in filter(None, t.m_corr)} == {5}
    assert max(chains(t, "b_corr", "m_corrnext")) <= 4
    assert check(world.engine) == []


def test_each_start_has_a_secret_of_its_own_which_nobody_reads() -> None:
    layout = IndexLayout.of(2000, 2000, 64, 64)
    one, other = (Tables(memoryview(bytearray(layout.size)), layout) for _ in range(2))
    assert [one.bucket(key) for key in ALIKE[:20]] != [other.bucket(key) for key in ALIKE[:20]]
    for slot, key in enumerate(ALIKE[:20]):
        one.index_id(slot, key)
    assert [*map(one.readonly().bucket, ALIKE[:20])] == [*map(one.bucket, ALIKE[:20])]
    for half in one.buckets.halves:
        assert half.to_bytes(8, "little") not in bytes(one.buffer)
    assert len({new_secret() for _ in range(10)}) == 10


class Reads:
    """A column that counts how often it is looked at."""

    def __init__(self, column: Any) -> None:
        self.column, self.count = column, 0

    def __getitem__(self, at: int) -> int:
        self.count += 1
        return int(self.column[at])

    def __setitem__(self, at: int, value: int) -> None:
        self.column[at] = value


@pytest.mark.parametrize("order", [list, lambda slots: slots[::-1], lambda slots: slots[1::2]],
                         ids=["oldest first", "newest first", "every other one"])
def test_messages_with_one_id_leave_their_chain_at_the_same_cost(
        order: Callable[[list[int]], list[int]]) -> None:
    t = Tables.private(KEYS, KEYS)
    for slot in range(KEYS):
        t.m_corr[slot] = ALIKE[0]
        t.index_correlation(slot, ALIKE[0])
    columns = [Reads(t.m_corrnext), Reads(t.m_corrprev)]
    t.m_corrnext, t.m_corrprev = columns  # type: ignore[assignment]
    gone = order([*range(KEYS)])
    for slot in gone:
        t.unindex_correlation(slot)
    assert sum(each.count for each in columns) <= 2 * len(gone)
    assert sum(chains(t, "b_corr", "m_corrnext")) == KEYS - len(gone)
