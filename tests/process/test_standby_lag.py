"""What a primary says of its standbys: how far each is behind, who is away, who is forgotten."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base import clock
from omq.base.errors import Exit
from omq.cli.watch.facts import Facts, gather
from omq.cli.watch.measures import OF_INSTANCE
from omq.cli.watch.metrics import text
from omq.services.daemon.options import Location
from omq.services.standby.lag import SILENT_NS
from omq.storage import standby_holds
from tests.process import instance as world
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import WAIT_S
from tests.process.test_standby import OMQ, Pair, client
from tests.waiting import until


@pytest.fixture
def pair(omq_instance: world.Instance, tmp_path: Path) -> Iterator[Pair]:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    made = Pair(omq_instance, tmp_path / "standby")
    yield made
    made.end()


def at_primary(pair: Pair, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OMQ, *words, "--spool", str(pair.primary.root), "--conf",
                           str(pair.primary.conf)], capture_output=True, text=True,
                          timeout=WAIT_S, check=False)


def members(pair: Pair) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        at_primary(pair, "standby", "status", "--json").stdout)["standbys"]
    return found


def facts(pair: Pair) -> Facts:
    return gather(location(pair))


def location(pair: Pair) -> Location:
    return Location(None, pair.primary.paths, pair.primary.conf)


def test_a_standby_whose_queues_are_others_is_named(pair: Pair, tmp_path: Path) -> None:
    """As it was when it connected."""
    pair.make()
    own = tmp_path / "conf of the standby"
    shutil.copytree(pair.primary.conf, own)
    (own / "queues.conf").write_text(world.QUEUES.replace("[B]", "[B]\nmax_depth = 5\n\n[D]"))
    command = [*OMQ, "standby", "follow", "--spool", str(pair.root), "--conf", str(own)]
    with open(pair.log, "ab") as log:
        pair.children.append(subprocess.Popen(command, stderr=log))
    until(lambda: any(each["following"] for each in members(pair)), pair.log.read_text)
    (found,) = members(pair)
    assert found["conf"] == "queues.conf differs: B, D"
    said = at_primary(pair, "standby", "status")
    assert said.returncode == 1 and "; queues.conf differs: B, D" in said.stdout
    assert facts(pair).standbys_differ == 1
    pair.end()
    pair.follow()
    until(lambda: members(pair)[0]["conf"] == "" and members(pair)[0]["following"],
          pair.log.read_text)
    assert at_primary(pair, "standby", "status").returncode == 0


def test_the_primary_knows_its_standby_and_what_it_lacks(pair: Pair) -> None:
    assert members(pair) == [] and at_primary(pair, "standby", "status").returncode == 0
    assert "omq_standby" not in text(location(pair)), "an instance without one has no series of it"
    pair.make()
    follower = pair.follow()
    with client(pair) as c:
        c.put("A", b"x")
        pair.caught_up()
        until(lambda: [(each["following"], each["lag_frames"], each["lag_s"])
                       for each in members(pair)] == [(True, 0, 0.0)], lambda: str(members(pair)))
        follower.send_signal(signal.SIGSTOP)
        try:
            c.put("A", b"behind")
            until(lambda: (facts(pair).standby_lag_s or 0) > 1.5, lambda: str(members(pair)))
            (found,) = facts(pair).standbys
            assert found.following and (found.lag_frames or 0) > 0, "its line is open"
        finally:
            follower.send_signal(signal.SIGCONT)
        until(lambda: facts(pair).standby_lag_s == 0.0, lambda: str(members(pair)))
    assert 'omq_standby_following{member="b",omq_instance="default"} 1.0' in text(location(pair))
    follower.kill()
    follower.wait()
    until(lambda: facts(pair).standbys_away == 1, lambda: str(members(pair)))
    done = at_primary(pair, "standby", "status")
    assert done.returncode == Exit.NO and "b: 0 frames" in done.stdout and "away for" in done.stdout
    assert "(it has closed the line)" in done.stdout, "nothing of it was applied here"
    assert OF_INSTANCE["standbys_away"](facts(pair)) == 1
    with client(pair) as c:
        c.put("A", b"it does not have that")
    (found,) = facts(pair).standbys
    assert (found.lag_frames or 0) > 0 and found.lag_bytes is None, "nobody serves it, and it lacks"
    assert (found.lag_s or 0) > 0
    pair.primary.stop(MANAGER, WRITER)
    (found,) = facts(pair).standbys
    assert found.lag_frames is None, "nobody says"
    assert "an unknown number of frames" in at_primary(pair, "standby", "status").stdout
    pair.primary.start(MANAGER, WRITER)
    pair.primary.ready()
    said = at_primary(pair, "health")
    assert said.returncode == Exit.NO and "standbys that do not follow: 1" in said.stdout
    assert 'omq_standby_following{member="b",omq_instance="default"} 0.0' in text(location(pair))
    done = at_primary(pair, "standby", "forget", "--member", "c")
    assert done.returncode == Exit.USAGE and "omq standby status" in done.stderr
    done = at_primary(pair, "standby", "forget", "--member", "b")
    assert done.returncode == 0, done.stderr
    assert members(pair) == [] and standby_holds.load(pair.primary.paths) == {}
    assert "do not follow" not in at_primary(pair, "health").stdout


def test_a_standby_is_waited_for_once_the_manager_has_read_it(pair: Pair) -> None:
    """Until then nothing says that what is acknowledged is on two disks."""
    assert facts(pair).unprotected is None
    with open(pair.primary.conf / "omq.conf", "a") as conf:
        conf.write("\n[standby]\nstandby_sync = 1\n")
    said = at_primary(pair, "standby", "status")
    assert said.returncode == Exit.NO and "not in force: 0 of 1" in said.stdout, said.stdout
    assert "omshut, then omrc" in said.stdout and facts(pair).unprotected == 1
    pair.primary.stop(MANAGER, WRITER)
    pair.primary.start(MANAGER, WRITER)
    pair.primary.ready()
    said = at_primary(pair, "standby", "status")
    assert said.returncode == Exit.NO and "waiting: 0 of 1" in said.stdout, said.stdout


def test_a_sender_that_is_killed_is_noticed_without_a_word_of_it(pair: Pair) -> None:
    """kill -9 of `omq standby send`: its last word said that all is well."""
    pair.make()
    pair.follow()
    pair.caught_up()
    until(lambda: [each["following"] for each in members(pair)] == [True],
          lambda: str(members(pair)))
    for child in pair.children:
        child.send_signal(signal.SIGSTOP)  # it does not come again
    os.kill(sender(pair), signal.SIGKILL)
    until(lambda: facts(pair).standbys_away == 1, lambda: str(members(pair)))
    for child in pair.children:
        child.send_signal(signal.SIGCONT)
    until(lambda: facts(pair).standbys_away == 0, lambda: str(members(pair)))


def test_a_follower_that_is_killed_does_not_follow(pair: Pair) -> None:
    """Its last word was that all is well, too, and it is the standby's own: who looks there hears
    that nobody follows, not that nothing is lacking."""
    pair.make()
    pair.follow()
    pair.caught_up()
    until(lambda: pair.status()["following"] is True, lambda: str(pair.status()))
    assert pair.run("status").returncode == Exit.OK
    pair.children[-1].kill()
    pair.children[-1].wait(WAIT_S)
    file = pair.root / "run/standby.json"
    said = json.loads(file.read_text())
    assert said["following"] is True
    for ago_ns in (SILENT_NS, -3600 * clock.NS_PER_S):  # so long ago; the host was started since
        file.write_text(json.dumps(said | {"monotonic_ns": clock.monotonic_ns() - ago_ns}))
        found = pair.status()
        assert found["following"] is None and found["lag_frames"] is None
        assert found["heard_s"] is None and "has said nothing" in found["error"]
        assert pair.run("status").returncode == Exit.NO
        here = ["--spool", str(pair.root), "--conf", str(pair.primary.conf)]
        health = subprocess.run([*OMQ, "health", *here], capture_output=True, text=True,
                                timeout=WAIT_S, check=False)
        assert health.returncode == Exit.NO and "it does not follow" in health.stdout
    del said["monotonic_ns"]  # an older omq follows
    file.write_text(json.dumps(said))
    assert pair.status()["following"] is True


def sender(pair: Pair) -> int:
    """The process that serves the standby."""
    parent = pair.children[-1].pid
    (found,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(found)
