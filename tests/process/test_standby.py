"""A real primary and its standby: made, followed, killed at any moment, promoted, and judged by
what clients know."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import omq
from omq.base import events
from omq.base.errors import Exit, ManagerUnavailable, NotPrimary
from omq.base.paths import SpoolPaths
from omq.cli import launch
from omq.cli.watch.facts import gather
from omq.services.daemon.options import Location
from omq.storage import poolctrl
from omq.storage.instance_file import LEAP, Role
from omq.storage.spool import lock, open_spool
from tests.process import instance as world
from tests.process import operator_state as state
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import WAIT_S, start_program
from tests.waiting import until

OMQ = [sys.executable, "-m", "omq.cli.launch", "omq"]


class Pair:
    """An instance, and a standby of it in another directory."""

    def __init__(self, primary: world.Instance, root: Path) -> None:
        self.primary, self.root = primary, root
        self.log = root.with_name("standby.log")
        self.children: list[subprocess.Popen[bytes]] = []

    @property
    def send(self) -> list[str]:
        return [*OMQ, "standby", "send", "--spool", str(self.primary.root),
                "--conf", str(self.primary.conf)]

    @property
    def fired(self) -> Path:
        """The faults that have acted."""
        return self.root.with_name("fired")

    def run(self, *words: str, fault: str = "") -> subprocess.CompletedProcess[str]:
        """A command on the standby."""
        own = words.index("--") if "--" in words else len(words)
        place = ["--spool", str(self.root), "--conf", str(self.primary.conf)]
        more = {"OMQ_FAULT": fault, "OMQ_FAULT_LOG": str(self.fired)} if fault else {}
        return subprocess.run([*OMQ, "standby", *words[:own], *place, *words[own:]],
                              capture_output=True, text=True, timeout=WAIT_S, check=False,
                              env=dict(os.environ) | more)

    def make(self, member: str = "b") -> None:
        done = self.run("init", "--member", member, "--", *self.send)
        assert done.returncode == 0, done.stderr

    def follow(self, fault: str = "") -> subprocess.Popen[bytes]:
        """`fault`: where it, or its sender, dies (OMQ_FAULT)."""
        more = {"OMQ_FAULT": fault, "OMQ_FAULT_LOG": str(self.fired)} if fault else {}
        with open(self.log, "ab") as log:
            child = subprocess.Popen([*OMQ, "standby", "follow", "--spool", str(self.root),
                                      "--conf", str(self.primary.conf)], stderr=log,
                                     env=dict(os.environ) | more)
        self.children.append(child)
        return child

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "--json").stdout)
        return found

    def durable(self) -> int:
        """What the primary has acknowledged so far."""
        from omq.format.index import Counter
        from omq.services.pool.live_index import LiveIndex

        index = LiveIndex(self.primary.paths)
        try:
            return index.counter(Counter.DURABLE_LSN)
        finally:
            index.close()

    def caught_up(self) -> None:
        """Until the standby has that."""
        wanted = self.durable()

        def there() -> bool:
            try:
                found = json.loads((self.root / "run/standby.json").read_text())
            except (OSError, ValueError):
                return False
            return int(found["synced_lsn"]) >= wanted

        until(there, lambda: self.log.read_text() if self.log.exists() else "")

    def bodies(self, queue: str = "A") -> list[bytes]:
        """What the promoted standby serves."""
        child = start_program(MANAGER, ["--spool", str(self.root), "--conf",
                                        str(self.primary.conf)], output=self.log)
        try:
            with omq.connect(self.root, name="judge", timeout_s=WAIT_S) as c:
                with c.reader(queue, batch=100) as reader:
                    out = []
                    while batch := reader.next(timeout_s=0):
                        for message in batch:
                            assert message.body is not None
                            out.append(message.body)
                            message.done()
                self.new = int(str(c.put(queue, b"new"))[32:], 16)
            return out
        finally:
            child.signal(signal.SIGTERM)
            assert child.wait() == 0, self.log.read_text()

    def end(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()


@pytest.fixture
def pair(omq_instance: world.Instance, tmp_path: Path) -> Iterator[Pair]:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    made = Pair(omq_instance, tmp_path / "standby")
    yield made
    made.end()


@contextmanager
def client(pair: Pair) -> Iterator[omq.Client]:
    with pair.primary.connect() as c:
        yield c


def test_a_standby_is_made_follows_and_takes_over(pair: Pair) -> None:
    with client(pair) as c:
        for i in range(20):
            c.put("A", b"before %d" % i)
        pair.make()
        follower = pair.follow()
        for i in range(300):
            c.put("A", b"%d" % i * 300)
        with c.reader("A", batch=50) as reader:
            for message in reader.next(timeout_s=5)[:10]:
                message.done()
        c.put("A", b"last")
    pair.caught_up()
    said = pair.status()
    assert (said["role"], said["member"], said["following"]) == ("standby", "b", True)
    assert said["lag_frames"] == 0 and said["primary"] == shlex.join(pair.send)
    pair.primary.kill(MANAGER, WRITER)
    refused = pair.run("promote")
    assert refused.returncode == Exit.TEMPORARY and "is locked by process" in refused.stderr
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(WAIT_S) == 0
    assert launch.run("omq", ["standby", "demote", "--spool", str(pair.primary.root), "--conf",
                              str(pair.primary.conf)]) == 0
    done = pair.run("promote")
    assert done.returncode == 0, done.stderr
    instance = open_spool(pair.root).instance
    assert (instance.role, instance.term) == (Role.PRIMARY, 1)
    found = pair.bodies()
    assert len(found) == 20 + 300 + 1 - 10 and found[-1] == b"last" and pair.new > LEAP
    assert pair.primary.start().wait() == Exit.UNAVAILABLE, "the old primary does not start"
    pair.primary.paths.uuid.write_text(json.dumps(
        {"format": 1, "uuid": open_spool(pair.root).uuid.hex()}))


def test_what_an_operator_has_set_is_there_after_a_promotion(pair: Pair) -> None:
    """What was set before the copy was made, and while it follows."""
    with client(pair) as c:
        c.queues.define("EARLY", limit_by="group")
        c.queues.pause("EARLY", "k")
        pair.make()
        follower = pair.follow()
        state.set_all(c)
        before = state.found(c)
    pair.caught_up()
    pair.primary.kill(MANAGER, WRITER)
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(WAIT_S) == 0
    assert launch.run("omq", ["standby", "demote", "--spool", str(pair.primary.root), "--conf",
                              str(pair.primary.conf)]) == 0
    assert pair.run("promote").returncode == 0
    child = start_program(MANAGER, ["--spool", str(pair.root), "--conf", str(pair.primary.conf)],
                          output=pair.log)
    try:
        with omq.connect(pair.root, name="judge", timeout_s=WAIT_S) as c:
            after = state.found(c)
            state.whole(after)
            assert after == before and c.queues.show("EARLY").paused == ("k",)
    finally:
        child.signal(signal.SIGTERM)
        assert child.wait() == 0, pair.log.read_text()
    pair.primary.paths.uuid.write_text(json.dumps(
        {"format": 1, "uuid": open_spool(pair.root).uuid.hex()}))


def test_a_promotion_is_refused_while_the_primary_answers(pair: Pair) -> None:
    pair.make()
    done = pair.run("promote")
    assert done.returncode == Exit.TEMPORARY and "the primary answers" in done.stderr
    assert open_spool(pair.root).instance.role is Role.STANDBY


def test_bodies_move_and_containers_come_along(pair: Pair) -> None:
    """Journal files go on both sides; what stays is copied by the standby itself."""
    kept = [b"kept %d" % i * 2000 for i in range(30)]
    large = os.urandom(600_000)
    with client(pair) as c:
        for body in kept:
            c.put("B", body)
        pair.make()
        pair.follow()
        c.put("B", large)
        for _ in range(30):
            c.put_many("A", [os.urandom(20_000) for _ in range(10)])
            with c.reader("A", batch=10) as reader:
                for message in reader.next(timeout_s=5):
                    message.done()

        def there() -> bool:
            """Files go behind checkpoints, and an idle primary takes none."""
            c.put("C", b"and so on")
            return any(pair.root.joinpath("store").glob("*.sto")) and len(
                list(pair.root.joinpath("journal").glob("0*.jnl"))) < 6

        until(there, pair.log.read_text)
    pair.caught_up()
    pair.primary.stop()
    pair.children[0].send_signal(signal.SIGTERM)
    assert pair.children[0].wait(WAIT_S) == 0
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    done = pair.run("promote")
    assert done.returncode == 0, done.stderr
    assert pair.bodies("B") == [*kept, large]
    pair.primary.root.with_name("gone").rename(pair.primary.root)


def test_kills_of_everything_lose_nothing_that_was_there(pair: Pair) -> None:
    pair.make()
    acked: list[bytes] = []
    follower = pair.follow()
    for turn in range(6):
        with client(pair) as c:
            for i in range(30):
                body = b"%d.%d" % (turn, i)
                c.put("A", body)
                acked.append(body)
        if turn % 2:
            pair.caught_up()
        follower.kill()
        follower.wait()
        if turn % 3 == 2:
            pair.primary.kill(MANAGER)
            pair.primary.start()
            pair.primary.ready()
        follower = pair.follow()
    pair.caught_up()
    pair.primary.kill(MANAGER, WRITER)
    follower.kill()
    follower.wait()
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    assert pair.run("promote").returncode == 0
    assert pair.bodies() == acked
    pair.primary.root.with_name("gone").rename(pair.primary.root)


def test_a_checkpoint_is_taken_in_time_and_not_for_each_message(pair: Pair) -> None:
    pair.primary.settings(checkpoint_interval_s=3600, checkpoint_journal_bytes_max=64 << 20)
    pair.make()
    paths = SpoolPaths(pair.root)

    def generation() -> int:
        control, _ = poolctrl.load(paths)
        assert control is not None
        return control.generation

    before = generation()
    pair.follow()
    with client(pair) as c:
        for i in range(50):
            c.put("A", b"%d" % i)
            pair.caught_up()
    until(lambda: pair.status()["redone_lsn"] == pair.status()["synced_lsn"], pair.log.read_text)
    assert generation() <= before + 1, "one at the beginning"


def test_what_is_acknowledged_while_it_is_away_is_lost_with_the_primary(pair: Pair) -> None:
    """The control: nobody waits for this standby, so a judge that never misses anything is none."""
    pair.make()
    with client(pair) as c:
        c.put("A", b"too late")
    pair.primary.kill(MANAGER, WRITER)
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    assert pair.run("promote").returncode == 0
    assert pair.bodies() == []
    pair.primary.root.with_name("gone").rename(pair.primary.root)


def test_a_primary_that_a_standby_has_outlived_steps_down(pair: Pair) -> None:
    """Another standby has followed the new primary, and is pointed at the old one."""
    pair.make()
    before = pair.primary.paths.uuid.read_bytes()
    path = pair.root / "instance.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | {"term": 3}))
    pair.follow()
    assert pair.primary.children[MANAGER].wait() == 0, "it is told to stop"
    assert open_spool(pair.primary.root).instance.role is Role.FORMER
    until(lambda: "another member was promoted since" in pair.log.read_text(), pair.log.read_text)
    pair.end()
    assert pair.primary.start().wait() == Exit.UNAVAILABLE
    pair.primary.paths.uuid.write_bytes(before)


def test_what_is_wrong_is_refused(pair: Pair, tmp_path: Path) -> None:
    pair.make()
    again = pair.run("init", "--member", "c", "--", *pair.send)
    assert again.returncode == Exit.USAGE and "is not empty" in again.stderr
    for words in (["--member", "a/b"], []):
        pair.root = tmp_path / "other"
        done = pair.run("init", *words, "--", *pair.send)
        assert done.returncode == Exit.USAGE and "--member" in done.stderr
    done = pair.run("init", "--member", "c", "--", "ssh", "x" * 500)
    assert done.returncode == Exit.USAGE and "put a longer command into a script" in done.stderr
    done = pair.run("init", "--member", "c", "--", "false")
    assert done.returncode == Exit.TEMPORARY and "false" in done.stderr
    assert not (pair.root / "instance.json").exists()
    done = pair.run("promote")
    assert done.returncode != 0


def harmed(pair: Pair, how: str) -> list[str]:
    """The command with harm done on the way."""
    return [sys.executable, "-m", "tests.process.bad_wire", how, *pair.send]


@pytest.mark.parametrize("how", ["flip:4", "drop:4", "term:4"])
def test_a_stream_that_is_harmed_is_given_up_and_nothing_of_it_is_taken(pair: Pair, how: str
                                                                        ) -> None:
    pair.make()
    with client(pair) as c:
        for i in range(20):
            c.put("A", b"%d" % i)
    with open(pair.log, "ab") as log:
        child = subprocess.Popen(
            [*OMQ, "standby", "follow", "--spool", str(pair.root), "--conf",
             str(pair.primary.conf), "--", *harmed(pair, how)], stderr=log)
    pair.children.append(child)
    until(lambda: "was abandoned" in pair.log.read_text(), pair.log.read_text)
    child.send_signal(signal.SIGTERM)
    assert child.wait(WAIT_S) == 0
    assert open_spool(pair.root).instance.term == 0, "a term is believed with its piece alone"
    with open(pair.log, "ab") as log:
        pair.children.append(subprocess.Popen(
            [*OMQ, "standby", "follow", "--spool", str(pair.root), "--conf",
             str(pair.primary.conf), "--", *pair.send], stderr=log))
    pair.caught_up()
    pair.end()
    pair.primary.kill(MANAGER, WRITER)
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    assert pair.run("promote").returncode == 0
    assert pair.bodies() == [b"%d" % i for i in range(20)]
    pair.primary.root.with_name("gone").rename(pair.primary.root)


@pytest.mark.parametrize("how", ["end:0", "end:3", "flip:2"])
def test_a_copy_that_is_cut_is_no_spool(pair: Pair, how: str) -> None:
    with client(pair) as c:
        c.put("B", os.urandom(400_000))
    done = pair.run("init", "--member", "b", "--", *harmed(pair, how))
    assert done.returncode == Exit.TEMPORARY, done.stderr
    assert not (pair.root / "instance.json").exists()
    child = start_program(MANAGER, ["--spool", str(pair.root), "--conf", str(pair.primary.conf)],
                          output=pair.log)
    assert child.wait() in (Exit.DATA, Exit.NO_INPUT), "it is no spool"
    pair.root = pair.root.with_name("second")
    pair.make()


def test_another_instance_is_not_followed(pair: Pair) -> None:
    pair.make()
    assert launch.run("omqrecover", ["identity", str(pair.root), "--uuid", "0f" * 16, "--role",
                                     "standby"]) == 0
    done = pair.run("follow", "--", *pair.send)
    assert done.returncode == Exit.DATA and "no checkpoint of this instance" in done.stderr


def test_a_copy_is_made_while_clients_work(pair: Pair) -> None:
    """Checkpoints wait for it, and come behind it."""
    stop = threading.Event()
    acked: list[bytes] = []
    ended: set[bytes] = set()

    def work() -> None:
        with client(pair) as c, c.reader("A", batch=20) as reader:
            number = 0
            while not stop.is_set() or number % 50:
                body = b"%d" % number + os.urandom(number % 3000)
                c.put("A", body)
                acked.append(body)
                number += 1
                if number % 20 == 0:
                    for message in reader.next(timeout_s=1)[:15]:
                        assert message.body is not None
                        ended.add(message.body)
                        message.done()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for turn in range(3):
            pair.root = pair.root.with_name(f"standby{turn}")
            pair.make()
    finally:
        stop.set()
        worker.join()
    pair.follow()
    pair.caught_up()
    pair.end()
    pair.primary.kill(MANAGER, WRITER)
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    assert pair.run("promote").returncode == 0
    assert sorted(pair.bodies()) == sorted(body for body in acked if body not in ended)
    pair.primary.root.with_name("gone").rename(pair.primary.root)


def test_checkpoints_wait_for_a_copy(pair: Pair) -> None:
    held = lock(pair.primary.paths.checkpoint_lock, "test")
    before = len(pair.primary.events(events.CHECKPOINT.number))
    with client(pair) as c:
        for _ in range(3):
            c.put_many("A", [bytes(20_000)] * 40)  # more than one checkpoint should hold
        until(lambda: Facts.lag(pair) > 0, pair.primary.said)
        assert len(pair.primary.events(events.CHECKPOINT.number)) == before
        held.close()
        until(lambda: len(pair.primary.events(events.CHECKPOINT.number)) > before,
              pair.primary.said)


class Facts:
    """What the primary's index says."""

    @staticmethod
    def lag(pair: Pair) -> int:
        return gather(Location(None, pair.primary.paths, pair.primary.conf)).checkpoint_lag


def test_clients_and_commands_are_told_where_the_primary_is(
        pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    pair.make()
    with pytest.raises(NotPrimary, match=r"a standby of its instance \(member b\).*standby send"):
        omq.connect(pair.root, name="lost", timeout_s=5)
    place = ["--spool", str(pair.root), "--conf", str(pair.primary.conf)]
    assert launch.run("omsend", ["A", *place]) == Exit.UNAVAILABLE
    capsys.readouterr()
    assert launch.run("omqcheck", place) == Exit.OK
    assert "(member b), it does not follow" in capsys.readouterr().err
    assert launch.run("omq", ["health", *place]) == Exit.NO
    pair.follow()
    until(lambda: bool(pair.status()["following"]), pair.log.read_text)

    def lag() -> int:
        assert launch.run("omq", ["health", "--json", *place]) == Exit.OK
        return int(json.loads(capsys.readouterr().out.splitlines()[-1])["lag_frames"])

    until(lambda: lag() == 0, pair.log.read_text)


def test_work_in_hand_is_ready_at_once_after_a_promotion(pair: Pair) -> None:
    """Its reader was a client of the primary's spool: nobody waits for it to come back."""
    pair.make()
    follower = pair.follow()
    c = pair.primary.connect()
    c.put("A", b"1")
    reader = c.reader("A")
    (taken,) = reader.next(timeout_s=WAIT_S)
    assert taken.body == b"1"
    pair.caught_up()
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(WAIT_S) == 0
    pair.primary.kill(MANAGER, WRITER)
    world.impatient(c)
    with suppress(ManagerUnavailable):
        c.close()
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    done = pair.run("promote")
    assert done.returncode == 0, done.stderr
    pair.primary.root.with_name("gone").rename(pair.primary.root)
    pair.primary.settings(reconnect_grace_s=3600)
    with open(pair.log, "ab") as log:
        manager = subprocess.Popen([*OMQ[:-1], MANAGER, "--spool", str(pair.root), "--conf",
                                    str(pair.primary.conf)], stderr=log)
    pair.children.append(manager)
    with omq.connect(pair.root, name="next", timeout_s=WAIT_S) as c, c.reader("A") as reader:
        (again,) = reader.next(timeout_s=WAIT_S)
        assert again.body == b"1"
        again.done()
    manager.terminate()
    assert manager.wait(WAIT_S) == 0
    pair.primary.settings()
