"""Celery by its default transport, amqp://, unchanged: its broker is amqp.server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.process.amqp_world import PASSWORD, SERVER, AmqpWorld, amqp_world, needs_proton
from tests.process.instance import MANAGER
from tests.process.task_workers import drive as drive_with
from tests.process.task_workers import lines, running_worker, said, until

needs_proton()
for needed in ("pamqp", "celery", "amqp"):
    pytest.importorskip(needed, reason="the extras `amqp`, `celery`")

APP = "tests.process.amqp091_celery_app"
AUTHORITY = "[*]\nuser:daemon = put get browse admin\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path) as made:
        (made.conf / "authority.conf").write_text(AUTHORITY)
        made.stop(SERVER, MANAGER)
        made.start(MANAGER)
        made.ready()
        made.amqp(amqp_users=made.users("daemon"), amqp_anonymous_user="")
        password = PASSWORD.replace(" ", "%20")
        monkeypatch.setenv("OMQ_TEST_AMQP",
                           f"amqp://daemon:{password}@127.0.0.1:{made.await_port()}//")
        yield made


def worker(world: AmqpWorld, pool: str) -> AbstractContextManager[Popen[bytes]]:
    return running_worker(world, "celery", "-A", APP, "worker", "-P", pool, "-c", "2", "-n",
                          "one@test", "-E")


def drive(world: AmqpWorld, code: str) -> Any:
    return drive_with(world, (f"from {APP} import *", f"from {APP} import app, add, again, suicide",
                              "from celery import chain, group"), code)


def test_what_a_program_of_celery_does(world: AmqpWorld, tmp_path: Path) -> None:
    """Results, retries with their pause, chains, groups, remote control, revoke, events, purge."""
    with worker(world, "threads"):
        told = drive(world, f"""
one = app.control.inspect(["one@test"], timeout=120)
told = {{
    "add": add.delay(2, 3).get(timeout=120),
    "again": again.delay({str(tmp_path / 'retried')!r}).get(timeout=120),
    "eta": add.apply_async((1, 1), countdown=0.2).get(timeout=120),
    "chain": chain(add.s(1, 2), add.s(3))().get(timeout=120),
    "group": group(add.s(n, n) for n in range(5))().get(timeout=120),
    "ping": one.ping(),
}}
app.control.revoke("no-more")
told["revoked"] = one.revoked()

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
    receiver.capture(timeout=120)
json.dump(told, sys.stdout)
""")
    assert told == {
        "add": 5, "again": 2, "eta": 2, "chain": 6, "group": [0, 2, 4, 6, 8],
        "ping": {"one@test": {"ok": "pong"}}, "revoked": {"one@test": ["no-more"]}, "event": True}
    assert lines(tmp_path / "retried") == ["0", "1", "2"]
    assert drive(world, """
for _ in range(3):
    add.delay(1, 1)
json.dump(app.control.purge(), sys.stdout)
""") == 3
    with world.connect() as native:
        until(lambda: not [each.name for each in native.queues.list()
                           if each.kind == "temporary"], world)
        assert native.queues.show("CELERY").messages == 0


def test_a_task_whose_worker_dies_comes_again(world: AmqpWorld, tmp_path: Path) -> None:
    with worker(world, "prefork"):
        assert drive(world, f"""
json.dump(suicide.delay({str(tmp_path / "killed")!r}).get(timeout=120), sys.stdout)
""") == "survived", said(world)
    assert world.left("CELERY") == []


def test_nothing_is_lost_by_a_death_of_the_manager_and_the_server(world: AmqpWorld) -> None:
    """Their queue and their binding are there again; the worker connects by itself."""
    drive(world, "sent = [add.delay(n, n) for n in range(5)]")
    world.kill(MANAGER, SERVER)
    port = world.paths.run / "amqp.port"
    before = port.read_text().split()[1]
    world.configure(amqp_users=world.conf / "amqp.users", amqp_anonymous_user="",
                    amqp_listen_port=before)
    world.start(MANAGER)
    world.ready()
    world.start(SERVER)
    world.await_port()
    with world.connect() as native:
        assert native.queues.show("CELERY").messages == 5
    with worker(world, "threads"):
        assert drive(world, "json.dump(add.delay(20, 1).get(timeout=120), sys.stdout)") == 21
        with world.connect() as native:
            until(lambda: native.queues.show("CELERY").messages == 0, world)
