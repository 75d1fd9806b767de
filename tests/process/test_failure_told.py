"""Who reads a dead-letter queue learns how each message came there, and nobody else does."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import omq
from omq import aio
from omq.cli.look import omqwhy
from omq.ipc.client.operator import Operator
from tests.process.instance import MANAGER, QUEUES, WRITER, Instance
from tests.process.processes import start
from tests.process.trust_world import MEMBER, OTHER, TrustInstance, trust_instance
from tests.waiting import until

NOW = datetime.now(UTC)
BROKEN = """
[IN]
attempts_max = 2
retry_delay_ms = 0
dead_letter = BROKEN
[BROKEN]
attempts_max = 1
"""


@pytest.fixture
def world(omq_instance: Instance) -> Instance:
    omq_instance.queues(QUEUES + BROKEN)
    omq_instance.start(MANAGER, WRITER)
    return omq_instance


def fails(connection: omq.Connection, queue: str, *reasons: str) -> None:
    """The next message of a queue fails as often."""
    with connection.reader(queue) as reader:
        for reason in reasons:
            (message,) = reader.next(1, 30)
            message.fail(reason, delay_s=0)


def failure(connection: omq.Connection, queue: str) -> omq.Failure | None:
    """Of its only message, as browsed; whoever takes it learns the same."""
    (row,) = connection.browse(queue)
    with connection.reader(queue) as reader:
        (message,) = reader.next(1, 30)
        assert message.failure == row.failure and message.qpool_id == row.qpool_id
        assert message.noted == row.noted
        message.release()
    return row.failure


def test_of_a_dead_letter_queue_and_of_poison(world: Instance) -> None:
    with world.connect() as c:
        c.put("IN", b"order")
        (row,) = c.browse("IN")
        assert row.failure is None and not row.noted
        fails(c, "IN", "no price", "größe \0 \U0001f4a5" + "x" * 400)
        found = failure(c, "BROKEN")
        assert found is not None and found.first is not None and found.last is not None
        assert (found.queue, found.cause, found.attempts) == ("IN", "failed", 2)
        assert found.reason.startswith("größe \0 \U0001f4a5xxx")
        assert 212 <= len(found.reason.encode()) <= 215
        assert NOW - timedelta(hours=1) < found.first <= found.last
        assert found.last.tzinfo is not None
        fails(c, "BROKEN", "nobody knows it")
        found = failure(c, "POISON")
        assert found is not None and found.first == found.last
        assert (found.queue, found.cause, found.reason, found.attempts) == (
            "BROKEN", "failed", "nobody knows it", 1)


def test_of_messages_that_are_not_persistent(world: Instance) -> None:
    with world.connect() as c:
        c.put("IN", b"order", persistent=False)
        fails(c, "IN", "1", "2")
        assert failure(c, "BROKEN") is not None


def test_a_reader_that_died_and_a_unit_that_was_backed_out(world: Instance) -> None:
    with world.connect() as c:
        c.put("IN", b"order")
        for _ in range(2):
            unit = c.unit()
            unit.get("IN", 30)
            unit.backout()
        found = failure(c, "BROKEN")
        assert found is not None and found.first is not None and found.last is not None
        assert (found.cause, found.reason, found.attempts) == ("backed_out", "", 2)
        assert found.first <= found.last

        c.put("BROKEN", b"other", priority=9)

        def dies() -> int:
            own = world.connect("dies")
            reader = own.reader("BROKEN")
            (message,) = reader.next(1, 30)
            assert message.body == b"other"
            os._exit(1)

        child = start("dies", dies, output=world.output)
        until(lambda: list(c.browse("POISON")) != [], world.said)
        child.wait()
        found = failure(c, "POISON")
        assert found is not None and (found.queue, found.cause) == ("BROKEN", "died")


def test_it_outlives_the_manager_and_its_history(world: Instance) -> None:
    with world.connect() as c:
        for _ in range(2):
            c.put("IN", b"order")
            fails(c, "IN", "no price", "no price at all")
        c.put("A", b"other")
        first = [row.failure for row in c.browse("BROKEN")]
        assert first[0] is not None and None not in first
    world.kill(MANAGER)
    world.start(MANAGER)
    with world.connect() as c:  # from the journal
        assert [row.failure for row in c.browse("BROKEN")] == first
    forget_history(world)
    world.stop()
    world.start(MANAGER, WRITER)
    with world.connect() as c:  # from the pool
        assert [row.failure for row in c.browse("BROKEN")] == first
        fails(c, "BROKEN", "still none")
        found = failure(c, "POISON")
        assert found is not None and (found.queue, found.reason) == ("BROKEN", "still none")
        assert [row.failure for row in c.browse("BROKEN")] == first[1:]
    world.kill(MANAGER, WRITER)  # and of both
    world.start(MANAGER, WRITER)
    with world.connect() as c:
        assert failure(c, "POISON") == found
        assert [row.failure for row in c.browse("BROKEN")] == first[1:]


def test_who_moves_it_away_ends_it(world: Instance) -> None:
    with world.connect() as c:
        c.put("IN", b"order")
        fails(c, "IN", "1", "2")
        (row,) = c.browse("BROKEN")
        with c.reader("BROKEN") as reader:
            reader.next(1, 30)[0].move("IN")
        assert failure(c, "IN") is None
        with c.reader("IN") as reader:
            (message,) = reader.next(1, 30)
            message.move("A")
        assert failure(c, "A") is None
        c.put("IN", b"again")
        fails(c, "IN", "3", "4")
        found = failure(c, "BROKEN")
        assert found is not None and found.reason == "4"
        (row,) = c.browse("BROKEN")
        operator = Operator(c, "test")
        assert not operator.move([(row.qpool_id, "BROKEN", 0)], ["B"]).refused
        assert failure(c, "B") is None


def test_a_row_that_is_used_again_inherits_nothing(world: Instance) -> None:
    with world.connect() as c:
        c.put("IN", b"order")
        fails(c, "IN", "1", "2")
        assert len(world.drain("BROKEN")) == 1
        for queue in ("BROKEN", "IN"):
            c.put(queue, b"new")
            assert failure(c, queue) is None
            world.drain(queue)


def test_of_several_queues_the_one_that_it_failed_on(world: Instance) -> None:
    with world.connect() as c:
        c.put(["A", "IN", "B"], b"order")
        fails(c, "IN", "1", "2")
        assert failure(c, "A") is None and failure(c, "B") is None
        found = failure(c, "BROKEN")
        assert found is not None and found.queue == "IN"


def test_when_the_first_attempt_failed_is_not_known_behind_a_restart(world: Instance) -> None:
    with world.connect() as c:
        c.put("IN", b"order")
        fails(c, "IN", "1")
    world.kill(MANAGER)
    world.start(MANAGER)
    with world.connect() as c:
        fails(c, "IN", "2")
        found = failure(c, "BROKEN")
        assert found is not None and found.last is not None
        assert (found.attempts, found.first) == (2, None)


def test_beyond_the_limit_the_queue_alone_is_known(world: Instance) -> None:
    world.stop()
    world.settings(failures_known_max=0)
    world.start()
    with world.connect() as c:
        c.put("IN", b"order")
        fails(c, "IN", "1", "2")
        assert failure(c, "BROKEN") == omq.Failure("IN", "", "", 0, None, None)
        fails(c, "BROKEN", "3")
        assert failure(c, "POISON") == omq.Failure("BROKEN", "", "", 0, None, None)


def test_a_coroutine_learns_it(world: Instance) -> None:
    async def look() -> omq.Failure | None:
        async with aio.connect(world.root) as c, c.reader("BROKEN") as reader:
            async for message in reader:
                found = await message.failure()
                await message.done()
                return found
        return None

    with world.connect() as c:
        c.put("IN", b"order")
        fails(c, "IN", "1", "2")
    found = asyncio.run(look())
    assert found is not None and found.reason == "2"


def test_why_it_is_on_poison_is_told_without_its_history(
        world: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    def evidence(qpool: int) -> dict[str, object]:
        capsys.readouterr()
        assert omqwhy.main([str(qpool), "--json", "--spool", str(world.root),
                            "--conf", str(world.conf)]) == 0
        found = json.loads(capsys.readouterr().out)["evidence"]
        assert isinstance(found, dict)
        return found

    with world.connect() as c:
        c.put("IN", b"order")
        fails(c, "IN", "1", "2")
        c.put("BROKEN", b"other", priority=9)
        fails(c, "BROKEN", "no such article")
        ids = [row.qpool_id for queue in ("BROKEN", "POISON") for row in c.browse(queue)]
    before = [evidence(each) for each in ids]
    forget_history(world)
    after = [evidence(each) for each in ids]
    for had, has in zip(before, after, strict=True):
        assert "lsn" in had and "lsn" not in has
        assert has.items() <= had.items()
    assert [each["reason"] for each in after] == ["2", "no such article"]
    world.kill(MANAGER, WRITER)
    assert [evidence(each) for each in ids] == after
    world.start(MANAGER, WRITER)


def forget_history(world: Instance) -> None:
    """The journal goes on in other files, what was in the old ones is archived, and deleted."""
    old = {path.name for path in world.paths.journal.glob("*.*")}
    with world.connect("fills") as c:
        while old & {path.name for path in world.paths.journal.iterdir()}:
            c.put("C", b"x" * 100_000)
            world.drain("C")
    for path in world.paths.archive.rglob("*"):
        if path.is_file():
            path.unlink()


@pytest.fixture
def trusting() -> Iterator[TrustInstance]:
    with trust_instance() as made:
        yield made


def test_who_has_no_right_learns_nothing(trusting: TrustInstance) -> None:
    """The same answer as of what is not there; who holds a message or may look at its queue
    learns it."""
    (trusting.conf / "authority.conf").write_text(
        f"[A]\nuser:{MEMBER} = put\n[BROKEN]\nuser:{OTHER} = get\n")
    trusting.queues(QUEUES + BROKEN)
    trusting.start()
    with trusting.connect("root") as c:
        c.put("IN", b"order")
        fails(c, "IN", "1", "2")
        (row,) = c.browse("BROKEN")

    def asked(c: omq.Connection, queue: str, qpool: object) -> object:
        return c._wire.control({"op": "failure", "queue": queue, "qpool": qpool})

    def stranger() -> None:
        with trusting.connect("stranger") as c:
            for queue, qpool in (("BROKEN", row.qpool_id), ("BROKEN", 10**6), ("IDEL", -1),
                                 ("NOWHERE", row.qpool_id)):
                assert asked(c, queue, qpool) == {"status": 0, "failure": None}
            strange: list[object] = ["x", None, [], {}]
            for wrong in strange:
                with pytest.raises(omq.BadRequest):
                    asked(c, "BROKEN", wrong)

    def reader() -> None:
        with trusting.connect("reader") as c, c.reader("BROKEN") as from_there:
            (message,) = from_there.next(1, 30)
            assert message.failure is not None and message.failure.reason == "2"
            message.release()

    trusting.as_user(MEMBER, stranger)
    trusting.as_user(OTHER, reader)
