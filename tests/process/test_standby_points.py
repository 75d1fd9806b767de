"""A standby, the process that sends to it, and a promotion die by SIGKILL at each named point
clients that wait for that standby: nothing that was acknowledged is lost or doubled."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.storage.instance_file import Role
from omq.storage.spool import open_spool
from tests.process import instance as world
from tests.process.instance import MANAGER, WRITER
from tests.process.test_standby import client
from tests.process.test_standby_sync import Putting, SyncPair
from tests.waiting import WAIT_S, until

SENDING = {"standby.before_send": 9, "standby.after_send": 9, "standby.after_ack": 9}
"""Points of the sender, and at which visit it dies. The standby goes on with another one."""
RECEIVING = {
    "standby.before_ack": 9, "standby.before_redo": 3, "journal.before_write": 9,
    "journal.after_write": 9, "journal.before_sync": 9, "journal.after_sync": 9,
}
KEEPING = {
    "standby.before_checkpoint": 1, "standby.before_retire": 1, "journal.prepare_next": 1,
    "pool.before_write": 1, "pool.after_write": 1, "pool.before_sync": 1, "pool.after_sync": 1,
    "poolctrl.before_write": 1, "poolctrl.after_write": 1, "poolctrl.before_sync": 1,
    "poolctrl.after_sync": 1, "durable.before_rename": 2, "durable.after_rename": 2,
}
"""Points of the standby. It is started again."""
PROMOTING = ("promote.after_mark", "promote.after_redo", "promote.after_note",
             "promote.after_instance")


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


def fired(pair: SyncPair) -> list[str]:
    """What has acted."""
    if not pair.fired.exists():
        return []
    return [line.split()[0] for line in pair.fired.read_text().splitlines()]


def goes_on(pair: SyncPair, putting: list[Putting]) -> None:
    before = [len(each.acked) for each in putting]
    until(lambda: all(len(each.acked) > count + 3
                      for each, count in zip(putting, before, strict=True)), pair.log.read_text)


def promoted(pair: SyncPair, acked: list[bytes]) -> None:
    """The primary is lost with its spool; what its clients were told is all there, once."""
    pair.primary.kill(MANAGER)
    gone = pair.primary.root.with_name("gone")
    pair.primary.root.rename(gone)
    done = pair.run("promote")
    assert done.returncode == 0, done.stderr
    pair.primary.settings()
    assert sorted(pair.bodies()) == sorted(acked), "nothing lost, nothing doubled"
    gone.rename(pair.primary.root)


@pytest.mark.parametrize("points", [SENDING, RECEIVING, KEEPING], ids=["sender", "standby", "pool"])
def test_who_dies_at_a_point_loses_nothing(pair: SyncPair, points: dict[str, int]) -> None:
    follower = pair.follow()
    pair.reaches("synced")
    putting = [Putting(pair, b"client %d" % i, timeout_s=WAIT_S) for i in range(2)]
    for name, visit in points.items():
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(WAIT_S) == 0, pair.log.read_text()
        fault = f"{name}:kill:{visit}"
        follower = pair.follow(fault)
        until(lambda fault=fault: fault in fired(pair), pair.log.read_text)  # type: ignore[misc]
        if points is not SENDING:
            assert follower.wait(WAIT_S) == -signal.SIGKILL, f"{name} is the standby's"
            follower = pair.follow()
        goes_on(pair, putting)
    for each in putting:
        each.end()
    follower.kill()
    follower.wait()
    promoted(pair, [body for each in putting for body in each.acked])


def test_a_promotion_that_dies_at_a_point_is_done_again(pair: SyncPair) -> None:
    follower = pair.follow()
    pair.reaches("synced")
    acked = [b"%d" % i for i in range(30)]
    with client(pair) as c:
        for body in acked:
            c.put("A", body)
    follower.kill()
    follower.wait()
    pair.primary.kill(MANAGER)
    gone = pair.primary.root.with_name("gone")
    pair.primary.root.rename(gone)
    for name in PROMOTING:
        assert open_spool(pair.root, any_role=True).instance.role is Role.STANDBY
        done: subprocess.CompletedProcess[str] = pair.run("promote", fault=f"{name}:kill:1")
        assert done.returncode == -signal.SIGKILL, f"{name}: {done.stderr}"
    assert fired(pair) == [f"{name}:kill:1" for name in PROMOTING]
    instance = open_spool(pair.root).instance
    assert (instance.role, instance.term) == (Role.PRIMARY, 1), "it was the last step"
    pair.primary.settings()
    assert pair.bodies() == acked
    gone.rename(pair.primary.root)
