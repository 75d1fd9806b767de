"""The real queue manager: killed under its clients, refused twice, and clean when it has gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sysv_ipc

import omq
from omq.base import modes
from omq.base.errors import BadRequest, Exit, MessageTooLong, QueueFull, UnknownQueue
from omq.cli import launch
from omq.ipc.client.connection import Client
from omq.ipc.client.operator import Operator
from omq.storage import spool
from omq.storage.segment import read_ids
from omqtools.omqtest.child import Child
from tests.process.processes import popen

WAIT_S = 120.0
QUEUES = "[*]\ndeath_delay_s = 0\n\n[A]\n\n[B]\n\n[SMALL]\nmax_depth = 2\nmax_length = 100\n"


class Manager:
    """A queue.manager process on a spool of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        info = spool.create_spool(root)
        self.paths = info.paths
        self.conf = root / "conf"
        self.conf.mkdir(exist_ok=True)
        (self.conf / "queues.conf").write_text(QUEUES)
        (self.conf / "omq.conf").write_text(
            "[index]\nmessages_max = 20000\nqueue_entries_max = 25000\n"
            "[journal]\njournal_file_bytes = 4194304\nblock_bytes_max = 1048576\n"
            "[store]\ndisk_reserve_bytes = 0\n")
        self.process: Child | None = None

    def start(self, fault: str = "", log: Path | None = None) -> Child:
        environment = {}
        if fault and log is not None:
            environment = {"OMQ_FAULT": fault, "OMQ_FAULT_LOG": str(log)}
        self.process = popen("queue.manager", self.arguments,
                             output=self.root.parent / "output", environment=environment)
        return self.process

    @property
    def arguments(self) -> list[str]:
        return ["--spool", str(self.root), "--conf", str(self.conf)]

    def stop(self) -> int | None:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(WAIT_S)

    def connect(self, name: str = "test") -> Client:
        return omq.connect(self.root, name=name, timeout_s=WAIT_S)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "spool")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait(WAIT_S)
        made.start()
        made.connect().close()
    if made.process is not None and made.process.poll() is None:
        assert made.stop() == 0
    assert read_ids(made.paths) is None


def drain(manager: Manager, queue: str) -> list[tuple[bytes, int]]:
    """Everything on a queue: bodies and failed attempts, in order."""
    out: list[tuple[bytes, int]] = []
    with manager.connect("drain") as c, c.reader(queue, batch=100) as reader:
        while batch := reader.next(timeout_s=0):
            for message in batch:
                out.append((message.body, message.attempts))
                message.done()
    return out


POINTS = ["journal.before_write:kill:9", "journal.after_write:kill:9", "journal.before_sync:kill:9",
          "journal.after_sync:kill:9", "engine.before_append:kill:40",
          "engine.after_append:kill:40", "engine.before_reply:kill:40",
          "engine.after_reply:kill:40",
          "journal.before_rotate:kill:1", "journal.after_rotate:kill:1"]


@pytest.mark.parametrize("fault", POINTS)
def test_puts_are_exactly_once_over_a_kill(manager: Manager, tmp_path: Path, fault: str) -> None:
    """Two putters keep going while the manager dies at a named point and comes back."""
    log = tmp_path / "fired"
    first = manager.start(fault, log)
    bodies: list[bytes] = []
    lock = threading.Lock()

    def putter(number: int) -> None:
        with manager.connect(f"put{number}") as c:
            for i in range(60):
                body = f"{number}-{i}-".encode() + b"x" * 40_000
                c.put("A", body)
                with lock:
                    bodies.append(body)

    threads = [threading.Thread(target=putter, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    assert first.wait(WAIT_S) == -signal.SIGKILL
    assert log.read_text().startswith(fault)
    manager.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    got = [body for body, _ in drain(manager, "A")]
    assert sorted(got) == sorted(bodies)
    for number in range(2):
        mine = [body for body in got if body.startswith(f"{number}-".encode())]
        assert mine == [b for b in bodies if b.startswith(f"{number}-".encode())]


def test_a_reader_keeps_what_it_holds_over_a_kill(manager: Manager) -> None:
    process = manager.start()
    with manager.connect() as c:
        c.put_many("A", [b"%d" % i for i in range(20)])
        with c.reader("A", batch=10) as reader:
            held = reader.next(timeout_s=WAIT_S)
            assert len(held) == 10
            process.kill()
            process.wait(WAIT_S)
            manager.start()
            for message in held:
                message.done()
            rest = reader.next(timeout_s=WAIT_S)
            assert {m.body for m in rest}.isdisjoint({m.body for m in held})
            assert reader.lost == 0
            for message in rest:
                message.release()
    assert [body for body, _ in drain(manager, "A")] == [b"%d" % i for i in range(10, 20)]


def test_restart_keeps_order_attempts_and_ids(manager: Manager) -> None:
    manager.start()
    with manager.connect() as c:
        ids = [c.put("A", b"%d" % i, priority=4 + i % 2) for i in range(10)]
        c.put("B", b"failed once")
        with c.reader("A", batch=3) as reader:
            for message in reader.next(timeout_s=WAIT_S):
                message.release()
    with manager.connect() as c, c.reader("B") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        message.fail("not today")
    assert manager.stop() == 0
    manager.start()
    with manager.connect() as c:
        assert c.put("A", b"new") not in ids
        with c.reader("B") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.attempts == 1 and message.redelivered
            message.done()
    assert [body for body, _ in drain(manager, "A")] == [
        b"1", b"3", b"5", b"7", b"9", b"0", b"2", b"4", b"6", b"8", b"new"]


def test_a_reader_that_dies_three_times_poisons(manager: Manager) -> None:
    manager.start()
    with manager.connect() as c:
        c.put("A", b"deadly")
        for _ in range(3):
            child = subprocess.run(
                [sys.executable, "-c",
                 "import omq, os, sys\n"
                 "c = omq.connect(sys.argv[1], name='victim')\n"
                 "r = c.reader('A')\n"
                 "m = r.next(timeout_s=120)\n"
                 "os.kill(os.getpid(), 9 if m else 15)", str(manager.root)], check=False)
            assert child.returncode == -signal.SIGKILL
        with c.reader("POISON") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.body == b"deadly"
            message.done()


def test_refusals_are_typed(manager: Manager) -> None:
    manager.start()
    with manager.connect() as c:
        with pytest.raises(UnknownQueue):
            c.put("NOWHERE", b"")
        with pytest.raises(MessageTooLong):
            c.put("SMALL", b"x" * 101)
        c.put("SMALL", b"1")
        c.put("SMALL", b"2")
        with pytest.raises(QueueFull):
            c.put("SMALL", b"3")
        with pytest.raises(BadRequest):
            c.put("POISON", b"")


def test_garbage_on_the_request_queue_is_counted(manager: Manager) -> None:
    manager.start()
    with manager.connect() as c:
        ids = read_ids(manager.paths)
        assert ids is not None
        queue = sysv_ipc.MessageQueue(ids.requests[0])
        for raw in (b"x", b"y" * 96, os.urandom(96), os.urandom(500)):
            queue.send(raw)
        c.put("A", b"still alive")
        assert c.control({"op": "status"})["counters"]["garbage"] == 4


def test_a_second_manager_is_refused(manager: Manager) -> None:
    manager.start()
    manager.connect().close()
    second = subprocess.run(
        [sys.executable, "-P", "-m", "omq.cli.launch", "queue.manager", "--spool",
         str(manager.root), "--conf", str(manager.conf)], capture_output=True, check=False,
        timeout=WAIT_S)
    assert second.returncode == Exit.TEMPORARY
    assert b"queue.manager" in second.stderr


def test_wrong_configuration_ends_with_78(manager: Manager) -> None:
    (manager.conf / "queues.conf").write_text("[A]\nmax_depth = many\n")
    process = manager.start()
    assert process.wait(WAIT_S) == Exit.CONFIG


def test_large_bodies_travel_as_containers(manager: Manager) -> None:
    manager.start()
    body = os.urandom(3_000_000)
    with manager.connect() as c:
        c.put(["A", "B"], body, properties={"kind": "large"})
        with c.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.body == body and message.properties == {"kind": "large"}
            container = message.container
            assert container is not None and not container.stat().st_mode & modes.GIVEN_OUT
            assert message.path == container and container.stat().st_mode & modes.GIVEN_OUT
            message.done()
    assert [b for b, _ in drain(manager, "B")] == [body]


def test_operators_commands_over_a_kill(manager: Manager, tmp_path: Path) -> None:
    """Hold, delete, restore and free on the wire; all of it is there after a SIGKILL."""
    manager.start()
    with manager.connect("operator") as c:
        ids = [int(c.put("A", body=b"%d" % i)[32:], 16) for i in range(4)]
        operator = Operator(c, "test")
        assert operator.hold([(ids[0], "A", 0)], reason="why not").done == ids[:1]
        assert operator.delete([(ids[1], "A", 0)]).done == ids[1:2]  # kept for operator_undo_s
        assert operator.delete([(ids[2], "A", 0)], keep_s=600).done == ids[2:3]
        assert operator.restore([(ids[2], "B", 0)]).done == [ids[2]]
        report = operator.release([(ids[3], "A", 0), (99, "A", 0)])
        assert [r.qpool for r in report.refused] == [ids[3], 99] and report.lsns == []
        with pytest.raises(UnknownQueue):
            operator.hold([(ids[0], "NONE", 0)])
    assert manager.process is not None
    manager.process.kill()
    manager.process.wait(WAIT_S)
    manager.start()
    assert drain(manager, "A") == [(b"3", 0)]
    assert drain(manager, "B") == [(b"2", 0)]
    with manager.connect("operator") as c:
        operator = Operator(c, "test")
        assert operator.release([(ids[0], "A", 0)]).done == ids[:1]
        assert operator.restore([(ids[1], "A", 0)]).done == [ids[1]]
        with manager.connect("victim") as victim, victim.reader("A") as reader:
            (held,) = reader.next(timeout_s=WAIT_S)
            assert operator.free_reader("A", os.getpid(), reason="stuck") == 1
            assert operator.free_reader("A", os.getpid()) == 0
            assert held.body == b"0"
    assert sorted(drain(manager, "A")) == [(b"0", 0), (b"1", 0)]  # an operator's no attempt


def test_the_manager_may_go_before_other_work(manager: Manager) -> None:
    """Its nice value is the setting's where it may change it (CAP_SYS_NICE), else what it was."""
    with (manager.conf / "omq.conf").open("a") as conf:
        conf.write("[daemons]\nmanager_nice = -10\n")
    process = manager.start()
    manager.connect().close()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    wanted = min(own, -10) if capabilities >> 23 & 1 else own
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == wanted


def test_a_forked_manager_imports_nothing_of_omq(manager: Manager, tmp_path: Path) -> None:
    """Who forks it has imported all of it, for an interpreted fast path was half of a start."""
    found = tmp_path / "imported"

    def run() -> int:
        before = set(sys.modules)
        code = launch.run("queue.manager", manager.arguments)
        found.write_text(" ".join(sorted(set(sys.modules) - before)))
        return code

    manager.process = Child(run, tmp_path / "output", {})
    with manager.connect() as c:
        c.put("A", b"x")
    assert manager.stop() == 0
    assert [name for name in found.read_text().split() if name.startswith("omq")] == []


def test_a_spool_at_a_path_longer_than_a_socket_name(tmp_path: Path) -> None:
    parent = tmp_path / ("d" * 60) / ("e" * 60)
    parent.mkdir(parents=True)
    manager = Manager(parent / "spool")
    assert len(str(manager.paths.socket)) > 107
    manager.start()
    with manager.connect() as c:
        c.put("A", b"x")
        with c.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            message.done()
    assert manager.stop() == 0


def test_a_killed_manager_leaves_no_whole_journal_file(manager: Manager) -> None:
    """Each start opens a new one; of those before it stays what is in them, and all is readable."""
    for number in range(4):
        process = manager.start()
        with manager.connect() as connection:
            connection.put("A", b"%d" % number)
        process.kill()
        process.wait(WAIT_S)
    manager.start()
    manager.connect().close()
    *before, newest = sorted(manager.paths.journal.glob("*.jnl"))
    assert len(before) >= 4
    assert newest.stat().st_blocks * 512 >= 4194304, "real zeros, where it writes"
    for path in before:
        assert path.stat().st_size == 4194304
        assert path.stat().st_blocks * 512 <= 64 * 1024, path
    assert [body for body, _failed in drain(manager, "A")] == [b"0", b"1", b"2", b"3"]
