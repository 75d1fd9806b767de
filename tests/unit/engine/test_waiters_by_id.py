"""Messages by their keys: long chains, turns of those who wait, suspects, a full journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base.errors import SpoolFull
from omq.core.check.invariants import check
from omq.core.engine import waiters_by_id
from omq.core.engine.puts import NewMessage
from omq.core.engine.state import Party
from omq.core.engine.waiting import Waiter
from omq.format.message import id_hash
from omq.format.wire import Key
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from tests.unit.engine.world import A, B, World, make_world

X, Y = id_hash(b"x"), id_hash(b"y")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "spool")


def put(world: World, queue: int = A, correlation: str = "x", priority: int = 4) -> int:
    encoded = encode_outgoing(Outgoing(body=b"b", priority=priority, correlation_id=correlation),
                              (queue,), 0, world.info.paths, 1 << 18, "test")
    world.sequence += 1
    world.begin()
    qpool = world.engine.put(world.putter, NewMessage(
        encoded.queue, priority, encoded.flags, encoded.size, encoded.crc, encoded.correlation,
        encoded.key, encoded.expiry, encoded.parts, memoryview(encoded.payload)), world.sequence)
    world.engine.commit()
    return qpool


def qpools(world: World, entries: list[int]) -> list[int]:
    t = world.core.t
    return [t.m_qpool[t.e_message[entry]] for entry in entries]


def wait(world: World, key: int = X, party: Party | None = None, want: int = 1) -> Waiter:
    world.begin()
    return world.engine.wait(party or world.reader, A, want, 1, -1, auxiliary=False,
                             by=Key.CORRELATION, key=key)


def served(world: World) -> list[tuple[Waiter, list[int]]]:
    found = [(waiter, qpools(world, entries)) for waiter, entries in world.engine.dispatch()]
    world.engine.commit()
    assert check(world.engine, [world.putter, world.reader]) == []
    return found


@pytest.mark.parametrize("most", [waiters_by_id.WALK_MAX, 7, 0])
def test_a_long_chain_is_searched_otherwise_and_says_the_same(
        world: World, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(waiters_by_id, "WALK_MAX", most)
    ids = [put(world, queue, correlation, priority) for queue, correlation, priority in [
        (A, "x", 4), (B, "x", 9), (A, "y", 9), (A, "x", 7), (A, "x", 4), (B, "y", 4)] * 3]
    urgent, normal = ids[3::6], sorted(ids[0::6] + ids[4::6])

    def find(queue: int, key: int, want: int) -> list[int]:
        return qpools(world, waiters_by_id.find(world.core, queue, Key.CORRELATION, key, want))
    assert find(A, X, 100) == urgent + normal
    assert find(A, X, 4) == (urgent + normal)[:4]
    assert find(B, X, 100) == ids[1::6]
    assert find(A, id_hash(b"z"), 100) == []
    (held,) = world.give(1)
    assert held.qpool not in find(A, Y, 100) + find(A, X, 100)
    assert qpools(world, waiters_by_id.find(world.core, B, Key.MESSAGE_ID, ids[1], 5)) == [ids[1]]
    assert waiters_by_id.find(world.core, A, Key.MESSAGE_ID, ids[1], 5) == []


def test_they_are_served_in_their_turn_and_before_others(world: World) -> None:
    world.begin()
    anybody = world.engine.wait(world.putter, A, 5, 1, -1, auxiliary=False)
    first, second = wait(world), wait(world, party=world.putter)
    world.engine.commit()
    ids = [put(world), put(world), put(world, correlation="y")]
    world.begin()
    assert served(world) == [(first, [ids[0]]), (second, [ids[1]]), (anybody, [ids[2]])]
    assert not world.core.watched
    assert not world.engine.wanted.lines


def test_who_leaves_is_waited_for_no_more(world: World) -> None:
    first, second = wait(world, Y), wait(world, X)
    world.engine.forget(world.reader, [first, second], {}, orderly=True)
    world.engine.commit()
    assert not world.core.watched
    put(world)
    world.begin()
    assert served(world) == []


def test_a_journal_without_room_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch
                                               ) -> None:
    waiter = wait(world)
    world.engine.commit()
    qpool = put(world)
    world.begin()
    with monkeypatch.context() as full:
        def reserve(frames: int, size: int) -> None:
            raise SpoolFull(path="the journal", detail="no room")
        full.setattr(waiters_by_id, "give_these", lambda *_, **__: reserve(1, 1))
        assert world.engine.dispatch() == []
    world.engine.commit()
    assert A in world.core.runnable
    world.begin()
    assert served(world) == [(waiter, [qpool])]


def test_of_suspects_one_a_group(world: World) -> None:
    ids = [put(world), put(world, correlation="y")]
    t = world.core.t
    for verdict in world.give(2):
        world.settle(4, verdict)
        world.core.suspects.add(verdict.entry)
    one, other = wait(world, X), wait(world, Y)
    assert served(world) == [(one, [ids[0]])]
    world.begin()
    assert served(world) == [(other, [ids[1]])]
    assert t.q_active[A] == 2


def test_the_checker_sees_who_is_forgotten(world: World) -> None:
    wait(world)
    world.engine.dispatch()
    world.engine.commit()
    put(world)
    assert check(world.engine, [world.putter, world.reader]) == []
    world.core.runnable.clear()
    (broken,) = check(world.engine, [world.putter, world.reader])
    assert "waits for it" in str(broken)
    world.core.watched.clear()
    assert any("watched" in str(each) for each in check(world.engine, [world.reader]))
