"""Periodic tasks of Celery and dramatiq whose store is the schedules of an instance: each planned
time is one task, with no beat that runs; what changes, and what cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedule

from omq.base.errors import BadSchedule
from omq.tasks import envelope
from omq.tasks.celery_beat import OmqScheduler, when_of
from omq.tasks.dramatiq_broker import OmqBroker
from omq.tasks.dramatiq_periodic import OmqPeriodic, adopt
from omq.tasks.schedules import Schedules
from omq.testing.instance import LiveInstance
from tests.process.ipc_space import ipc_space
from tests.process.processes import WAIT_S
from tests.process.test_schedules import settled
from tests.waiting import until

SERVER = "schedule.server"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveInstance]:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/queues.conf").write_text("[*]\n\n[CELERY]\n\n[DEFAULT]\n\n[MAILS]\n")
    (tmp_path / "conf/schedules.conf").write_text("")
    (tmp_path / "made").mkdir()
    with ipc_space() as space:
        with LiveInstance(tmp_path / "made", tmp_path / "conf") as made:
            yield made
        assert not space.own or not space.objects()


def application(live: LiveInstance, **entries: Any) -> Celery:
    app = Celery("shop", broker=f"omq://{live.spool}", set_as_current=False)
    app.conf.beat_schedule = entries

    @app.task(name="add", shared=False)
    def add(x: int, y: int = 0) -> int:
        return x + y

    return app


def beat(app: Celery) -> OmqScheduler:
    return OmqScheduler(app, lazy=False)


def entry(when: Any = 10.0, **said: Any) -> dict[str, Any]:
    return {"task": "add", "schedule": when, "args": (1,), "kwargs": {"y": 2}, **said}


def after(live: LiveInstance, queue: str, seconds: float, count: int = 1) -> list[Any]:
    """What comes to a queue when so much time has passed, `count` messages, taken off."""
    live.pass_time(seconds)
    found: list[Any] = []
    with live.connect() as c, c.reader(queue) as reader:
        while len(found) < count:
            some = reader.next(timeout_s=WAIT_S)
            assert some, found
            for message in some:
                found.append(Taken(message.body, dict(message.properties)))
                message.done()
    return found


@dataclass(frozen=True)
class Taken:
    body: bytes
    properties: dict[str, Any]


def listed(live: LiveInstance) -> list[Any]:
    with live.connect() as c:
        return Schedules(c).list()


@pytest.mark.parametrize("fault", ["", "server", "manager", "power"])
def test_each_planned_time_is_one_task(live: LiveInstance, fault: str) -> None:
    app = application(live, **{"add-often": entry()})
    beat(app).close()
    server = live.run(SERVER)
    found = after(live, "CELERY", 10) + after(live, "CELERY", 10)
    if fault in ("server", "power"):
        server.kill()
    if fault == "manager":
        live.kill_manager()
    if fault == "power":
        live.lose_unsynced()
    if fault in ("server", "power"):
        server = live.run(SERVER)
    found += after(live, "CELERY", 10)
    settled(live, server)
    assert live.drain("CELERY") == []
    raw = [envelope.decode(each.body, "CELERY", "") for each in found]
    ids = {each["headers"]["id"] for each in raw}
    assert len(ids) == 3 and ids == {each["properties"]["correlation_id"] for each in raw}
    assert ids == {each["headers"]["root_id"] for each in raw}
    assert json.loads(raw[0]["body"])[:2] == [[1], {"y": 2}]
    assert raw[0]["headers"]["task"] == "add"
    assert {each.properties["id"] for each in found} == ids


def test_the_command_beat_runs_and_ends(live: LiveInstance, tmp_path: Path) -> None:
    """`celery beat` with this scheduler, as its users start it: it writes the schedules down, and
    sends nothing; they go on when it has ended, and are as they were when it comes back."""
    (tmp_path / "shop.py").write_text(
        "from celery import Celery\n"
        f"app = Celery('shop', broker={f'omq://{live.spool}'!r})\n"
        "app.conf.beat_schedule = {'often': {'task': 'add', 'schedule': 3600.0, 'args': (1,)}}\n")
    server = live.run(SERVER)
    found: list[Any] = []
    for _ in range(2):
        beat = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "shop", "beat", "--scheduler",
             "omq.tasks.celery_beat:OmqScheduler", "--pidfile=", "-l", "INFO"], cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert beat.stdout is not None
            for line in beat.stdout:
                if "beat: Starting" in line:
                    break
            until(lambda: [each.name for each in listed(live)] == ["OFTEN"],
                  lambda: str(listed(live)))
            found += after(live, "CELERY", 3600)
        finally:
            beat.terminate()
            said = beat.communicate(timeout=WAIT_S)[0]
        assert beat.returncode == 0, said
        found += after(live, "CELERY", 3600)
    settled(live, server)
    assert live.drain("CELERY") == []
    raw = [envelope.decode(each.body, "CELERY", "") for each in found]
    assert len({each["headers"]["id"] for each in raw}) == 4
    assert {each["headers"]["task"] for each in raw} == {"add"}


def test_what_has_not_changed_keeps_its_planned_times(live: LiveInstance) -> None:
    beat(application(live, one=entry(), two=entry(60.0)))
    first = {each.name: each for each in listed(live)}
    beat(application(live, one=entry(), two=entry(120.0)))
    second = {each.name: each for each in listed(live)}
    assert second["ONE"] == first["ONE"]
    assert second["TWO"].generation == 2 and second["TWO"].when == "every 120 s"


def test_what_is_not_in_the_configuration_goes_and_others_stay(live: LiveInstance) -> None:
    with live.connect() as c:
        Schedules(c).define("OTHER", "MAILS", "every 1 h")
    scheduler = beat(application(live, one=entry(), two=entry()))
    del scheduler.schedule["two"]
    scheduler.sync()
    assert [each.name for each in listed(live)] == ["ONE", "OTHER"]
    assert scheduler.tick() == scheduler.max_interval


def test_options_of_an_entry(live: LiveInstance) -> None:
    beat(application(live, one=entry(crontab(minute="*/5", hour="3"), options={
        "queue": "mails", "priority": 7, "expires": 60})))
    (found,) = listed(live)
    assert (found.queue, found.priority, found.expiry_s) == ("MAILS", 7, 60.0)
    assert found.when == "*/5 3 * * *"


@pytest.mark.parametrize(("said", "when"), [
    (crontab(), "* * * * *"), (crontab(minute=0, hour="1,2"), "0 1,2 * * *"),
    (crontab(minute={5, 1}), "1,5 * * * *"), (crontab(day_of_week="mon-fri"), "* * * * mon-fri"),
    (schedule(timedelta(hours=1)), "every 3600 s")])
def test_words_of_celery(said: Any, when: str) -> None:
    assert when_of("x", said) == when


@pytest.mark.parametrize("said", [
    crontab(day_of_month=1, day_of_week=1), schedule(timedelta(seconds=0.5)),
    schedule(timedelta(seconds=1.5)), BaseSchedule()])
def test_what_omq_cannot_do(said: Any) -> None:
    with pytest.raises(BadSchedule):
        when_of("x", said)


@pytest.mark.parametrize("wrong", [
    entry(options={"countdown": 5}), entry(options={"expires": "soon"}),
    entry(options={"serializer": "pickle"})])
def test_a_wrong_entry_changes_nothing(live: LiveInstance, wrong: dict[str, Any]) -> None:
    beat(application(live, good=entry()))
    before = listed(live)
    with pytest.raises(BadSchedule):
        beat(application(live, better=entry(), wrong=wrong))
    assert listed(live) == before


@contextmanager
def actors(live: LiveInstance, **options: Any) -> Iterator[OmqBroker]:
    broker = OmqBroker(f"omq://{live.spool}")
    broker.add_middleware(OmqPeriodic("shop"))

    @dramatiq.actor(broker=broker, queue_name="mails", **options)
    def remind() -> None:
        """Nothing."""

    yield broker
    broker.close()


def test_an_actor_at_planned_times(live: LiveInstance) -> None:
    with actors(live, periodic="every 10 s", periodic_catch_up="all 5") as broker:
        worker = dramatiq.Worker(broker, worker_threads=1)
        broker.emit_before("worker_boot", worker)
    live.run(SERVER)
    found = after(live, "MAILS", 30, 3)
    messages = [dramatiq.Message.decode(each.body) for each in found]
    assert len({each.message_id for each in messages}) == len(messages) == 3
    times = [each.message_timestamp for each in messages]
    assert [later - earlier for earlier, later in pairwise(times)] == [10_000, 10_000]
    assert {each.actor_name for each in messages} == {"remind"}


def adopted(live: LiveInstance, **options: Any) -> list[Any]:
    """The schedules behind it."""
    with actors(live, **options) as broker:
        adopt(broker, "shop")
    return listed(live)


def test_actors_change_and_go(live: LiveInstance) -> None:
    first = adopted(live, periodic="every 10 s")
    assert len(first) == 1 and adopted(live, periodic="every 10 s") == first
    assert [each.when for each in adopted(live, periodic="every 20 s")] == ["every 20 s"]
    assert adopted(live) == []


@pytest.mark.parametrize("options", [
    {"periodic": "30 2 30 2 *"}, {"periodic": "now and then"}, {"periodic_zone": "UTC"},
    {"periodic": "every 5 min", "periodic_zone": "Mars/Olympus"},
    {"periodic": "every 5 min", "periodic_overlap": "perhaps"}])
def test_a_wrong_actor(live: LiveInstance, options: dict[str, Any]) -> None:
    with pytest.raises(BadSchedule):
        adopted(live, **options)
    assert listed(live) == []


def test_another_broker_has_no_place_for_schedules() -> None:
    from dramatiq.brokers.stub import StubBroker
    with pytest.raises(BadSchedule):
        adopt(StubBroker())
