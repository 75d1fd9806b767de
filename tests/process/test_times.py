"""Time and messages, against a running manager: expiry, retries, delays, renewed leases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import omq
from omq.base import events
from omq.cli import launch
from omq.core.history.frames import History
from omq.format.journal import FrameType
from omq.ipc.client.connection import Client
from tests.process.instance import Instance
from tests.process.processes import WAIT_S
from tests.process.test_promises import until

QUEUES = """
[*]
death_delay_s = 0

[A]
expired_to = LATE
attempts_max = 2
dead_letter = FAILED
retry_delay_ms = 0

[B]
expiry_max_s = 1

[C]
lease_s = 1
attempts_max = 1

[LATE]

[FAILED]
"""


def depth(c: Client, queue: str) -> int:
    return sum(1 for _ in c.browse(queue))


def test_it_leaves_by_its_time_and_is_told(omq_instance: Instance,
                                           capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody reads, nobody asks: to where its queue sends it, or away. omqlog and the list say it,
    and a restart changes nothing."""
    omq_instance.queues(QUEUES)
    omq_instance.start()
    where = ["--spool", str(omq_instance.root), "--conf", str(omq_instance.conf)]
    with omq_instance.connect() as c:
        over = time.time() + 0.2
        moved = c.put("A", b"moved", expiry_s=0.2)
        assert depth(c, "A") == 1 or time.time() >= over
        until(lambda: depth(c, "LATE") == 1)
        assert depth(c, "A") == 0
        c.put("B", b"gone")  # the queue's limit
        until(lambda: depth(c, "B") == 0)
        c.put("A", b"stays", expiry_s=3600)
    launch.run("omqlog", ["--message", moved, *where])
    assert "expired on A, moved to LATE" in capfd.readouterr().out
    launch.run("omqdump", ["-e", "l A", "--json", *where])
    assert '"expiry": "20' in capfd.readouterr().out
    omq_instance.stop()
    omq_instance.start()
    with omq_instance.connect() as c:
        assert [message.body for message in omq_instance.drain("LATE")] == [b"moved"]
        assert depth(c, "A") == 1


def test_what_expired_while_nobody_ran_is_gone_at_the_start(omq_instance: Instance) -> None:
    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c:
        first_over = time.time() + 1
        c.put_many("B", [b"%d" % i for i in range(50)])
        over = time.time() + 1
        assert depth(c, "B") == 50 or time.time() >= first_over
    omq_instance.kill("queue.manager")
    until(lambda: time.time() > over)
    omq_instance.start("queue.manager")
    with omq_instance.connect() as c, c.reader("B") as reader:
        assert reader.next(timeout_s=0) == []
        until(lambda: depth(c, "B") == 0)
    with omq_instance.connect() as c:
        c.queues.define("WORK", limit_by="group", key_rate="1/h", limit_keys_max=2)
        with c.reader("WORK") as worker:
            for number in range(5):
                c.put("WORK", b"once", group_id=str(number))
                worker.next(timeout_s=WAIT_S)[0].done()
        assert c.queues.show("WORK").facts["limit_keys_forgotten"] == 3
    until(lambda: sum(event["count"] for event in
                      omq_instance.events(events.MESSAGES_EXPIRED.number)) == 50)
    until(lambda: [(event["queue"], event["keys"], event["limit_keys_max"]) for event in
                   omq_instance.events(events.KEYS_FORGOTTEN.number)] == [("WORK", 3, 2)])


def test_a_failed_message_waits_as_it_was_said(omq_instance: Instance) -> None:
    """fail(delay_s=), then the queue's own pause (none), then its dead_letter."""
    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A") as reader:
        c.put("A", b"x")
        (first,) = reader.next(timeout_s=WAIT_S)
        first.fail("not now", delay_s=0.05)
        (second,) = reader.next(timeout_s=WAIT_S)
        assert (second.attempts, second.body) == (1, b"x")
        second.fail("never")
        assert reader.next(timeout_s=0) == []
        until(lambda: depth(c, "FAILED") == 1)
        assert depth(c, "POISON") == 0
    (dead,) = omq_instance.drain("FAILED")
    assert (dead.body, dead.attempts) == (b"x", 0)


def test_a_lease_that_is_renewed_goes_on(omq_instance: Instance) -> None:
    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("C") as reader:
        held = False
        while not held:  # again, where this machine was away for a second
            c.put("C", b"long work")
            (message,) = reader.next(timeout_s=WAIT_S)
            deadline = time.monotonic() + 2.5
            try:
                while time.monotonic() < deadline:
                    message.touch()
                message.done()
                held = True
            except omq.LeaseLost:
                omq_instance.drain("POISON")
        reader.flush()
        c.put("C", b"given up")
        (lost,) = reader.next(timeout_s=WAIT_S)
        until(lambda: b"given up" in [row.body for row in c.browse("POISON")])
        with pytest.raises(omq.LeaseLost):
            lost.touch()


def test_delays_are_exact_and_moments_are_taken(omq_instance: Instance) -> None:
    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A") as reader:
        began = time.time_ns()
        c.put("A", b"soon", delay_s=0.05)
        found = reader.next(timeout_s=0)
        assert not found or time.time_ns() - began >= 50_000_000  # this machine was away
        (message,) = found or reader.next(timeout_s=WAIT_S)
        assert time.time_ns() - began >= 50_000_000
        message.done()
        c.put("A", b"past", at=datetime.now(UTC) - timedelta(days=1))
        c.put("A", b"future", at=datetime.now(UTC) + timedelta(days=1))
        c.put("A", b"local", at=datetime.now() + timedelta(days=1))
        states = {row.body: row.state.name for row in c.browse("A")}
        assert states == {b"past": "READY", b"future": "DEFERRED", b"local": "DEFERRED"}


def test_batches_of_anything(omq_instance: Instance) -> None:
    """Generators that are taken piece by piece, delays, several queues; ids in their order."""
    omq_instance.queues(QUEUES)
    omq_instance.start()
    taken: list[int] = []

    def endless() -> Iterator[bytes]:
        for number in range(2500):
            taken.append(number)
            yield b"%d" % number
        raise RuntimeError("the source is broken")

    with omq_instance.connect() as c:
        with pytest.raises(RuntimeError):
            c.put_many("B", endless())
        assert len(taken) == 2500
        ids = c.put_many("A", [b"1", omq.Outgoing(b"2", delay_s=3600), omq.Outgoing(b"3"),
                               omq.Outgoing(b"4", queues=("A", "LATE"))])
        rows = {row.message_id: (row.body, row.state.name) for row in c.browse("A")}
        assert [rows[each] for each in ids] == [
            (b"1", "READY"), (b"2", "DEFERRED"), (b"3", "READY"), (b"4", "READY")]
        assert [row.body for row in c.browse("LATE")] == [b"4"]


def test_the_frames_of_all_that(omq_instance: Instance) -> None:
    """EXPIRE stands in the journal with where it went."""
    omq_instance.queues(QUEUES)
    omq_instance.start()
    with omq_instance.connect() as c:
        for expiry_s in (0.0, 0.1):
            c.put("A", b"x", expiry_s=expiry_s)
        until(lambda: depth(c, "LATE") == 2)
    omq_instance.stop()
    history = History(omq_instance.paths)
    found = list(history.read(lambda frames: frames["type"] == FrameType.EXPIRE))
    assert [(each.queue, each.targets) for each in found] == [("A", ("LATE",))] * 2
