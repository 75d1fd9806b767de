"""A standby whose pool stays as it is for a while: nothing is redone, nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import Exit
from tests.process import instance as world
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import WAIT_S
from tests.process.test_standby import Pair, client
from tests.waiting import until


@pytest.fixture
def pair(omq_instance: world.Instance, tmp_path: Path) -> Iterator[Pair]:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    made = Pair(omq_instance, tmp_path / "standby")
    yield made
    made.end()


def test_a_paused_standby_receives_and_redoes_nothing(pair: Pair) -> None:
    pair.make()
    refused = pair.run("resume")
    assert refused.returncode == Exit.USAGE and "is not paused" in refused.stderr
    follower = pair.follow()
    with client(pair) as c:
        c.put("A", b"before")
        pair.caught_up()
        assert pair.run("pause").returncode == 0
        until(lambda: pair.status()["paused"], pair.log.read_text)
        redone = pair.status()["redone_lsn"]
        for i in range(20):
            c.put("A", b"%d" % i)
        pair.caught_up()
        said = pair.status()
        assert said["redone_lsn"] == redone < said["synced_lsn"] and said["following"]
        follower.kill()
        follower.wait()
        follower = pair.follow()
        c.put("A", b"last")
        pair.caught_up()
        said = pair.status()
        assert said["paused"] and said["redone_lsn"] <= redone, "it is no wish of one process"
        assert pair.run("resume").returncode == 0
        until(lambda: pair.status()["redone_lsn"] == pair.status()["synced_lsn"],
              pair.log.read_text)
        assert pair.run("pause").returncode == 0
        until(lambda: pair.status()["paused"], pair.log.read_text)
        c.put("A", b"behind the pause")
        pair.caught_up()
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(WAIT_S) == 0
    pair.primary.kill(MANAGER, WRITER)
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    assert pair.run("promote").returncode == 0, "a promotion redoes all that is synced"
    assert pair.bodies() == [b"before", *(b"%d" % i for i in range(20)), b"last",
                             b"behind the pause"]
    pair.primary.root.with_name("gone").rename(pair.primary.root)
    assert pair.run("pause").returncode != 0, "it is no standby any more"
