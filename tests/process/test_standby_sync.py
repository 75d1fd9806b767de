"""Replies that wait for a standby: nothing that was acknowledged is lost with the primary's whole
spool, nobody is told too early by any way, and what protection there is is known."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base import events
from omq.base.errors import ManagerUnavailable
from omq.cli.watch.facts import gather
from omq.cli.watch.measures import OF_INSTANCE
from omq.format.index import Counter
from omq.services.daemon.options import Location
from omq.services.pool.live_index import LiveIndex
from tests.process import instance as world
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import WAIT_S
from tests.process.test_standby import OMQ, Pair, client
from tests.waiting import until


class SyncPair(Pair):
    """The queue manager waits for one standby, if not told another number."""

    def waits(self, **more: object) -> None:
        self.primary.settings()
        with open(self.primary.conf / "omq.conf", "a", encoding="utf-8") as conf:
            conf.write("\n[standby]\n" + "".join(
                f"{key} = {value}\n" for key, value in ({"standby_sync": 1} | more).items()))

    def protection(self) -> str:
        try:
            found: dict[str, Any] = json.loads(self.primary.paths.protection.read_text())
        except FileNotFoundError:
            return ""
        return str(found["state"])

    def reaches(self, state: str) -> None:
        until(lambda: self.protection() == state, self.log.read_text)

    def counter(self, which: Counter) -> int:
        index = LiveIndex(self.primary.paths)
        try:
            return index.counter(which)
        finally:
            index.close()

    def clients(self) -> int:
        """Of the manager that runs, if one does."""
        try:
            return self.counter(Counter.CLIENTS)
        except ManagerUnavailable:
            return 0


class Putting:
    """A client that puts one message after the other, in a thread; `acked`: what it was told."""

    def __init__(self, pair: Pair, name: bytes, count: int = 1 << 30, timeout_s: float = 5
                 ) -> None:
        self.acked: list[bytes] = []
        self._pair, self._name, self._count = pair, name, count
        self._stop, self._timeout_s = threading.Event(), timeout_s
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self._pair.primary.connect(timeout_s=self._timeout_s) as c:
                for i in range(self._count):
                    if self._stop.is_set():
                        return
                    body = b"%s %d" % (self._name, i)
                    c.put("A", body)
                    self.acked.append(body)
        except Exception:
            return  # the primary is gone: what was told was told

    def give_up(self) -> None:
        """Whatever it waits for."""
        self._stop.set()

    def end(self) -> None:
        self._stop.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()


@pytest.fixture
def pair(omq_instance: world.Instance, tmp_path: Path) -> Iterator[SyncPair]:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    made = SyncPair(omq_instance, tmp_path / "standby")
    made.make()
    omq_instance.stop()
    made.log.touch()
    made.waits()
    omq_instance.start(MANAGER, WRITER)
    yield made
    made.end()
    omq_instance.settings()
    if omq_instance.children[MANAGER].running:
        omq_instance.kill(MANAGER)


def frozen(pair: SyncPair, follower: subprocess.Popen[bytes]) -> Putting:
    """A put that is durable here and that nobody was told of: its standby is stopped."""
    follower.send_signal(signal.SIGSTOP)
    before = pair.counter(Counter.PUTS)
    putting = Putting(pair, b"frozen", 1, WAIT_S)
    until(lambda: pair.counter(Counter.PUTS) > before, pair.log.read_text)
    return putting


def test_a_reply_waits_for_the_standbys_disk(pair: SyncPair) -> None:
    follower = pair.follow()
    pair.reaches("synced")
    with client(pair) as c:
        c.put("A", b"first")
    putting = frozen(pair, follower)
    with client(pair):
        pass  # the group goes on: others come and go
    assert not putting.acked
    follower.send_signal(signal.SIGCONT)
    putting.end()
    assert putting.acked == [b"frozen 0"]
    found = [each["state"] for each in pair.primary.events(events.PROTECTION_CHANGED.number)]
    assert found[0] == "synced"


@pytest.mark.parametrize("stopped", [False, True])
def test_what_was_acknowledged_outlives_the_primarys_spool(pair: SyncPair, *, stopped: bool
                                                           ) -> None:
    """With a standby that was stopped before: what is lost then was told to nobody."""
    follower = pair.follow()
    pair.reaches("synced")
    before = pair.counter(Counter.PUTS)
    putting = [Putting(pair, b"client %d" % i) for i in range(4)]
    until(lambda: all(len(each.acked) > 20 for each in putting), pair.log.read_text)
    if stopped:
        follower.send_signal(signal.SIGSTOP)
        until(lambda: pair.counter(Counter.PUTS) - before - sum(
            len(each.acked) for each in putting) >= len(putting), pair.log.read_text)
        # What waits now may have been on the standby's disk before it was stopped; this is not.
        putting.append(Putting(pair, b"late"))
        until(lambda: pair.counter(Counter.PUTS) - before - sum(
            len(each.acked) for each in putting) >= len(putting), pair.log.read_text)
    puts = pair.counter(Counter.PUTS) - before
    pair.primary.kill(MANAGER, WRITER)
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    for each in putting:
        each.end()
    acked = [body for each in putting for body in each.acked]
    follower.kill()
    follower.wait()
    done = pair.run("promote")
    assert done.returncode == 0, done.stderr
    pair.primary.settings()
    found = pair.bodies()
    assert set(acked) <= set(found) and len(found) == len(set(found))
    assert not stopped or len(found) < puts, "the control: the standby's disk had less"
    pair.primary.root.with_name("gone").rename(pair.primary.root)


PUT = """
import sys
import omq
with omq.connect(sys.argv[1], name="asks", timeout_s=100) as c:
    print("connected", flush=True)
    c.put("A", b"in doubt")
    print("acknowledged", flush=True)
"""


def test_a_client_that_asks_the_next_manager_is_not_told_too_early(pair: SyncPair) -> None:
    """The journal here has the put, the standby has not: nobody is told before it has."""
    follower = pair.follow()
    pair.reaches("synced")
    follower.send_signal(signal.SIGSTOP)
    before = pair.counter(Counter.PUTS)
    putting = subprocess.Popen([sys.executable, "-c", PUT, str(pair.primary.root)],
                               stdout=subprocess.PIPE, text=True)
    pair.children.append(putting)  # type: ignore[arg-type]
    assert putting.stdout is not None and putting.stdout.readline() == "connected\n"
    until(lambda: pair.counter(Counter.PUTS) > before, pair.log.read_text)
    clients = pair.clients()
    pair.primary.kill(MANAGER)
    pair.primary.start(MANAGER)
    until(lambda: pair.clients() >= clients, pair.primary.said)
    with client(pair):  # who comes after it has been answered
        pass
    assert not select.select([putting.stdout], [], [], 2)[0], "it was told"
    follower.send_signal(signal.SIGCONT)
    assert putting.stdout.readline() == "acknowledged\n"
    assert putting.wait(WAIT_S) == 0
    putting.stdout.close()


def test_it_goes_on_alone_and_comes_back(pair: SyncPair) -> None:
    pair.primary.kill(MANAGER)
    pair.waits(standby_lost="go_on", standby_lost_s=1)
    pair.primary.start(MANAGER)
    with client(pair) as c:
        c.put("A", b"alone")
        assert pair.protection() == "alone"
        said = subprocess.run([*OMQ, "standby", "status", "--json", "--spool",
                               str(pair.primary.root), "--conf", str(pair.primary.conf)],
                              capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert json.loads(said.stdout)["protection"]["state"] == "alone" and said.returncode == 1
        facts = gather(Location(None, pair.primary.paths, pair.primary.conf))
        assert OF_INSTANCE["unprotected"](facts) == 1
        pair.follow()
        pair.reaches("synced")
        c.put("A", b"on both")
    log = subprocess.run([*OMQ[:-1], "omqlog", "--operator", "--spool", str(pair.primary.root),
                          "--conf", str(pair.primary.conf)], capture_output=True, text=True,
                         timeout=WAIT_S, check=False)
    assert "alone: no standby of 1" in log.stdout + log.stderr, "the journal says it"


def test_two_standbys_are_waited_for(pair: SyncPair) -> None:
    """One that has it is not enough."""
    second = SyncPair(pair.primary, pair.root.with_name("second"))
    pair.primary.ready()  # a copy is made of what is served
    second.make("c")
    second.log.touch()
    pair.primary.kill(MANAGER)
    pair.waits(standby_sync=2)
    pair.primary.start(MANAGER)
    pair.follow()
    follower = second.follow()
    try:
        pair.reaches("synced")
        with client(pair) as c:
            c.put("A", b"on three disks")
        putting = frozen(pair, follower)
        durable = pair.counter(Counter.DURABLE_LSN)
        until(lambda: pair.status()["synced_lsn"] >= durable, pair.log.read_text)
        with client(pair):
            pass
        assert not putting.acked and pair.protection() == "synced"
        follower.send_signal(signal.SIGCONT)
        putting.end()
        assert putting.acked == [b"frozen 0"]
        follower.kill()
        pair.reaches("waiting")
    finally:
        second.end()


def test_a_standby_has_a_block_before_the_primarys_disk(pair: SyncPair) -> None:
    """The primary stands still between write and sync: the standby has the block, nobody was told.
    It is lost then, and the promoted standby has what it was asked for last, once."""
    pair.primary.kill(MANAGER)
    fault = "journal.before_sync:stop:30"
    pair.primary.start(MANAGER, fault=fault)
    follower = pair.follow()
    pair.reaches("synced")
    putting = Putting(pair, b"put")
    until(lambda: pair.primary.fault_log.exists() and fault in pair.primary.fault_log.read_text(),
          pair.log.read_text)
    durable = pair.counter(Counter.DURABLE_LSN)
    until(lambda: pair.status()["synced_lsn"] > durable, pair.log.read_text)
    assert pair.counter(Counter.DURABLE_LSN) == durable
    acked = list(putting.acked)
    pair.primary.kill(MANAGER)
    putting.end()
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    follower.kill()
    follower.wait()
    assert pair.run("promote").returncode == 0
    assert acked == putting.acked and acked
    pair.primary.settings()
    assert sorted(pair.bodies()) == sorted([*acked, b"put %d" % len(acked)])
    pair.primary.root.with_name("gone").rename(pair.primary.root)


def test_senders_receivers_and_pool_writer_die_and_nobody_is_told_too_early(pair: SyncPair) -> None:
    """kill -9 of each, by turns, under load: clients wait, and go on; then the primary is lost."""
    follower = pair.follow()
    pair.reaches("synced")
    putting = [Putting(pair, b"client %d" % i, timeout_s=WAIT_S) for i in range(3)]

    def goes_on() -> None:
        before = [len(each.acked) for each in putting]
        until(lambda: all(len(each.acked) > count + 5
                          for each, count in zip(putting, before, strict=True)),
              pair.log.read_text)

    for turn in range(2):
        goes_on()
        (sender,) = children_of(follower.pid)
        os.kill(sender, signal.SIGKILL)
        goes_on()
        follower.kill()
        follower.wait()
        follower = pair.follow()
        goes_on()
        if not turn:
            pair.primary.kill(WRITER)
    for each in putting:
        each.end()
    acked = [body for each in putting for body in each.acked]
    pair.primary.kill(MANAGER)
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    follower.kill()
    follower.wait()
    done = pair.run("promote")
    assert done.returncode == 0, done.stderr
    pair.primary.settings()
    assert sorted(pair.bodies()) == sorted(acked), "nothing lost, nothing doubled"
    pair.primary.root.with_name("gone").rename(pair.primary.root)


def children_of(pid: int) -> list[int]:
    """Of a process, by /proc."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(each) for each in found]
