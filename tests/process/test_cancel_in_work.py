"""A message in work is cancelled, and its worker told at its next touch; what a worker says of its
work is told to who asks."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import suppress
from pathlib import Path

import pytest

import omq
from omq import aio
from omq.base import events
from omq.base.errors import (
    BadRequest,
    LeaseLost,
    MessageBusy,
    MessageCancelled,
    NoMessage,
    OmqError,
)
from omq.cli import launch
from omq.core.engine import cancelling
from omq.ipc.client.operator import Operator
from omq.tasks.task import progress
from tests.process.instance import MANAGER, Instance
from tests.process.processes import start
from tests.process.task_workers import said, until
from tests.process.test_worker import worker


def on(connection: omq.Connection, queue: str) -> list[bytes]:
    return [row.body for row in connection.browse(queue)]


@pytest.fixture
def running(omq_instance: Instance) -> Instance:
    omq_instance.start()
    return omq_instance


def test_who_works_on_it_is_told_at_its_next_touch(running: Instance) -> None:
    with running.connect() as c, running.connect("worker") as works, works.reader("A") as reader:
        both, other = c.put(["A", "B"], b"both"), c.put("A", b"other")
        first, second = reader.next(2, 10)
        with pytest.raises(MessageBusy):
            c.cancel(both)
        c.cancel(both, in_work=True)
        assert on(c, "B") == [], "all of its queues are left"
        with pytest.raises(NoMessage):
            c.state(both)
        with pytest.raises(MessageCancelled):
            first.touch()
        first.done()
        second.touch("goes on")
        second.done()
        reader.flush()
        assert reader.lost == 1
        with pytest.raises(NoMessage):
            c.cancel(other, in_work=True)
        assert on(c, "A") == []


def test_a_lease_that_is_lost_otherwise_says_so(omq_instance: Instance) -> None:
    """MessageCancelled is for what somebody took away: an operator's order, too."""
    omq_instance.queues("[A]\nlease_s = 1\ndeath_delay_s = 0\n\n[B]\n")
    omq_instance.start()
    running = omq_instance
    with running.connect() as c, running.connect("worker") as works, works.reader("A") as reader:
        c.put("A", b"late")
        (late,) = reader.next(1, 10)
        with running.connect("second") as second, second.reader("A") as again:
            (same,) = again.next(1, 30)
            with pytest.raises(LeaseLost) as told:
                late.touch()
            assert type(told.value) is LeaseLost
            same.done()
        moved = c.put("A", b"moved")
        (message,) = reader.next(1, 10)
        order = Operator(c, "test")
        done = order.move([(message.qpool_id, "A", 0)], "B", force=True)
        assert not done.refused
        with pytest.raises(MessageCancelled):
            message.touch()
        assert c.state(moved)[0].queue == "B"


def test_its_place_among_those_in_work_is_given_back(omq_instance: Instance) -> None:
    """Who waits for a place of a limit, or for the turn of a group, is woken."""
    omq_instance.queues("[A]\nin_work_max = 1\n\n[B]\n")
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("worker") as works:
        with works.reader("A") as reader:
            first = c.put("A", b"first")
            c.put("A", b"second")
            assert [each.body for each in reader.next(2, 10)] == [b"first"]
            c.cancel(first, in_work=True)
            (second,) = reader.next(2, 60)
            assert second.body == b"second"
            second.done()
        with works.reader("B") as reader:
            first = c.put("B", b"first", group_id="g")
            c.put("B", b"second", group_id="g")
            assert [each.body for each in reader.next(1, 10)] == [b"first"]
            c.cancel(first, in_work=True)
            with omq_instance.connect("other") as other, other.reader("B") as free:
                (second,) = free.next(1, 60)
                assert second.body == b"second"
                second.done()


def test_in_a_unit_of_work_nothing_of_it_happens(running: Instance) -> None:
    with running.connect() as c, running.connect("worker") as works:
        order = c.put("A", b"order")
        unit = works.unit()
        message = unit.get("A", 10)
        assert message is not None
        unit.put("B", b"invoice")
        message.touch("half of it")
        assert c.state(order)[0].progress == "half of it"
        c.cancel(order, in_work=True)
        with pytest.raises(MessageCancelled):
            message.touch()
        with pytest.raises(LeaseLost):
            unit.commit()
        assert on(c, "A") == on(c, "B") == []


def test_what_a_worker_says_is_told_until_its_work_ends(running: Instance) -> None:
    with running.connect() as c, running.connect("worker") as works, works.reader("A") as reader:
        order = c.put("A", b"order")
        assert (c.state(order)[0].progress, c.state(order)[0].progress_time) == ("", None)
        (message,) = reader.next(1, 10)
        message.touch("page 7 of 90")
        message.touch()  # says nothing new
        (place,) = c.state(order)
        assert place.progress == "page 7 of 90" and place.progress_time is not None
        assert c.said_of(message.qpool_id, "A") == (place.progress, place.progress_time)
        message.touch("ü" * 1000)
        assert c.state(order)[0].progress == "ü" * 256, "512 bytes"
        message.release()
        reader.flush()
        assert c.state(order)[0].progress == ""
        (again,) = reader.next(1, 10)
        assert c.state(order)[0].progress == "", "that was another time"
        again.done()
        reader.flush()
        with pytest.raises(NoMessage):
            c.said_of(message.qpool_id, "A")


def test_a_manager_that_was_killed_between(running: Instance) -> None:
    """The cancel is on the disk; why the lease is lost, and how far the work was, is not."""
    with running.connect() as c, running.connect("worker") as works, works.reader("A") as reader:
        gone, stays = c.put("A", b"gone"), c.put("A", b"stays")
        first, second = reader.next(2, 10)
        second.touch("half")
        c.cancel(gone, in_work=True)
        running.kill(MANAGER)
        running.start(MANAGER)
        with pytest.raises(LeaseLost):
            first.touch()
        second.touch()
        assert c.state(stays)[0].progress == ""
        second.touch("nearly")
        assert c.state(stays)[0].progress == "nearly"
        second.done()
        reader.flush()
        assert on(c, "A") == []


def test_cancelled_once_over_the_death_of_the_manager(running: Instance) -> None:
    """Killed behind the sync of one of the cancels: its answer is the next manager's."""
    with running.connect() as c:
        gone = [c.put("A", b"gone") for _ in range(30)]
    running.kill(MANAGER)

    def cancel() -> int:
        with running.connect("again") as again:
            for each in gone:
                again.cancel(each, in_work=True)
        return 0

    victim = running.start(MANAGER, fault="journal.after_sync:kill:12")
    with running.connect("worker") as works, works.reader("A") as reader:
        held = reader.next(30, 10)
        canceller = start("canceller", cancel, output=running.output)
        assert victim.wait() == -signal.SIGKILL
        running.start(MANAGER)
        assert canceller.wait() == 0, running.said()
        for message in held:
            with pytest.raises(LeaseLost):
                message.touch()
    with running.connect() as c:
        assert len(held) == 30 and on(c, "A") == []


def test_a_manager_of_an_earlier_version(
        running: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows no question why: the lease is lost, and that is all that is said."""
    with running.connect() as c, running.connect("worker") as works, works.reader("A") as reader:
        order = c.put("A", b"order")
        (message,) = reader.next(1, 10)
        c.cancel(order, in_work=True)
        control = works._link.control

        def earlier(question: dict[str, object]) -> dict[str, object]:
            if question["op"] == "lost":
                raise BadRequest(reason="no such operation")
            found: dict[str, object] = control(question)
            return found

        monkeypatch.setattr(works._link, "control", earlier)
        with pytest.raises(LeaseLost) as told:
            message.touch()
        assert type(told.value) is LeaseLost


def test_odd_questions_end_nobody(running: Instance) -> None:
    with running.connect() as c:
        odds: list[dict[str, object]] = [
            {}, {"message": 10**30, "queue": "A", "lease": 10**30}, {"message": [], "lease": []},
            {"message": float("inf"), "queue": {}, "lease": -1},
            {"message": -1, "queue": "A", "lease": None}]
        for odd in odds:
            with pytest.raises(OmqError):
                c._link.control({"op": "said", **odd})
            with suppress(OmqError):
                assert c._link.control({"op": "lost", **odd}) == {"status": 0, "taken": False}
        assert c.put("A", b"lives")


def test_what_is_remembered_is_bounded() -> None:
    kept: dict[int, int] = {}
    for each in range(cancelling.KNOWN_MAX + 5):
        cancelling._keep(kept, each, each)
    cancelling._keep(kept, 7, 8)
    assert len(kept) == cancelling.KNOWN_MAX and next(reversed(kept)) == 7 and 0 not in kept


def test_asyncio(running: Instance) -> None:
    async def work() -> None:
        async with aio.connect(running.root) as c, c.reader("A") as reader:
            order = await c.put("A", b"order")
            async for message in reader:
                await message.touch("begun")
                assert (await c.state(order))[0].progress == "begun"
                await c.cancel(order, in_work=True)
                with pytest.raises(MessageCancelled):
                    await message.touch()
                await message.release()
                break

    asyncio.run(work())


def test_in_a_shell(running: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> tuple[int, str]:
        capfd.readouterr()
        code = launch.run(words[0], [*words[1:], "--spool", str(running.root)])
        return code, capfd.readouterr().out

    with running.connect() as c, running.connect("worker") as works, works.reader("A") as reader:
        order = c.put("A", b"order")
        (message,) = reader.next(1, 10)
        message.touch("begun\x1b[2J")
        code, out = run("omq", "cancel", "--state", order)
        assert code == 0 and "it said: begun" in out and "\x1b" not in out
        code, out = run("omqwhy", str(message.qpool_id), "--json")
        assert code == 0 and json.loads(out)["evidence"]["progress"] == "begun\x1b[2J"
        code, out = run("omqwhy", str(message.qpool_id))
        assert code == 0 and "progress = begun" in out and "\x1b" not in out
        assert run("omq", "cancel", order)[0] == 75
        assert run("omq", "cancel", "--in-work", order) == (0, f"{order} is cancelled\n")
        assert "cancel --in-work" in run("omqlog", "--message", order)[1]


def test_a_function_of_a_worker_ends_by_it(running: Instance, tmp_path: Path) -> None:
    """It says how far it is, and is told; its message is nobody's failure, and the worker goes
    on."""
    log = tmp_path / "log"
    with worker(running, "long_one"), running.connect() as c:
        order = c.put("A", json.dumps({"path": str(log)}).encode())
        until(lambda: c.state(order)[0].progress.startswith("step "), running)
        c.cancel(order, in_work=True)
        until(lambda: log.exists() and log.read_text() == "told\n", running)
        until(lambda: str(events.TASK_CANCELLED.number) in said(running), running)
        c.put("A", json.dumps({"path": str(log), "steps": 1}).encode())
        until(lambda: log.read_text() == "told\ndone\n", running)
        until(lambda: on(c, "A") == [], running)
        assert str(events.TASK_FAILED.number) not in said(running)


def test_progress_is_for_a_function_at_work() -> None:
    with pytest.raises(BadRequest, match="omq worker"):
        progress("nothing")
