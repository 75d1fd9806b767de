"""The engine's rules: order, hand-outs, settlements, refusals, death and POISON."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from omq.base.errors import DiskError, LeaseLost, QueueFull, SpoolFull, UnknownQueue
from omq.core.check.invariants import check
from omq.core.engine.put_many import put_many
from omq.core.engine.puts import NewMessage
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.settle import Verdict
from omq.core.engine.state import IDEL, POISON, Party
from omq.format.index import EntryState
from omq.format.journal import FRAME, FrameType
from omq.format.message import Part
from omq.format.wire import Settlement
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from omq.storage import durable
from tests.unit.engine.world import NS, A, B, World, make_world
from tests.unit.storage.world import FaultyDisk

DONE, DEFER, FAIL, RELEASE = Settlement.DONE, Settlement.DEFER, Settlement.FAIL, Settlement.RELEASE


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    yield made
    counters_agree(made)
    made.writer.close()
    made.core.volatile.close()  # type: ignore[attr-defined]


def counters_agree(world: World) -> None:
    """Nothing is broken, neither in the tables nor in what is private to the engine."""
    assert check(world.engine) == []
    states = world.core.t.v["e_state"][: world.core.t.entries.high]
    assert world.core.active == int((states == EntryState.ACTIVE).sum())


def test_order_is_priority_then_submission(world: World) -> None:
    low, first, urgent, second = (world.put(priority=p) for p in (1, 4, 7, 4))
    assert world.ids(world.give(10)) == [urgent, first, second, low]


def test_returned_messages_take_their_old_place(world: World) -> None:
    ids = [world.put() for _ in range(4)]
    given = world.give(2)
    assert world.settle(RELEASE, *given) == 0
    assert world.ids(world.give(10)) == ids


def test_deferred_messages_do_not_block_others_and_come_back(world: World) -> None:
    first, second = world.put(), world.put()
    assert world.settle(DEFER, *world.give(1), argument=60 * NS) == 0
    assert world.ids(world.give(10)) == [second]
    assert world.give(10, seconds=59) == []
    assert world.ids(world.give(10, seconds=2)) == [first]


def test_a_jump_of_the_wall_clock_neither_fires_nor_freezes_a_defer(world: World) -> None:
    first = world.put()
    world.settle(DEFER, *world.give(1), argument=60 * NS)
    world.wall += 10 * 365 * 86400 * NS
    assert world.give(1) == []
    world.wall -= 20 * 365 * 86400 * NS
    assert world.ids(world.give(1, seconds=61)) == [first]


def test_done_on_one_queue_leaves_the_other(world: World) -> None:
    both = world.put(A, B)
    world.settle(DONE, *world.give(1, A))
    assert world.core.t.messages.used == 1
    assert world.ids(world.give(1, B)) == [both]


def test_done_twice_or_by_another_reader_is_lost(world: World) -> None:
    world.put()
    given = world.give(1)
    stranger = Party(3, 2, 103, 0, 13)
    assert world.settle(DONE, *given, reader=stranger) == 1
    assert world.settle(DONE, *given) == 0
    assert world.settle(DONE, *given) == 1


def test_third_failure_goes_to_poison_with_its_attempts(world: World) -> None:
    poisoned = world.put()
    world.put()
    for _ in range(3):
        given = [v for v in world.give(10, seconds=31) if v.qpool == poisoned]
        assert world.settle(FAIL, *given) == 0
    t = world.core.t
    slot = t.slot_of(poisoned)
    entry = t.entry_on(slot, POISON)
    assert entry >= 0 and t.e_attempts[entry] == 3
    assert t.q_depth[POISON] == 1 and t.q_depth[A] == 1


def test_a_dead_reader_gives_back_with_the_attempt_counted(world: World) -> None:
    first = world.put()
    assert world.ids(world.give(1)) == [first]
    world.begin()
    assert world.engine.forget(world.reader, [], {"reader": "r"}, orderly=False) == 1
    world.engine.commit()
    assert world.give(1, seconds=29) == []
    again = world.give(1, seconds=2)
    assert world.ids(again) == [first]
    assert world.core.t.e_attempts[again[0].entry] == 2


def test_refusals_change_nothing(world: World) -> None:
    world.put()
    t = world.core.t
    before = bytes(t.buffer[4096:])
    world.core.define_queue(QueueRules(B, "B", 0, 1 << 20))
    full = bytes(t.buffer[4096:])
    with pytest.raises(QueueFull):
        world.put(B)
    with pytest.raises(UnknownQueue):
        world.put(99)
    world.core.space_left = False
    with pytest.raises(SpoolFull):
        world.put(A)
    assert bytes(t.buffer[4096:]) == full != before
    assert world.settle(DONE, *world.give(1)) == 0


def test_move_with_new_messages_is_one_unit(world: World) -> None:
    world.put()
    (given,) = world.give(1)
    encoded = encode_outgoing(Outgoing(body=b"new"), (B,), 0, world.info.paths, 1 << 18, "t")
    new = NewMessage(B, 4, encoded.flags, 3, encoded.crc, 0, 0, 0, 0, memoryview(encoded.payload))
    world.begin()
    rows_at = world.core.block.count
    born = world.engine.move(world.reader, given, [Part(B, 4)], [new], 5)
    frames = FRAME.array(world.writer.buffer, 2, 128 + rows_at * FRAME.size).copy()
    world.engine.commit()
    assert frames["type"].tolist() == [FrameType.MOVE, FrameType.PUT]
    assert set(frames["unit"].tolist()) == {int(frames["lsn"][0])}
    assert world.ids(world.give(10, B)) == [given.qpool, born]
    with pytest.raises(LeaseLost):
        world.engine.move(world.reader, given, [Part(B, 4)], [], 6)


def test_a_container_waits_on_idel(world: World) -> None:
    qpool = world.put(body=b"c" * (1 << 19))
    world.settle(DONE, *world.give(1))
    assert world.core.t.q_depth[IDEL] == 1
    assert world.ids(world.give(1, IDEL)) == [qpool]


@pytest.mark.parametrize("count", [1, 11, 12, 200])
def test_a_batch_equals_one_by_one(tmp_path: Path, count: int) -> None:
    one, many = make_world(tmp_path / "one"), make_world(tmp_path / "many")
    encoded = encode_outgoing(Outgoing(body=b"b" * 50), (A,), 0, one.info.paths, 1 << 18, "t")
    many.begin()
    heads = encoded.head() * count
    area = memoryview(bytearray(heads + encoded.payload * count))
    first = put_many(many.engine, many.putter, area, area[len(heads):], count, A, 1)
    many.engine.commit()
    assert [one.put(body=b"b" * 50) for _ in range(count)] == list(range(first, first + count))
    for world in (one, many):
        given = world.give(count)
        world.begin()
        world.engine.settle(world.reader, given[: count // 2], 3)
        world.engine.commit()
        counters_agree(world)
    left = [w.core.t for w in (one, many)]
    for name in ("m_qpool", "m_location", "m_length", "m_crc", "m_size", "m_parts", "m_flags"):
        columns = [np.sort(t.v[name][:count][t.v["m_qpool"][:count] != 0]) for t in left]
        assert np.array_equal(columns[0], columns[1]), name
    for name in ("q_depth", "q_ready", "q_active", "q_ever", "q_processed"):
        assert np.array_equal(left[0].v[name], left[1].v[name]), name
    for qpool in range(first, first + count):
        assert (left[0].slot_of(qpool) >= 0) == (left[1].slot_of(qpool) >= 0)
    for world in (one, many):
        world.writer.close()
        world.core.volatile.close()  # type: ignore[attr-defined]


def test_a_verdict_of_another_message_is_lost(world: World) -> None:
    world.put()
    (given,) = world.give(1)
    assert world.settle(DONE, Verdict(1, given.entry, given.qpool + 1, given.lease)) == 1
    assert world.settle(DONE, Verdict(1, given.entry + 5000, given.qpool, given.lease)) == 0


@pytest.mark.parametrize(("kind", "payload"), [(DONE, 0), (Settlement.FAIL, 3 * 1024)])
def test_room_for_evidence_is_kept_for_what_may_need_it(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: int, payload: int
) -> None:
    """A thousand DONE would ask for a quarter of a block, and end it early."""
    for _ in range(3):
        world.put()
    given, asked = world.give(3), list[tuple[int, int]]()
    reserve = world.core.block.reserve

    def reserved(frames: int, size: int) -> None:
        asked.append((frames, size))
        reserve(frames, size)

    monkeypatch.setattr(world.core.block, "reserve", reserved)
    world.settle(int(kind), *given)
    assert (3, payload) in asked


def test_a_request_that_met_a_broken_disk_takes_its_group_along(world: World) -> None:
    """The server refuses the request and goes on; the commit must not answer the others."""
    world.put()
    world.begin()
    disk = durable.use(FaultyDisk())
    durable.current().failures["rename"] = errno.EIO  # type: ignore[attr-defined]
    with pytest.raises(DiskError):
        world.core.block.rotate()
    with pytest.raises(DiskError):
        world.engine.commit()
    durable.use(disk)
    world.engine.commit()


def _loose(world: World, body: bytes) -> NewMessage:
    encoded = encode_outgoing(Outgoing(body=body, persistent=False), (B,), 0, world.info.paths,
                              1 << 18, "t")
    return NewMessage(B, 4, encoded.flags, len(body), encoded.crc, 0, 0, 0, 0,
                      memoryview(encoded.payload))


def test_a_full_disk_refuses_bodies_that_are_not_persistent_whole(world: World) -> None:
    """Also as part of a move or a batch: nothing of the request has happened then."""
    first = world.put()
    (given,) = world.give(1)
    before = bytes(world.core.t.buffer[4096:]), world.core.next_qpool, world.core.block.count
    disk = durable.use(FaultyDisk())
    durable.current().failures["write"] = errno.ENOSPC  # type: ignore[attr-defined]
    with pytest.raises(SpoolFull):
        world.put(B, persistent=False)
    with pytest.raises(SpoolFull):
        world.engine.move(world.reader, given, [Part(B, 4)], [_loose(world, b"one")], 5)
    area = memoryview(bytearray(
        b"".join(FRAME.pack(FrameType.PUT, 4, 0, B, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                            0, 0, 0, 0, 0, 0, 0, 0) for _ in range(3)) + b"abc"))
    with pytest.raises(SpoolFull):
        put_many(world.engine, world.putter, area, area[3 * FRAME.size :], 3, B, 6)
    assert (bytes(world.core.t.buffer[4096:]), world.core.next_qpool,
            world.core.block.count) == before
    durable.use(disk)
    world.settle(DONE, given)
    assert world.core.t.slot_of(first) < 0
