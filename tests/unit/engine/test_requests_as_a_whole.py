"""A request is checked whole before it changes anything: what is refused in its middle leaves no
trace, and what a client may say cannot end the manager."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.errors import BadRequest, IndexFull, QueueFull
from omq.base.settings import Settings
from omq.core.engine.block import Block
from omq.core.engine.operate import Action, Item, Order, operate
from omq.core.engine.puts import NewMessage
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.settle import UNTIL_MAX_NS, Verdict
from omq.core.engine.state import POISON, Party
from omq.format.message import Part
from omq.format.wire import Settlement
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from omq.storage.journal import JournalWriter
from tests.unit.engine.test_engine import counters_agree
from tests.unit.engine.world import NS, A, B, World, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    yield made
    counters_agree(made)
    made.writer.close()
    made.core.volatile.close()  # type: ignore[attr-defined]


def new(world: World, queue: int = B) -> NewMessage:
    e = encode_outgoing(Outgoing(body=b"new"), (queue,), 0, world.info.paths, 1 << 18, "t")
    return NewMessage(queue, 4, e.flags, 3, e.crc, 0, 0, 0, 0, memoryview(e.payload))


def one(world: World) -> Verdict:
    """The next message of A."""
    (given,) = world.give(1)
    return given


def refused(world: World, error: type[Exception], given: Verdict, queues: list[int],
            count: int = 0) -> None:
    """The move is refused, and nothing has changed: the message can still be settled."""
    t = world.core.t
    before = (t.messages.used, t.entries.high - t.entries.top, bytes(t.v["q_depth"]))
    world.begin()
    frames = world.core.block.count
    with pytest.raises(error):
        world.engine.move(world.reader, given, [Part(q, 4) for q in queues],
                          [new(world) for _ in range(count)], 9)
    assert world.core.block.count == frames
    world.engine.commit()
    assert (t.messages.used, t.entries.high - t.entries.top, bytes(t.v["q_depth"])) == before
    assert world.settle(Settlement.DONE, given) == 0


def test_an_unknown_settlement_refuses_the_whole_request(world: World) -> None:
    for _ in range(2):
        world.put()
    first, second = world.give(2)
    with pytest.raises(BadRequest):
        world.begin()
        world.engine.settle(world.reader, [first, replace(second, kind=9)], 2)
    world.engine.commit()
    assert world.core.t.q_active[A] == world.reader.active == 2
    assert world.settle(Settlement.DONE, first, second) == 0


def test_a_queue_cannot_be_named_twice_in_a_move(world: World) -> None:
    world.put()
    refused(world, BadRequest, one(world), [B, B])


def test_new_messages_of_a_move_are_counted_together(world: World) -> None:
    world.put()
    world.core.define_queue(QueueRules(B, "B", 2, 1 << 20))
    refused(world, QueueFull, one(world), [B], 2)
    world.core.define_queue(QueueRules(B, "B", 1000, 1 << 20))
    world.put()
    world.core.messages_total_max = 3
    refused(world, IndexFull, one(world), [A], 3)


def test_a_move_needs_free_entries(world: World) -> None:
    world.put()
    t = world.core.t
    t.entries.capacity = t.entries.high
    refused(world, IndexFull, one(world), [A, B])


def test_a_full_queue_takes_back_its_own(world: World) -> None:
    ids = [world.put() for _ in range(2)]
    world.core.define_queue(QueueRules(A, "A", 2, 1 << 20))
    world.core.t.entries.capacity = world.core.t.entries.high
    (given,) = world.give(1)
    world.begin()
    world.engine.move(world.reader, given, [Part(A, 4)], [], 3)
    world.engine.commit()
    assert world.ids(world.give(2)) == ids[::-1]


def test_an_order_needs_free_entries(world: World) -> None:
    qpool = world.put()
    t = world.core.t
    t.entries.capacity = t.entries.high
    for order in (Order(Action.MOVE, (Item(qpool, A),), b"{}", (A, B)),
                  Order(Action.RESTORE, (Item(qpool, B),), b"{}", priority=4)):
        world.begin()
        outcome = operate(world.core, Party(9, 7, 9, 0, 9), order, world.engine.forget_reader)
        world.engine.commit()
        assert [type(error) for _, error in outcome.refused] == [IndexFull]


def test_a_defer_ends_in_a_time_that_the_pool_can_hold(world: World) -> None:
    world.put()
    world.settle(Settlement.DEFER, *world.give(1), argument=(1 << 63) - 1)
    t = world.core.t
    assert t.q_deferred[A] == 1
    assert max(t.v["e_until"].tolist()) == UNTIL_MAX_NS


def test_a_later_defer_is_not_ended_by_the_time_of_an_earlier_one(world: World) -> None:
    qpool = world.put()
    world.settle(Settlement.DEFER, *world.give(1), argument=60 * NS)
    world.begin()
    operate(world.core, Party(9, 7, 9, 0, 9), Order(Action.RELEASE, (Item(qpool, A),), b"{}"),
            world.engine.forget_reader)
    world.engine.commit()
    world.settle(Settlement.DEFER, *world.give(1), argument=600 * NS)
    assert world.give(1, seconds=120) == []
    assert world.ids(world.give(1, seconds=500)) == [qpool]


def test_attempts_do_not_run_over(world: World) -> None:
    """On POISON a message fails as often as somebody tries; the counter has one byte in the
    pool."""
    world.put()
    for _ in range(3):
        world.settle(Settlement.FAIL, *world.give(1, seconds=31))
    t = world.core.t
    (given,) = world.give(1, POISON)
    t.e_attempts[given.entry] = 255
    world.settle(Settlement.FAIL, given)
    (again,) = world.give(1, POISON, seconds=31)
    assert t.e_attempts[again.entry] == 255


def test_evidence_in_any_words_fits_the_block(world: World) -> None:
    """JSON makes six bytes of one."""
    world.core.define_queue(QueueRules(A, "A", 1000, 1 << 20, attempts_max=1))
    for _ in range(100):
        world.put()
    given = world.give(100)
    for verdict in given:
        verdict.text = b"\xff" * 512
    assert world.settle(Settlement.FAIL, *given) == 0
    assert world.core.t.q_depth[POISON] == 100


def test_names_leave_room_for_a_request(tmp_path: Path) -> None:
    """A new file begins with the names of all queues; a request that fills a block comes behind."""
    world = make_world(tmp_path / "spool")
    settings = replace(Settings(), journal_file_bytes=80 * 1024, block_bytes_max=64 * 1024,
                       block_frames_max=600)
    world.writer.close()
    writer = JournalWriter.open_epoch(world.info.paths, settings, world.info.uuid, 2, 1, 0, 1, 1, 1)
    core = world.core
    block = core.block = Block(writer, 1, 600, 64 * 1024, 4096)
    block.on_flush, block.on_rotate = world.engine._flushed, world.engine.books.name_everything
    block.next_qpool = core.next_qpool
    for queue in range(5, 60):
        core.define_queue(QueueRules(queue, f"QUEUE-{queue}", 1000, 1 << 20))
    body = b"x" * (62 * 1024)
    for _ in range(3):
        world.put(body=body)
    assert writer.file_number > 2
    writer.close()
    core.volatile.close()  # type: ignore[attr-defined]
