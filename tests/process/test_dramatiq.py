"""dramatiq with omq as its broker: real workers, killed ones, a killed manager."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.task_workers import drive as drive_with
from tests.process.task_workers import lines, running_worker, until

pytest.importorskip("dramatiq", reason="the extra `dramatiq` is not installed")

APP = "tests.process.dramatiq_app"


def worker(instance: Instance) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A real one."""
    return running_worker(instance, "dramatiq", APP, "-p", "1", "-t", "2")


def drive(instance: Instance, code: str) -> Any:
    return drive_with(instance, ("import dramatiq", f"from {APP} import *"), code)


@pytest.fixture
def running(omq_instance: Instance) -> Instance:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    return omq_instance


def test_what_a_program_of_dramatiq_does(running: Instance, tmp_path: Path) -> None:
    """Results, delays, retries, groups, pipelines, join; what fails for good is set aside, so is
    what is unknown, no message, or of another version: with other arguments, or with more in it.
    What cannot be written is not sent."""
    with worker(running):
        told = drive(running, f"""
path = {str(tmp_path / 'again')!r}
again.send(path)
told = {{
    "add": add.send(2, 3).get_result(block=True, timeout=120_000),
    "delay": add.send_with_options(args=(1, 1), delay=200).get_result(block=True, timeout=120_000),
    "group": list(dramatiq.group([add.message(n, n) for n in range(4)]).run().get_results(
        block=True, timeout=120_000)),
    "pipe": (add.message(1, 2) | add.message(3)).run().get_result(block=True, timeout=120_000),
}}
never.send()
add.send_with_options(args=(1, 2, 3), max_retries=0)
try:
    add.send(object(), 1)
except TypeError:
    told["unwritable"] = True
broker.enqueue(add.message(1, 1).copy(actor_name="unknown"))
broker.join("default", timeout=120_000)
broker.declare_queue("never-used")
broker.join("never-used")
json.dump(told, sys.stdout)
""")
        assert told == {"add": 5, "delay": 2, "group": [0, 2, 4, 6], "pipe": 6, "unwritable": True}
        until(lambda: lines(tmp_path / "again") == ["0", "1", "2"], running)
        with running.connect() as connection:
            connection.put("DEFAULT", b"by hand")
            connection.put("DEFAULT", b'{"of": "a newer version"}')
            until(lambda: connection.queues.show("DEFAULT.XQ").messages == 5, running)
    aside = b" ".join(message.body for message in running.drain("DEFAULT.XQ"))
    for word in (b"by hand", b"unknown", b"never", b"newer version", b"[1,2,3]"):
        assert word in aside, aside
    running.drain("DRAMATIQ.RESULTS")


def test_killed_workers_lose_nothing(running: Instance, tmp_path: Path) -> None:
    path = tmp_path / "began"
    os.mkfifo(tmp_path / "began.go")
    with worker(running) as first:
        drive(running, f"for n in range(20): blocked.send({str(path)!r}, n)")
        until(lambda: len(lines(path)) == 2, running)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    (tmp_path / "began.go").unlink()
    (tmp_path / "began.go").touch()
    with worker(running):
        until(lambda: len(set(lines(tmp_path / "began.ended"))) == 20, running)
        with running.connect() as connection:
            until(lambda: not connection.queues.show("DEFAULT").messages, running)


def test_the_manager_dies_stops_and_forgets_a_queue_under_a_worker(
        running: Instance, tmp_path: Path) -> None:
    """Nothing is lost; the same worker goes on with each manager, and makes the queue anew."""
    path = tmp_path / "noted"
    ask = "json.dump(add.send(2, 2).get_result(block=True, timeout=120_000), sys.stdout)"
    with worker(running):
        drive(running, f"for n in range(300): noted.send({str(path)!r}, n)")
        until(lambda: len(lines(path)) > 20, running)
        running.kill(MANAGER)
        running.start(MANAGER)
        running.ready()
        until(lambda: len(set(lines(path))) == 300, running)
        with running.connect() as connection:
            until(lambda: not connection.queues.show("DEFAULT").messages, running)
        running.stop(MANAGER)
        running.start(MANAGER)
        running.ready()
        assert drive(running, ask) == 4
        with running.connect() as connection:
            connection.queues.delete("DEFAULT", force=True)
        assert drive(running, ask) == 4
    running.drain("DRAMATIQ.RESULTS")


def test_a_task_that_is_too_long_is_the_senders_error(omq_instance: Instance) -> None:
    omq_instance.queues("[*]\n\n[DEFAULT]\nmax_length = 1M\n")
    omq_instance.start()
    omq_instance.ready()
    assert "DEFAULT" in drive(omq_instance, """
import omq
add.send(1, 1)
try:
    add.send("x" * (2 << 20), 1)
except omq.MessageTooLong as error:
    json.dump(str(error), sys.stdout)
""")
    assert len(omq_instance.drain("DEFAULT")) == 1
