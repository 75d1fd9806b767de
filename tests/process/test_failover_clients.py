"""A failover under clients at work on other hosts: one over AMQP whose URL names both members, and
a channel whose `host` does. Members have an address of loopback each."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import omq
from tests.process.amqp_world import SERVER, needs_proton
from tests.process.channel_world import AUTHORITY, QUEUES, SENDER, Side, sides
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import WAIT_S
from tests.process.test_standby import OMQ, Pair
from tests.waiting import until

needs_proton()

from omq.base.errors import BadArgument, OmqError, RemoteLost, TimedOut  # noqa: E402
from omq.ipc.client.remote.url import hosts  # noqa: E402
from omq.tasks.schedules import Schedules  # noqa: E402

FIRST, SECOND = "127.0.0.2", "127.0.0.3"
PLANNER = "schedule.server"


class Failover:
    """EAST is a primary at FIRST with a standby, which serves at SECOND when it is promoted; WEST
    has a channel to both."""

    def __init__(self, west: Side, east: Side) -> None:
        self.west, self.east = west, east
        with socket.create_server((FIRST, 0)) as line:
            self.port = line.getsockname()[1]
        self.pair = Pair(east, east.root.with_name("standby"))
        self.serving: list[subprocess.Popen[bytes]] = []
        self.configured(east.conf, FIRST)
        east.start(SERVER)
        east.await_port()
        self.pair.make()
        self.follower = self.pair.follow()

    def configured(self, conf: Path, host: str) -> None:
        text = (self.east.conf / "omq.conf").read_text().partition("[amqp]")[0]
        (conf / "omq.conf").write_text(
            text.partition("[standby]")[0] + "\n[standby]\nstandby_sync = 1\nstandby_lost = go_on\n"
            f"standby_lost_s = 1\n[amqp]\namqp_anonymous_user = nobody\namqp_listen_host = {host}\n"
            f"amqp_listen_port = {self.port}\n[channel]\nmanager_name = EAST\n")

    @property
    def url(self) -> str:
        return f"amqp://{FIRST}:{self.port},{SECOND}:{self.port}/"

    def fail_over(self, *more: str) -> None:
        """The primary and its daemons (`more`: these, too) are killed, and its spool is gone."""
        self.follower.terminate()
        self.east.kill(*more, SERVER, MANAGER, WRITER)
        assert self.follower.wait(WAIT_S) == 0
        self.east.root.rename(self.east.root.with_name("gone"))
        done = self.pair.run("promote")
        assert done.returncode == 0, done.stderr
        conf = self.pair.root.with_name("conf-second")
        conf.mkdir()
        (conf / "queues.conf").write_text(QUEUES.replace("[A]", "[A]\ndedupe_s = 3600"))
        (conf / "authority.conf").write_text(AUTHORITY)
        self.configured(conf, SECOND)
        for program in (MANAGER, WRITER, SERVER, *more):
            with open(self.pair.log, "ab") as log:
                self.serving.append(subprocess.Popen(
                    [*OMQ[:-1], program, "--spool", str(self.pair.root), "--conf", str(conf)],
                    stderr=log, stdout=log))
            if program == MANAGER:
                until(self._serves, self.pair.log.read_text)

    def _serves(self) -> bool:
        with suppress(OmqError):
            omq.connect(self.pair.root, name="look", timeout_s=0.2).close()
            return True
        return False

    def found(self, count: int) -> list[bytes]:
        """What the promoted member has on A, when it has so many."""
        out: list[bytes] = []
        with omq.connect(self.pair.root, name="judge", timeout_s=WAIT_S) as c:
            until(lambda: c.queues.show("A").messages >= count, self.pair.log.read_text)
            with c.reader("A", batch=100) as reader:
                while batch := reader.next(timeout_s=0):
                    for message in batch:
                        assert message.body is not None
                        out.append(message.body)
                        message.done()
        return out

    def end(self) -> None:
        for child in reversed(self.serving):  # in order: nothing of it is left
            child.terminate()
            assert child.wait(WAIT_S) == 0, self.pair.log.read_text()
        self.pair.end()
        gone = self.east.root.with_name("gone")
        if gone.exists():
            gone.rename(self.east.root)
            self.east.start(MANAGER)  # it clears what the one that was killed has left
            self.east.ready()
            self.east.stop(MANAGER)


@pytest.fixture
def failover(tmp_path: Path) -> Iterator[Failover]:
    with sides(tmp_path, "WEST", "EAST") as (west, east):
        (east.conf / "queues.conf").write_text(QUEUES.replace("[A]", "[A]\ndedupe_s = 3600"))
        east.stop(WRITER, MANAGER)
        made: Failover | None = None
        try:
            east.start(MANAGER, WRITER)
            made = Failover(west, east)
            # The manager waits for the standby from now on; its keys are those of a start.
            east.stop(MANAGER, WRITER)
            east.start(MANAGER, WRITER)
            east.ready()
            until(lambda: '"state": "synced"' in east.paths.protection.read_text(),
                  made.pair.log.read_text)
            yield made
        finally:
            if made is not None:
                made.end()


class Client:
    """Puts one after the other, each under a key of its own, at whichever member answers: what was
    not answered is put again. `acked`: what was."""

    def __init__(self, url: str) -> None:
        self.acked: list[bytes] = []
        self.lost = 0
        self._url, self._stop = url, threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        i = 0
        while not self._stop.is_set():
            try:
                with omq.connect(self._url, name="far", timeout_s=10) as c:
                    while not self._stop.is_set():
                        c.put("A", b"%d" % i, unique_key=f"k{i}")
                        self.acked.append(b"%d" % i)
                        i += 1
            except (RemoteLost, TimedOut):
                self.lost += 1
                self._stop.wait(0.05)

    def more(self, count: int) -> None:
        wanted = len(self.acked) + count
        until(lambda: len(self.acked) >= wanted, "no answers")

    def end(self) -> None:
        self._stop.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()


def test_a_client_over_amqp_goes_on_at_the_promoted_member(failover: Failover) -> None:
    client = Client(failover.url)
    client.more(20)
    failover.fail_over()
    client.more(20)
    client.end()
    assert client.lost, "it never lost its connection"
    assert sorted(failover.found(len(client.acked))) == sorted(client.acked)


def test_a_channel_goes_on_at_the_promoted_member_exactly_once(failover: Failover) -> None:
    west = failover.west
    west.channel("EAST", failover.port, host=f"{FIRST},{SECOND}")
    west.remote("FAR", "EAST", "A")
    west.put("FAR", 0, 100)
    west.start(SENDER)
    failover.east.await_depth("A", 50)
    west.put("FAR", 100, 100)
    failover.fail_over()
    west.put("FAR", 200, 100)
    assert sorted(map(int, failover.found(300))) == list(range(300))
    west.until(lambda: not west.in_doubt() and not west.depth("EAST"))


def test_each_planned_time_fires_once_over_a_failover(failover: Failover) -> None:
    """Two hosts, each with a schedule.server of its own; the schedule goes over with the spool."""
    failover.east.start(PLANNER)
    with failover.east.connect() as c:
        Schedules(c).define("TICK", "B", "every 1 s", catch_up="all 1000")
    failover.east.await_depth("B", 3)
    failover.fail_over(PLANNER)
    with omq.connect(failover.pair.root, name="judge", timeout_s=WAIT_S) as c:
        before = c.queues.show("B").messages
        until(lambda: c.queues.show("B").messages >= before + 3, failover.pair.log.read_text)
        times = [datetime.fromisoformat(str(row.properties["omq.planned"]))
                 for row in c.browse("B")]
    assert before >= 3 and len(times) >= 6
    assert {after - earlier for earlier, after in pairwise(times)} == {timedelta(seconds=1)}


def test_the_first_host_that_answers_is_taken(failover: Failover) -> None:
    """The first is silent: it accepts and says nothing."""
    with socket.create_server((SECOND, failover.port)):
        url = f"amqp://{SECOND}:{failover.port},{FIRST}:{failover.port}/"
        with omq.connect(url, name="far", timeout_s=4) as c:
            c.put("B", b"1")
    assert failover.east.depth("B") == 1


def test_nobody_answers(failover: Failover) -> None:
    failover.east.stop(SERVER)
    with pytest.raises(RemoteLost, match=SECOND):
        omq.connect(failover.url, name="far", timeout_s=4)
    failover.east.start(SERVER)
    failover.east.await_port()


def test_a_command_takes_them_too(failover: Failover) -> None:
    url = f"amqp://{SECOND}:{failover.port},{FIRST}:{failover.port}/"
    done = subprocess.run([*OMQ[:-1], "omsend", "B", "--url", url], input=b"body",
                          capture_output=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert [message.body for message in failover.east.drain("B")] == [b"body"]


def test_hosts_of_a_url() -> None:
    found = hosts("amqps://u:p@east,west:99,[::1]:7/")
    assert [(each.host, each.port, each.user, each.password) for each in found] == [
        ("east", 5671, "u", "p"), ("west", 99, "u", "p"), ("::1", 7, "u", "p")]
    for wrong in ("amqp://a,,b/", "amqp://a,b:0x/", "amqp://" + ",".join("h" * 17) + "/",
                  "amqp://,/"):
        with pytest.raises(BadArgument):
            hosts(wrong)
    with pytest.raises(BadArgument, match="others could read the password"):
        hosts("amqp://u:p@127.0.0.1,east/")
