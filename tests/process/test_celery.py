"""Celery with omq as broker and result backend: real workers, killed ones, a killed manager."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S
from tests.process.task_workers import drive as drive_with
from tests.process.task_workers import lines, running_worker, said, until

pytest.importorskip("celery", reason="the extra `celery` is not installed")

APP = "tests.process.celery_app"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def worker(instance: Instance, pool: str, *options: str
           ) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A real one."""
    return running_worker(instance, "celery", "-A", APP, "worker", "-P", pool, "-c", "2",
                          "--without-gossip", *options)


def drive(instance: Instance, code: str) -> Any:
    return drive_with(
        instance, (f"from {APP} import *", "from celery import chain, chord, group"), code)


def facts(connection: Client, queue: str) -> dict[str, Any]:
    return dict(connection.queues.show(queue).facts)


@pytest.fixture
def running(omq_instance: Instance) -> Instance:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    return omq_instance


def test_what_a_program_of_celery_does(running: Instance, tmp_path: Path) -> None:
    """Results, retries with their pause, chains, groups, chords, remote control, revoke, events,
    purge."""
    with worker(running, "threads", "-n", "one@test", "-E"):
        told = drive(running, f"""
retried = {str(tmp_path / 'retried')!r}
one = app.control.inspect(["one@test"], timeout=120)
told = {{
    "add": add.delay(2, 3).get(timeout=120),
    "again": again.delay(retried).get(timeout=120),
    "eta": add.apply_async((1, 1), countdown=0.2).get(timeout=120),
    "chain": chain(add.s(1, 2), add.s(3))().get(timeout=120),
    "group": group(add.s(n, n) for n in range(5))().get(timeout=120),
    "chord": chord([add.s(n, n) for n in range(5)], total.s())().get(timeout=120),
    "trace": trace.apply_async(headers={{"traceparent": {TRACE!r}}}).get(timeout=120),
    "ping": one.ping(),
}}
app.control.revoke("no-more")
told["revoked"] = one.revoked()
told["its task"] = type(add.apply_async((1, 1), task_id="no-more").get(
    timeout=120, propagate=False)).__name__

def send(event):
    if sent is None:
        globals()["sent"] = add.delay(1, 1).id

def succeeded(event):
    told["event"] = event["uuid"] == sent and event["result"] == "2"
    receiver.should_stop = True

sent = None
with app.connection_for_read() as connection:
    receiver = app.events.Receiver(
        connection, handlers={{"worker-heartbeat": send, "task-succeeded": succeeded}})
    receiver.capture(timeout=120)  # it has the workers say that they are there
add.apply_async((1, 1), countdown=3600)
told["purged"] = app.control.purge()
json.dump(told, sys.stdout)
""")
    assert told == {
        "add": 5, "again": 2, "eta": 2, "chain": 6, "group": [0, 2, 4, 6, 8], "chord": 20,
        "trace": TRACE, "ping": {"one@test": {"ok": "pong"}}, "revoked": {"one@test": ["no-more"]},
        "its task": "TaskRevokedError", "event": True, "purged": 1}
    assert lines(tmp_path / "retried") == ["0", "1", "2"]
    with running.connect() as connection:
        assert [each.name for each in connection.queues.list() if each.kind == "temporary"] == []
        assert facts(connection, "CELERY")["ready"] == 0
        assert facts(connection, "CELERY.RESULTS")["active"] == 0
    running.drain("CELERY.RESULTS")


def test_an_eta_waits_on_the_queue(running: Instance) -> None:
    """No worker is needed for it to wait; priority and expiry are the manager's, too."""
    drive(running, """
add.apply_async((1, 1), countdown=3600)
add.apply_async((1, 1), priority=7)
add.apply_async((1, 1), expires=0)
""")
    with running.connect() as connection:
        rows = list(connection.browse("CELERY"))
        assert [(row.state.name, row.priority) for row in rows] == [("READY", 7), ("DEFERRED", 0)]
        assert all(row.properties["task"] == f"{APP}.add" for row in rows)
        connection.queues.clear("CELERY")


def test_a_busy_worker_hears(running: Instance, tmp_path: Path) -> None:
    """A liveness probe, what it has in work, the end of a task, a warm shutdown: nothing of that
    waits for the pool."""
    path = tmp_path / "blocked"
    os.mkfifo(f"{path}.go")
    with worker(running, "prefork", "-n", "busy@test", "-c", "1") as process:
        told = drive(running, f"""
import time
from pathlib import Path
busy = {{"destination": ["busy@test"], "timeout": 120}}
tasks = [blocked.delay({str(path)!r}, number) for number in range(3)]
while not Path({str(path)!r}).exists():  # a broadcast is for workers that are there
    time.sleep(0.1)
one = app.control.inspect(["busy@test"], timeout=120)
told = {{"ping": app.control.ping(**busy)}}
while not (active := one.active()["busy@test"]):
    time.sleep(0.1)
told["active"] = [each["id"] for each in active] == [tasks[0].id]
told["reserved"] = [each["id"] for each in one.reserved()["busy@test"]]
told["mine"] = tasks[1].id in told.pop("reserved")
app.control.revoke(tasks[0].id, terminate=True, **busy, reply=True)
told["ended"] = type(tasks[0].get(timeout=120, propagate=False)).__name__
while [each["id"] for each in one.active()["busy@test"]] != [tasks[1].id]:
    time.sleep(0.1)
json.dump(told, sys.stdout)
""")
        process.terminate()
        until(lambda: "Warm shutdown" in said(running), running)
        (tmp_path / "blocked.go").write_bytes(b"")
        assert process.wait(WAIT_S) == 0, said(running)
    assert told == {"ping": [{"busy@test": {"ok": "pong"}}], "active": True, "mine": True,
                    "ended": "TaskRevokedError"}
    assert lines(tmp_path / "blocked.ended") == ["1"]
    with running.connect() as connection:
        assert facts(connection, "CELERY")["ready"] == 1
    running.drain("CELERY")
    running.drain("CELERY.RESULTS")


def test_processes_of_a_pool_are_forked_beside_its_readers(running: Instance) -> None:
    """Each task in a process of its own, which sends another one: what the worker's threads had
    when it forked is the worker's."""
    with worker(running, "prefork", "-n", "forks@test", "--max-tasks-per-child", "1"):
        told = drive(running, """
sent = [sends.delay(number).get(timeout=120) for number in range(6)]
json.dump([len({pid for pid, _ in sent}),
           [app.AsyncResult(id).get(timeout=120) for _, id in sent]], sys.stdout)
""")
    assert told == [6, [0, 2, 4, 6, 8, 10]]
    running.drain("CELERY.RESULTS")


def test_killed_workers_lose_nothing(running: Instance, tmp_path: Path) -> None:
    """acks_late: what a worker had in hand when it and all its processes were killed is done by the
    next one; so is a task that kills the process that has it. An error of omq's comes over from a
    process of the pool as what it is."""
    path = tmp_path / "began"
    os.mkfifo(tmp_path / "began.go")
    drive(running, f"for n in range(20): blocked.delay({str(path)!r}, n)")
    with worker(running, "threads") as first:
        until(lambda: len(lines(path)) == 2, running)
        first.kill()
        first.wait()
    (tmp_path / "began.go").unlink()
    (tmp_path / "began.go").touch()
    with worker(running, "prefork"):
        until(lambda: len(set(lines(tmp_path / "began.ended"))) == 20, running)
        path = tmp_path / "died"
        assert drive(running, f"json.dump(suicide.delay({str(path)!r}).get(timeout=120),"
                     " sys.stdout)") == "survived"
        assert "NO.SUCH.QUEUE" in drive(running, """
import omq
try:
    refused.delay().get(timeout=120)
except omq.UnknownQueue as error:
    json.dump(str(error), sys.stdout)
""")
    with running.connect() as connection:
        until(lambda: facts(connection, "CELERY")["active"] == 0, running)
        assert facts(connection, "CELERY")["ready"] == 0
    running.drain("CELERY.RESULTS")


def test_the_manager_dies_stops_and_forgets_a_queue_under_a_worker(
        running: Instance, tmp_path: Path) -> None:
    """Neither tasks nor acknowledgements are lost, a chord and a chain come to their ends; the same
    worker goes on with each manager, and declares a queue that was removed. The long form is
    tests/crash/daemons/test_task_storm.py."""
    path = tmp_path / "noted"
    ask = "json.dump(add.delay(1, 2).get(timeout=120), sys.stdout)"
    with worker(running, "threads"):
        drive(running, f"""
path = {str(path)!r}
for n in range(300):
    noted.apply_async((path, n), ignore_result=True)
chord([noted.si(path, n) for n in range(300, 310)], collected.s(path, 310)).apply_async()
chain(*(noted.si(path, n) for n in range(311, 315))).apply_async()
""")
        until(lambda: len(lines(path)) > 20, running)
        running.kill(MANAGER)
        running.start(MANAGER)
        running.ready()
        until(lambda: len(set(lines(path))) == 315, running)
        with running.connect() as connection:
            until(lambda: not facts(connection, "CELERY")["active"], running)
        running.stop(MANAGER)
        running.start(MANAGER)
        running.ready()
        assert drive(running, ask) == 3
        with running.connect() as connection:
            connection.queues.delete("CELERY", force=True)
        assert drive(running, ask) == 3
    running.drain("CELERY.RESULTS")


def test_what_a_worker_cannot_do_is_set_aside(running: Instance) -> None:
    """An unknown task, a message that is no task, one of a kind that is not accepted, one whose
    body is broken: neither lost nor in the way. What cannot be written is not sent; a program of
    another version, whose task has other arguments, or says more, hears of it."""
    drive(running, """
from kombu.exceptions import EncodeError
app.send_task('no.such.task', (1,))
add.apply_async((7, 7), serializer='pickle')
add.delay(4, 4)
for bad in (object(), lambda: 0):
    for kind in ('json', 'pickle'):
        try:
            add.apply_async((bad, Exception), serializer=kind)
        except EncodeError:
            continue
        assert (type(bad), kind) == (object, 'pickle')
""")
    with running.connect() as connection:
        rows = list(connection.browse("CELERY"))
        bodies = [row.body for row in rows]
        assert len(bodies) == 4  # and an object, which pickle can write
        head, text = bodies[2].split(b"\n", 1)
        newer = {**json.loads(head), "of-a-newer-version": {"x": [1]}}
        connection.put("CELERY", b"by hand", priority=9)
        connection.put("CELERY", head + b"\n" + text[:5])
        connection.put("CELERY", json.dumps(newer).encode() + b"\n" + text)
    with worker(running, "threads"):
        told = drive(running, """
json.dump([add.delay(1, 2).get(timeout=120), str(app.send_task(add.name, (1, 2, 3)).get(
    timeout=120, propagate=False)), str(unwritable.delay().get(timeout=120, propagate=False))],
    sys.stdout)
""")
        assert told[0] == 3 and "takes 2 positional arguments but 3" in told[1]
        assert "not JSON serializable" in told[2]
        with running.connect() as connection:
            until(lambda: facts(connection, "CELERY.REJECTED")["ready"] == 5, running)
            until(lambda: not facts(connection, "CELERY")["active"], running)
            assert not facts(connection, "CELERY")["ready"]
    aside = [message.body for message in running.drain("CELERY.REJECTED")]
    assert b"by hand" in aside and head + b"\n" + text[:5] in aside
    assert sum(b"no.such.task" in body for body in aside) == 1
    assert sum(b"application/x-python-serialize" in body for body in aside) == 2
    running.drain("CELERY.RESULTS")


def test_a_task_that_is_too_long_is_the_senders_error(omq_instance: Instance) -> None:
    """The limit is that of the queue in queues.conf, which kombu does not make anew."""
    omq_instance.queues("[*]\n\n[CELERY]\nmax_length = 1M\n")
    omq_instance.start()
    omq_instance.ready()
    told = drive(omq_instance, """
import omq
add.delay(1, 1)
try:
    add.delay("x" * (2 << 20), 1)
except omq.MessageTooLong as error:
    json.dump(str(error), sys.stdout)
""")
    assert told and "CELERY" in told
    assert len(omq_instance.drain("CELERY")) == 1
