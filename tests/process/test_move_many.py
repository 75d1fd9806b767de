"""A reader of batches: several messages move by one request, through the client."""

from __future__ import annotations

import pytest

from omq import Outgoing
from omq.base import errors
from omq.core.index.view import IndexView
from omq.format.wire import NOTE, halves
from tests.process.operator_world import QUEUES, WAIT_S, Instance


def groups(live: Instance) -> int:
    with IndexView.attach(live.paths) as view:
        return int(view.counters()["groups"])


def to(queue: str, body: bytes) -> Outgoing:
    return Outgoing(body, queues=(queue,))


def test_a_batch_is_one_request_and_a_large_one_is_several(live: Instance) -> None:
    """More than a channel has room for, a body for a container, one that makes nothing."""
    live.put("A", *(b"%d" % i for i in range(20)))
    large = b"L" * 300_000
    with live.connect() as connection, connection.reader("A", batch=20) as reader:
        messages = reader.next(20, timeout_s=WAIT_S)
        before = groups(live)
        reader.move_many([(each, [to("B", each.body)]) for each in messages[:10]])
        assert groups(live) == before + 1
        new = [[to("B", large)], [], *([to("B", b"x" * 100_000)] for _ in range(7)),
               [to("B", b"last"), to("LOCAL", b"beside")]]
        reader.move_many(list(zip(messages[10:], new, strict=True)))
        assert not any(reader.holds(each) for each in messages)
    assert live.on("A") == []
    assert sorted(live.bodies("B")) == sorted([
        *(b"%d" % i for i in range(10)), large, *[b"x" * 100_000] * 7, b"last"])
    assert live.bodies("LOCAL") == [b"beside"]


def test_moves_may_come_from_an_iterator(live: Instance) -> None:
    live.put("A", *(b"%d" % i for i in range(5)))
    with live.connect() as connection, connection.reader("A", batch=5) as reader:
        messages = reader.next(5, timeout_s=WAIT_S)
        reader.move_many((each, [to("B", each.body)])  # type: ignore[arg-type]
                         for each in messages)
        assert not any(reader.holds(each) for each in messages)
    assert len(live.bodies("B")) == 5


def test_a_refusal_leaves_the_batch_in_hand(live: Instance) -> None:
    (live.conf / "queues.conf").write_text(QUEUES.replace("[B]", "[B]\nmax_depth = 3"))
    live.stop()
    live.start()
    live.put("A", *(b"%d" % i for i in range(5)))
    with live.connect() as connection, connection.reader("A", batch=5) as reader:
        messages = reader.next(5, timeout_s=WAIT_S)
        with pytest.raises(errors.QueueFull):
            reader.move_many([(each, [to("B", each.body)]) for each in messages])
        assert all(reader.holds(each) for each in messages)
        reader.move_many([(each, [to("B", each.body)]) for each in messages[:3]])
        messages[3].done()
        with pytest.raises(errors.LeaseLost):
            reader.move_many([(each, []) for each in messages[3:]])
        assert reader.holds(messages[4])
    assert live.bodies("B") == [b"0", b"1", b"2"]
    assert live.bodies("A") == [b"4"]


def test_a_manager_that_was_killed_knows_the_batch(live: Instance) -> None:
    live.put("A", *(b"%d" % i for i in range(4)))
    with live.connect() as connection, connection.reader("A", batch=4) as reader:
        messages = reader.next(4, timeout_s=WAIT_S)
        live.kill()
        live.start()
        reader.move_many([(each, [to("B", each.body)]) for each in messages])
    assert sorted(live.bodies("B")) == [b"0", b"1", b"2", b"3"]
    assert live.on("A") == []


def test_what_moved_is_no_longer_noted_as_in_work(live: Instance) -> None:
    """The note has room for so many; readers that only move would fill it, and what kills them
    would cost no attempt."""
    live.put("A", *(b"%d" % i for i in range(30)))
    with live.connect() as connection, connection.reader("A", batch=10) as reader:
        for _ in range(3):
            messages = reader.next(10, timeout_s=WAIT_S)
            assert [each.body for each in messages]
            reader.move_many([(each, []) for each in messages])
        channel = reader._link._channel
        note = channel[halves(len(channel))[2] :]
        assert NOTE.unpack_from(note, 0)[NOTE.names.index("count")] == 0
