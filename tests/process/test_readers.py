"""Readers that stop, overstay their lease or die with messages in hand; clients killed in a put."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import omq
from omq.base import fault
from omq.base.checksum import crc32c
from omq.format.index import EntryState
from omq.format.journal import FrameFlag, FrameType
from omq.storage.journal_reader import scan_journal
from omq.storage.spool import open_spool
from omqtools.omqtest.history import HistoryFile, judge, read_histories
from tests.process.clients import Work, submit
from tests.process.evidence import evidence
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S, Child, start
from tests.waiting import until

QUEUES = "[*]\ndeath_delay_s = {delay}\nattempts_max = 3\nlease_s = {lease}\n\n[A]\n\n[B]\n"


def holding(instance: Instance, root: Path, count: int, then: str) -> Child:
    """A reader process that takes `count` messages of A, writes the file `held`, and then stops
    itself or dies; when it goes on it says done and writes how many did not hold to `lost`."""
    def work() -> int:
        with omq.connect(instance.root, name="holder", timeout_s=WAIT_S) as c, \
                c.reader("A", batch=count) as reader:
            messages = reader.next(timeout_s=WAIT_S)
            (root / "held").write_text(str(len(messages)))
            signal.raise_signal(signal.SIGSTOP if then == "stop" else signal.SIGKILL)
            for message in messages:
                message.done()
            reader.flush()
            (root / "lost").write_text(str(reader.lost))
        return 0

    return start("holder", work, output=root / "holder")


def test_a_late_done_is_refused_and_harmless(omq_instance: Instance, tmp_path: Path) -> None:
    """SIGSTOP holds a reader beyond its lease; another one gets the message meanwhile."""
    omq_instance.queues(QUEUES.format(delay=0, lease=1))
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"slow")
        stopped = holding(omq_instance, tmp_path, 1, "stop")
        stopped.wait_stopped()
        omq_instance.queues(QUEUES.format(delay=0, lease=0))  # the other one may take its time
        omq_instance.children[MANAGER].signal(signal.SIGHUP)
        with c.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)  # the lease has ended
            assert message.redelivered and message.attempts == 1
            stopped.signal(signal.SIGCONT)
            assert stopped.wait() == 0, (tmp_path / "holder").read_text()
            assert (tmp_path / "lost").read_text() == "1"
            assert message.body == b"slow"
            message.done()
            reader.flush()
            assert reader.lost == 0
    assert omq_instance.drain("A") == []


def test_a_reader_killed_with_a_batch_gives_all_of_it_back(omq_instance: Instance, tmp_path: Path
                                                           ) -> None:
    """Deferred as the queue has it, attempts counted, also over a restart of the manager."""
    omq_instance.queues(QUEUES.format(delay=30, lease=0))
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"%d" % i for i in range(20)])
        dead = holding(omq_instance, tmp_path, 20, "die")
        assert dead.wait() == -signal.SIGKILL
        held = int((tmp_path / "held").read_text())
        assert held > 1
        rest = omq_instance.drain("A")
        assert [m.body for m in rest] == [b"%d" % i for i in range(held, 20)]
        until(lambda: all(row.state is not EntryState.ACTIVE for row in c.browse("A")))
        rows = list(c.browse("A"))
        assert [(row.state.name, row.attempts) for row in rows] == [("DEFERRED", 1)] * held
        ahead_s = [(row.due_ns - row.put_time_ns) / 1e9 for row in rows]
        assert all(30 <= seconds < 30 + WAIT_S for seconds in ahead_s)
    omq_instance.kill()
    omq_instance.start()
    with omq_instance.connect() as c:
        assert [(row.state.name, row.attempts) for row in c.browse("A")] == [
            ("DEFERRED", 1)] * held


def test_the_third_death_isevidence(omq_instance: Instance, tmp_path: Path) -> None:
    omq_instance.queues(QUEUES.format(delay=0, lease=0))
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"deadly")
        c.put("A", b"harmless", priority=1)
        pids = []
        for _ in range(3):
            dead = holding(omq_instance, tmp_path, 1, "die")
            assert dead.wait() == -signal.SIGKILL
            pids.append(dead.pid)
        assert [m.body for m in omq_instance.drain("A")] == [b"harmless"]
        until(lambda: list(c.browse("POISON")))
        (row,) = c.browse("POISON")
        assert row.attempts == 3
    (event,) = omq_instance.events(1232)
    assert (event["queue"], event["pid_of_reader"]) == ("A", pids[-1])
    omq_instance.stop()
    (packet,) = evidence(omq_instance)
    assert packet["queue"] == "A" and packet["attempts"] == 3 and packet["pid"] == pids[-1]
    assert packet["cause"] == "reader died" and packet["reader"] == "holder"
    omq_instance.start()
    assert [(m.body, m.attempts) for m in omq_instance.drain("POISON")] == [(b"deadly", 3)]


def test_a_stopped_manager_goes_on(omq_instance: Instance) -> None:
    """SIGSTOP of the manager: clients wait, nothing is lost, nobody registers anew."""
    manager = omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"before")
        manager.signal(signal.SIGSTOP)
        manager.wait_stopped()
        putter = start("putter", lambda: _put_one(omq_instance.root))
        manager.signal(signal.SIGCONT)
        assert putter.wait() == 0
        c.put("A", b"after")
        assert {m.body for m in omq_instance.drain("A")} == {b"before", b"during", b"after"}
        assert c.control({"op": "status"})["epoch"] == 1


def _put_one(root: Path) -> int:
    with omq.connect(root, name="putter", timeout_s=WAIT_S) as c:
        c.put("A", b"during")
    return 0


CLIENT_POINTS = {"client.before_request": 9, "client.after_request": 9, "client.after_reply": 9}


@pytest.mark.parametrize("point", CLIENT_POINTS)
def test_a_client_killed_in_a_put(omq_instance: Instance, tmp_path: Path, point: str) -> None:
    """What it was told is there; what it was not told is there once or not at all."""
    omq_instance.start()
    work = Work(omq_instance.root, tmp_path / "histories", tmp_path / "stop", 7, gentle=True)
    work.histories.mkdir()

    def submitter() -> int:
        fault.arm(f"{point}:kill:{CLIENT_POINTS[point]}")
        return submit(work, "victim", 100)

    assert start("victim", submitter, output=tmp_path / "victim").wait() == -signal.SIGKILL
    history = HistoryFile(work.histories / "reader")
    for queue in "ABC":
        for m in omq_instance.drain(queue):
            key = m.properties.get("key") or m.body.partition(b"\n")[0].decode()
            place = {"key": key, "queue": queue, "lease": m.lease}
            history.say({"op": "got", **place, "priority": m.priority,
                         "crc": crc32c(m.body), "flag": m.redelivered, "who": "drain"},
                        {"op": "ending", **place})
    verdict = judge(read_histories(work.histories))
    assert verdict.faults == {} and verdict.acknowledged >= CLIENT_POINTS[point] - 2


@pytest.mark.parametrize("point", ["container.before_sync", "container.after_sync"])
def test_a_client_killed_with_a_container(omq_instance: Instance, tmp_path: Path, point: str
                                          ) -> None:
    """Nobody knows of the message; the next one takes another container."""
    omq_instance.start()
    omq_instance.ready()
    body = bytes(range(256)) * 4096

    def submitter() -> int:
        fault.arm(f"{point}:kill:1")
        with omq.connect(omq_instance.root, timeout_s=WAIT_S) as c:
            c.put("A", body)
        return 0

    assert start("victim", submitter, output=tmp_path / "victim").wait() == -signal.SIGKILL
    assert omq_instance.drain("A") == []
    with omq_instance.connect() as c:
        c.put("A", body)
        with c.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.body == body
            message.done()


def test_each_journal_file_names_queues_and_readers(omq_instance: Instance) -> None:
    """Every file reads alone (archives do): who reads is said again behind each rotation."""
    omq_instance.start()
    with omq_instance.connect("watcher") as c, c.reader("B"):
        for _ in range(8):
            c.put_many("A", [bytes(50_000)] * 10)
    omq_instance.stop()
    named: dict[int, set[tuple[int, bool]]] = {}
    for block in scan_journal(omq_instance.paths, open_spool(omq_instance.root).uuid):
        frames = block.frames[["type", "flags"]].tolist()
        named.setdefault(block.number, set()).update(
            (kind, bool(flags & FrameFlag.REPEATED)) for kind, flags in frames)
    numbers = sorted(named)
    assert len(numbers) > 2
    for number in numbers[1:]:
        assert {(int(FrameType.QUEUE), True), (int(FrameType.READER_UP), True)} <= named[number]
    omq_instance.start()
    assert len(omq_instance.drain("A")) == 80
