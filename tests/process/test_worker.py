"""omq worker: real processes, killed ones, a killed manager, tasks that cannot be done."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from omq.base import events
from omq.base.errors import Exit
from tests.process.evidence import evidence
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S, Child, start_program
from tests.process.task_workers import ROOT, lines, log_path, said, until

TASKS = "tests.process.worker_tasks"
QUEUES = ("[*]\ndeath_delay_s = 0\nattempts_max = 3\nretry_delay_ms = 0\n\n[A]\n\n[B]\n\n[C]\n\n"
          "[REPLIES]\n\n[ONCE]\nattempts_max = 1\n")


def start(instance: Instance, function: str, *options: str, queue: str = "A",
          environment: dict[str, str] | None = None) -> Child:
    return start_program(
        "omq", ["worker", "--spool", str(instance.root), "--conf", str(instance.conf),
                "--path", str(ROOT), "--queue", queue, function, *options],
        output=log_path(instance), environment=environment)


@contextmanager
def worker(instance: Instance, function: str, *options: str, **more: Any) -> Iterator[Child]:
    """Stopped in order at the end, if it still runs."""
    child = start(instance, f"{TASKS}:{function}", *options, **more)
    try:
        yield child
        if child.running:
            child.signal(signal.SIGTERM)
            assert child.wait() == 0, said(instance)
    finally:
        if child.running:
            child.kill()


def put(instance: Instance, *tasks: object, queue: str = "A") -> None:
    with instance.connect() as connection:
        for task in tasks:
            body = task if isinstance(task, bytes) else json.dumps(task).encode()
            connection.put(queue, body)


def left(instance: Instance, queue: str = "A") -> int:
    with instance.connect() as connection:
        return connection.queues.show(queue).messages


def alive(pid: str) -> bool:
    with suppress(FileNotFoundError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


@pytest.fixture
def running(omq_instance: Instance) -> Instance:
    omq_instance.queues(QUEUES)
    omq_instance.settings(restart_backoff_min_s=0, restart_backoff_max_s=1)
    omq_instance.start()
    omq_instance.ready()
    return omq_instance


@pytest.fixture
def began(tmp_path: Path) -> Path:
    """Where `work` says that it began; it ends when `go` is opened for writing."""
    os.mkfifo(tmp_path / "go")
    return tmp_path / "began"


def task(began: Path, number: int = 0, do: str = "") -> dict[str, object]:
    return {"path": str(began), "go": str(began.parent / "go"), "number": number, "do": do}


def let_go(began: Path) -> None:
    """From now on nothing blocks; whoever waits goes on."""
    go = began.parent / "go"
    go.with_name("pipe").hardlink_to(go)
    go.with_name("open").touch()
    go.with_name("open").replace(go)  # there is one at every moment: a task without would fail
    with suppress(OSError):
        os.close(os.open(go.with_name("pipe"), os.O_WRONLY | os.O_NONBLOCK))


def test_a_function_for_each_message(running: Instance, tmp_path: Path) -> None:
    """JSON in four processes, bytes, the message itself, which the function settles."""
    path = tmp_path / "noted"
    put(running, *({"path": str(path), "number": n} for n in range(100)))
    with worker(running, "note", "--concurrency", "4"):
        until(lambda: len(lines(path)) == 100, running)
    assert sorted(lines(path), key=int) == [str(n) for n in range(100)]
    assert left(running) == 0
    put(running, str(tmp_path / "bytes").encode(), queue="B")
    with worker(running, "note_bytes", "--give", "bytes", queue="B"):
        until(lambda: lines(tmp_path / "bytes") == ["bytes"], running)
    with running.connect() as connection, \
            worker(running, "answer", "--give", "message", queue="C"):
        reply = connection.request("C", b"it is", timeout_s=WAIT_S)
        assert reply is not None and reply.body == b"it is done"


def test_what_fails_goes_to_poison_with_its_reason(running: Instance, began: Path) -> None:
    """No JSON, an exception, one that cannot be written, sys.exit, a task of another version of the
    program: no process ends of it."""
    put(running, b"{no json", b"\xff", b"[" * 100_000, task(began, 7, "raise"),
        task(began, 8, "exit"), {"of": "a newer version"})
    with worker(running, "work"):
        until(lambda: left(running, "POISON") == 6, running)
        assert len(set(lines(began))) == 1  # one process did all of it, three times each
        assert len(lines(began)) == 6
    assert "ValueError: not 7" in said(running)
    running.stop(MANAGER)
    reasons = " ".join(packet["reason"] for packet in evidence(running))
    for word in ("JSONDecodeError", "UnicodeDecodeError", "RecursionError", "not 7 ?",
                 "SystemExit", "KeyError"):
        assert word in reasons, reasons
    running.start()
    running.ready()
    running.drain("POISON")


def test_a_process_that_dies_is_replaced(running: Instance, began: Path) -> None:
    """By its task, which comes to POISON, and by somebody, whose task is done again."""
    put(running, task(began, 1, "die"))
    with worker(running, "work", "--concurrency", "2"):
        until(lambda: left(running, "POISON") == 1, running)
        assert len(set(lines(began))) == 3
        put(running, task(began, 2))
        until(lambda: len(lines(began)) == 4, running)
        os.kill(int(lines(began)[-1]), signal.SIGKILL)
        until(lambda: len(lines(began)) == 5, running)
        let_go(began)
        until(lambda: lines(Path(f"{began}.ended")) == ["2"], running)
    assert left(running) == 0
    running.drain("POISON")


def test_a_function_that_takes_too_long_has_failed(running: Instance, began: Path) -> None:
    """It is interrupted, its finally runs, and its process goes on."""
    put(running, task(began, 1), queue="ONCE")
    with worker(running, "work", "--time-limit", "3", queue="ONCE"):
        until(lambda: left(running, "POISON") == 1, running)
        assert lines(Path(f"{began}.ended")) == ["1"]
        assert str(events.READER_DIED.number) not in said(running)
    running.stop(MANAGER)
    assert "TaskOverdue: the function had 3" in evidence(running)[0]["reason"]
    running.start()
    running.ready()
    running.drain("POISON")


@pytest.mark.parametrize("how", ["swallow", "hang"])
def test_a_function_that_cannot_be_interrupted_loses_its_process(running: Instance, began: Path,
                                                                 how: str) -> None:
    """It goes on behind the interruption, or hangs in C with the GIL: an attempt is counted, others
    are worked on, and where it stood is written down. Its parent is not needed for it."""
    put(running, task(began, 1, how), queue="ONCE")
    with worker(running, "work", "--time-limit", "3", "--kill-after", "0.1", queue="ONCE") as child:
        until(lambda: lines(began), running)
        if how == "hang":
            child.kill()
        until(lambda: left(running, "POISON") == 1, running)
        assert re.search(r"Timeout .*\n(.*\n)*.*worker_tasks.py", said(running))
        if how == "swallow":
            let_go(began)
            put(running, task(began, 2), queue="ONCE")
            until(lambda: left(running, "ONCE") == 0, running)
            assert len(set(lines(began))) == 2
    running.drain("POISON")


def test_the_parent_is_killed(running: Instance, began: Path) -> None:
    """Its processes finish what they have and end; the next worker has the rest."""
    put(running, task(began, 1), task(began, 2), task(began, 3))
    with worker(running, "work", "--concurrency", "2") as first:
        until(lambda: len(lines(began)) == 2, running)
        first.kill()
        let_go(began)
        until(lambda: not any(map(alive, lines(began))), running)
    with worker(running, "work"):
        until(lambda: left(running) == 0, running)
    assert sorted(lines(Path(f"{began}.ended"))) == ["1", "2", "3"]


def test_the_manager_is_killed(running: Instance, tmp_path: Path) -> None:
    """The same processes go on, also when it stops in order; nothing is lost, nothing comes twice
    from what was settled."""
    path = tmp_path / "noted"
    put(running, *({"path": str(path), "number": n} for n in range(200)))
    with worker(running, "note", "--concurrency", "2"):
        until(lambda: len(lines(path)) > 20, running)
        running.kill(MANAGER)
        running.start(MANAGER)
        running.ready()
        until(lambda: len(set(lines(path))) == 200, running)
        until(lambda: left(running) == 0, running)
        running.stop(MANAGER)
        running.start(MANAGER)
        running.ready()
        put(running, {"path": str(path), "number": 200})
        until(lambda: lines(path)[-1] == "200", running)


def test_a_queue_that_is_removed_is_waited_for(running: Instance, tmp_path: Path) -> None:
    path = tmp_path / "noted"
    with running.connect() as connection:
        connection.queues.define("JOBS")
        put(running, {"path": str(path), "number": 1}, queue="JOBS")
        with worker(running, "note", queue="JOBS"):
            until(lambda: lines(path) == ["1"], running)
            connection.queues.delete("JOBS", force=True)
            until(lambda: "JOBS" in said(running), running)
            connection.queues.define("JOBS")
            put(running, {"path": str(path), "number": 2}, queue="JOBS")
            until(lambda: lines(path) == ["1", "2"], running)


def test_what_cannot_work_is_said_and_ends(running: Instance) -> None:
    """Each by its exit code, which systemd does not try again."""
    children = [(start(running, function, queue=queue), code, word)
                for function, queue, code, word in (
        ("no.such:function", "A", Exit.CONFIG, "No module named"),
        (f"{TASKS}:nothing", "A", Exit.CONFIG, "has no attribute"),
        (f"{TASKS}:NOT_A_FUNCTION", "A", Exit.CONFIG, "cannot be called"),
        (f"{TASKS}:coroutine", "A", Exit.CONFIG, "coroutine"),
        ("nothing", "A", Exit.CONFIG, "MODULE:FUNCTION"),
        (f"{TASKS}:note", "NOSUCH", Exit.NO_INPUT, "NOSUCH"),
        (f"{TASKS}:note", "no such", Exit.USAGE, "no such"))]
    for child, code, word in children:
        assert child.wait() == code, said(running)
        assert word in said(running)


def test_a_stop_lets_the_task_end(running: Instance, began: Path) -> None:
    put(running, task(began, 1), task(began, 2))
    with worker(running, "work", "--stop-timeout", "100") as child:
        until(lambda: lines(began), running)
        child.signal(signal.SIGTERM)
        assert child.running
        let_go(began)
        assert child.wait() == 0
    assert lines(Path(f"{began}.ended")) == ["1"]
    assert left(running) == 1
    running.drain("A")


@pytest.mark.parametrize("do", ["", "miss"])
def test_a_stop_gives_back_what_takes_too_long(running: Instance, began: Path, do: str) -> None:
    """Interrupted, once more if need be; no attempt counted, no process killed."""
    put(running, task(began, do=do))
    with worker(running, "work", "--stop-timeout", "0") as child:
        until(lambda: lines(began), running)
        child.signal(signal.SIGTERM)
        assert child.wait() == 0
    assert str(events.TASK_STOPPED.number) in said(running)
    assert str(events.READER_KILLED.number) not in said(running)
    (message,) = running.drain("A")
    assert message.attempts == 0


def test_systemd_is_told(running: Instance, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(WAIT_S)
        words: list[str] = []
        with worker(running, "note", "--concurrency", "2", environment={
                "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}) as child:
            while not any("processes 2/2" in word for word in words):
                words.append(heard.recv(4096).decode())
            while words[-1] != "WATCHDOG=1":
                words.append(heard.recv(4096).decode())
            child.signal(signal.SIGTERM)
            while "STOPPING=1" not in words[-1]:
                words.append(heard.recv(4096).decode())
    assert any(word.startswith("READY=1") for word in words)
