"""What is READY on a queue, in pieces: for readers that select without the index."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from omq.core.engine import backlog
from omq.core.engine.settle import Verdict
from omq.format.wire import Settlement
from tests.unit.engine.world import A, B, World, make_world

NS = 1_000_000_000


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(backlog, "PIECE", 7)
    return make_world(tmp_path / "spool")


def shown(world: World, want: int = 3, queue: int = A, client: int = 1) -> list[int]:
    """QPoolIds, page by page."""
    looks, t = world.engine.wanted.backlog, world.core.t
    found, place = looks.behind(client, queue, None, want)
    out = list(found)
    while place is not None:
        found, place = looks.behind(client, queue, place, want)
        assert len(found) <= want
        out += found
    return [t.m_qpool[t.e_message[entry]] for entry in out]


def test_all_of_a_queue_in_the_order_of_hand_out(world: World) -> None:
    ids = [(priority, world.put(A, B, priority=priority)) for priority in (4, 9, 0, 4, 4, 9, 1) * 9]
    expected = [qpool for _, qpool in sorted(ids, key=lambda each: (-each[0], each[1]))]
    for want in (1, 3, 7, 8, 100):
        assert shown(world, want) == shown(world, want, B) == expected


def test_what_is_gone_meanwhile_is_passed_over(world: World) -> None:
    """The message behind which it goes on too; what came back is at its old place."""
    ids = [world.put(A) for _ in range(40)]
    looks = world.engine.wanted.backlog
    _, place = looks.behind(1, A, None, 5)
    verdicts = world.give(20)
    _, place = looks.behind(1, A, place, 5)  # of a piece of which nothing is left
    while place is not None and place[1] < 21:
        _, place = looks.behind(1, A, place, 5)
    world.settle(Settlement.RELEASE, *verdicts[15:])
    assert shown(world) == ids[15:]


def test_a_look_at_a_queue_that_nothing_came_back_to_follows_its_chains(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pass over all columns, at whatever depth; what is taken meanwhile changes nothing, but
    where it was the one from which to go on."""
    ids = [world.put(A, priority=priority) for priority in (4, 9, 0) * 10]
    expected = [*ids[1::3], *ids[::3], *ids[2::3]]
    looks, passes = world.engine.wanted.backlog, list[int]()
    by_columns = looks._piece

    def counting(queue: int, key: int) -> backlog._Piece:
        passes.append(key)
        return by_columns(queue, key)

    monkeypatch.setattr(looks, "_piece", counting)
    for want in (1, 3, 7, 100):
        assert shown(world, want) == expected
    assert not passes
    _, place = looks.behind(1, A, None, 7)
    world.give(5)
    assert place is not None
    found, place = looks.behind(1, A, place, 7)
    t = world.core.t
    assert [t.m_qpool[t.e_message[entry]] for entry in found] == expected[7:14]
    assert not passes
    world.give(9)
    found, _ = looks.behind(1, A, place, 7)
    assert [t.m_qpool[t.e_message[entry]] for entry in found] == expected[14:21]
    assert len(passes) == 1


def test_another_message_has_taken_the_place_from_which_to_go_on(world: World) -> None:
    ids = [world.put(A) for _ in range(20)]
    looks, t = world.engine.wanted.backlog, world.core.t
    found, place = looks.behind(1, A, None, 7)
    world.settle(Settlement.DONE, world.give(7)[-1])
    new = world.put(A)
    assert t.m_first[t.slot_of(new)] == found[-1] + 1
    found, _ = looks.behind(1, A, place, 7)
    assert [t.m_qpool[t.e_message[entry]] for entry in found] == ids[7:14]


@pytest.mark.parametrize("seed", range(8))
def test_it_is_the_same_by_the_chains_and_by_the_columns(world: World, seed: int) -> None:
    """While readers take, give back and finish: each piece that is found along the chains beside
    one of the same place by the columns."""
    chance = random.Random(seed)
    looks, held, along = world.engine.wanted.backlog, list[Verdict](), 0
    place: backlog.Place | None = None
    for _ in range(150):
        what = chance.randrange(5)
        if what < 2:
            world.put(A, priority=chance.choice([1, 4, 4, 9]))
        elif what == 2:
            held += world.give(chance.randrange(1, 4))
        elif held:
            chance.shuffle(held)
            kind = Settlement.RELEASE if chance.random() < 0.4 else Settlement.DONE
            world.settle(kind, held.pop())
        key = -1 if place is None else backlog._key(*place)
        piece = looks._along(A, key, looks._pieces.get(1))
        if piece is not None:
            along += 1
            other = looks._piece(A, key)
            assert piece.keys.tolist() == other.keys.tolist()
            assert piece.entries.tolist() == other.entries.tolist()
        _, place = looks.behind(1, A, place, 3)
    assert along > 20


def test_what_is_over_or_put_off_is_not_shown(world: World) -> None:
    world.put(A, delay_s=3600)
    world.put(A, expiry_ns=5 * NS)
    stays = world.put(A)
    assert len(shown(world)) == 2
    world.begin(6)
    world.engine.tick()
    assert shown(world) == [stays]


def test_readers_have_pieces_of_their_own(world: World) -> None:
    ids = [world.put(A) for _ in range(20)]
    looks = world.engine.wanted.backlog
    first, place = looks.behind(1, A, None, 3)
    assert shown(world, client=2) == ids
    second, _ = looks.behind(1, A, place, 3)
    assert not set(first) & set(second)
    world.engine.wanted.forget(1, A)
    assert 1 not in looks._pieces and 2 in looks._pieces
