"""The rolling upgrade of a primary and its standby: with an omq of an earlier day on either side,
and what an older side does with a later one."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import omq
from omq.base.errors import Exit, NewerFormat, OmqError
from omq.storage.instance_file import Role
from omq.storage.spool import open_spool
from tests.process import instance as world
from tests.process.instance import MANAGER, WRITER
from tests.process.older_omq import OlderOmq
from tests.process.processes import WAIT_S
from tests.process.test_standby import OMQ, Pair, client
from tests.waiting import until

NOW = OMQ[:-1]
LATER = [sys.executable, "-m", "tests.process.later_omq"]


class Versions(Pair):
    """Each side is run by the omq that a test says."""

    def __init__(self, primary: world.Instance, root: Path) -> None:
        super().__init__(primary, root)
        self.sender: Sequence[str] = NOW
        self.older: OlderOmq | None = None
        """Who serves the primary, if it is not this omq: its index is for its own programs."""

    def durable(self) -> int:
        return super().durable() if self.older is None else self.older.durable(self.primary.paths)

    @property
    def send(self) -> list[str]:
        """A script: an omq of an earlier day takes no long command."""
        return [self.script("sends", self.primary.root)]

    def script(self, name: str, root: Path) -> str:
        path = self.root.with_name(name)
        own = os.environ.get("PYTHONPATH")  # not that of an older standby, which starts it
        environment = ["-u", "PYTHONPATH"] if own is None else [f"PYTHONPATH={own}"]
        path.write_text("#!/bin/sh\nexec " + shlex.join([
            "env", *environment, *self.sender, "omq", "standby", "send", "--spool", str(root),
            "--conf", str(self.primary.conf)]) + "\n")
        path.chmod(0o755)
        return str(path)

    def by(self, command: Sequence[str], *words: str, root: Path | None = None
           ) -> subprocess.CompletedProcess[str]:
        """`omq standby` of that omq, on the standby."""
        own = words.index("--") if "--" in words else len(words)
        return subprocess.run([*command, "omq", "standby", *words[:own], "--spool",
                               str(root or self.root), "--conf", str(self.primary.conf),
                               *words[own:]], capture_output=True, text=True, timeout=WAIT_S,
                              check=False)

    def begin(self, command: Sequence[str], *words: str, root: Path | None = None
              ) -> subprocess.Popen[bytes]:
        """A program of that omq."""
        with open(self.log, "ab") as log:
            child = subprocess.Popen([*command, *words, "--spool", str(root or self.root),
                                      "--conf", str(self.primary.conf)], stderr=log, stdout=log)
        self.children.append(child)
        return child

    def follow_by(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """It follows as the primary is reached now."""
        with open(self.log, "ab") as log:
            child = subprocess.Popen([*command, "omq", "standby", "follow", "--spool",
                                      str(self.root), "--conf", str(self.primary.conf), "--",
                                      *self.send], stderr=log)
        self.children.append(child)
        return child

    def serves(self, root: Path) -> None:
        def there() -> bool:
            with suppress(OmqError):
                omq.connect(root, name="look", timeout_s=0.2).close()
                return True
            return False

        until(there, self.log.read_text)

    def puts(self, root: Path, *bodies: bytes) -> None:
        with omq.connect(root, name="test", timeout_s=WAIT_S) as c:
            for body in bodies:
                c.put("A", body)

    def ends(self, *children: subprocess.Popen[bytes]) -> None:
        for child in children:
            child.send_signal(signal.SIGTERM)
            assert child.wait(WAIT_S) == 0, self.log.read_text()


@pytest.fixture
def pair(omq_instance: world.Instance, tmp_path: Path) -> Iterator[Versions]:
    made = Versions(omq_instance, tmp_path / "standby")
    made.log.touch()
    before = omq_instance.paths.uuid.read_bytes()
    yield made
    made.end()
    if open_spool(omq_instance.root).instance.role is not Role.PRIMARY:
        omq_instance.paths.uuid.write_bytes(before)


@pytest.fixture
def older(tmp_path: Path) -> OlderOmq:
    return OlderOmq(tmp_path / "older")


def test_a_pair_is_upgraded_standby_first(pair: Versions, older: OlderOmq) -> None:
    """Both are of an earlier day; the standby is upgraded and promoted; then the old primary."""
    old = older.command
    pair.sender, pair.older = old, older
    manager = pair.begin(old, MANAGER, root=pair.primary.root)
    writer = pair.begin(old, WRITER, root=pair.primary.root)
    pair.serves(pair.primary.root)
    done = pair.by(old, "init", "--member", "b", "--", *pair.send)
    assert done.returncode == 0, done.stderr
    follower = pair.begin(old, "omq", "standby", "follow")
    pair.puts(pair.primary.root, b"1", b"2")
    pair.caught_up()
    pair.ends(follower)
    follower = pair.follow_by(NOW)  # the sender beside the primary is still the old one
    pair.puts(pair.primary.root, b"3")
    pair.caught_up()
    pair.ends(follower)
    for child in (manager, writer):
        child.kill()
        child.wait()
    gone = pair.primary.root.with_name("gone")
    pair.primary.root.rename(gone)
    done = pair.by(NOW, "promote")
    assert done.returncode == 0, done.stderr
    gone.rename(pair.primary.root)
    manager, writer = pair.begin(NOW, MANAGER), pair.begin(NOW, WRITER)
    pair.serves(pair.root)
    with omq.connect(pair.root, name="judge", timeout_s=WAIT_S) as c:
        assert [message.body for message in c.browse("A")] == [b"1", b"2", b"3"]
    pair.sender = NOW
    done = pair.by(NOW, "rejoin", "--member", "a", "--", pair.script("back", pair.root),
                   root=pair.primary.root)
    assert done.returncode == 0, done.stderr
    assert open_spool(pair.primary.root).instance.role is Role.STANDBY
    pair.ends(writer, manager)


def test_a_standby_of_an_earlier_day_follows_a_later_primary(pair: Versions, older: OlderOmq
                                                             ) -> None:
    """The order that nobody should choose: it holds as long as formats are the same."""
    pair.primary.start(MANAGER, WRITER)
    pair.primary.ready()
    done = pair.by(older.command, "init", "--member", "b", "--", *pair.send)
    assert done.returncode == 0, done.stderr
    follower = pair.begin(older.command, "omq", "standby", "follow")
    with client(pair) as c:
        c.put("A", b"1")
    pair.caught_up()
    pair.ends(follower)
    follower = pair.follow_by(NOW)
    with client(pair) as c:
        c.put("A", b"2")
    pair.caught_up()
    pair.ends(follower)
    pair.primary.kill(MANAGER, WRITER)
    gone = pair.primary.root.with_name("gone")
    pair.primary.root.rename(gone)
    done = pair.by(NOW, "promote")
    assert done.returncode == 0, done.stderr
    gone.rename(pair.primary.root)
    assert pair.bodies() == [b"1", b"2"]


def test_a_standby_refuses_a_later_stream_and_goes_on_after_its_upgrade(pair: Versions) -> None:
    pair.primary.start(MANAGER, WRITER)
    pair.primary.ready()
    pair.make()
    pair.sender = LATER
    follower = pair.follow_by(NOW)
    until(lambda: "stream version 2, known 1" in pair.log.read_text(), pair.log.read_text)
    assert follower.poll() is None, "it tries again: one side will be upgraded"
    found = pair.status()
    assert found["following"] is False and "version 2" in found["error"]
    with client(pair) as c:
        c.put("A", b"1")
    follower.kill()
    follower.wait()
    pair.sender = NOW
    follower = pair.follow_by(NOW)
    pair.caught_up()
    pair.ends(follower)
    assert pair.status()["synced_lsn"] > 0


def test_a_primary_refuses_a_standby_of_a_later_stream_and_serves_on(pair: Versions) -> None:
    pair.primary.start(MANAGER, WRITER)
    pair.primary.ready()
    pair.make()
    follower = pair.follow_by(LATER)
    until(lambda: "stream version 2, known 1" in pair.log.read_text(), pair.log.read_text)
    with client(pair) as c:
        c.put("A", b"1")
    follower.kill()
    follower.wait()
    done = pair.by(LATER, "init", "--member", "c", "--", *pair.send,
                   root=pair.root.with_name("c"))
    assert done.returncode == Exit.TEMPORARY
    assert not (pair.root.with_name("c") / "instance.json").exists()


def test_an_omq_without_standbys_refuses_the_spool_of_a_later_format(pair: Versions) -> None:
    """What a downgrade meets: nothing starts, and nothing is changed."""
    pair.primary.start(MANAGER, WRITER)
    pair.primary.ready()
    pair.make()
    path = pair.root / "instance.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    before = {each: os.stat(each).st_mtime_ns for each in pair.root.rglob("*") if each.is_file()}
    for words in (("follow",), ("promote",)):
        done = pair.by(NOW, *words)
        assert done.returncode == NewerFormat.exit_code and "3" in done.stderr, done.stderr
    assert before == {each: os.stat(each).st_mtime_ns for each in pair.root.rglob("*")
                      if each.is_file()}
