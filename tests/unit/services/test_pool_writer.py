"""pool.writer: when it takes checkpoints, whom it waits for, and what it lets go."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from omq.base import clock
from omq.base.errors import DiskError, ManagerUnavailable, NoAuthority, SpoolLocked
from omq.core.redo.redo import Redo
from omq.format.poolctrl import ControlFlag
from omq.services.pool.following import Following
from omq.services.pool.live_index import LiveIndex
from omq.services.pool.pool_writer import NAME, PoolWriter
from omq.storage import durable, poolctrl, spool
from omq.storage.journal import PREPARED
from tests.unit.core.redo_world import QuietDisk, found
from tests.unit.services.pool_world import ManagerWorld

CHECKPOINT, LATE, FAILED, STARTED, STOPPED = 1411, 1412, 1008, 1421, 1422


def nothing() -> None:
    """A second goes by."""


def pool_of(world: ManagerWorld) -> object:
    pool = world.pool()
    try:
        return found(pool)
    finally:
        pool.close()


def runs(index: LiveIndex) -> bool:
    return index.running


def lock_is_free(world: ManagerWorld) -> bool:
    try:
        spool.lock(world.paths.pool_lock, "test").close()
    except SpoolLocked:
        return False
    return True


# checkpoints


def test_a_checkpoint_is_taken_after_the_interval(world: ManagerWorld) -> None:
    world.put([3, 4])
    world.commit()
    seen: list[int] = []
    world.follow(*[lambda: seen.append(world.checkpoint_lsn())] * 11)
    assert seen[0] < world.lsn and seen[-1] == world.lsn
    assert pool_of(world) == world.expected()
    assert [q["op"] for q in world.line.asked] == ["checkpoint"]
    assert world.line.asked[0]["lsn"] == world.lsn and CHECKPOINT in world.events()


def test_without_news_there_is_none(world: ManagerWorld) -> None:
    world.put([3])
    world.commit()
    world.follow(*[nothing] * 50)
    assert len(world.line.asked) == 1


def test_much_journal_brings_it_forward(world: ManagerWorld) -> None:
    world.settings = replace(world.settings, checkpoint_journal_bytes_max=64 * 1024)
    seen: list[int] = []

    def put() -> None:
        for _ in range(64 * 1024 // 128):
            world.put([3], priority=1)
        world.commit()

    world.follow(put, lambda: seen.append(world.checkpoint_lsn()))
    assert seen == [world.lsn]


def test_only_what_is_durable_is_applied(world: ManagerWorld) -> None:
    world.put([3])
    world.commit()
    durable_lsn = world.lsn
    world.put([3], flags=0)
    world.engine.commit()  # non-persistent: not synced
    world.follow()
    assert world.checkpoint_lsn() == durable_lsn


def test_a_stop_takes_a_last_one(world: ManagerWorld) -> None:
    world.put([3])
    world.commit()
    world.follow()
    assert world.checkpoint_lsn() == world.lsn and pool_of(world) == world.expected()
    assert lock_is_free(world)


def test_a_manager_that_stops_in_order_leaves_a_clean_pool(world: ManagerWorld) -> None:
    world.put([3])
    world.commit()
    world.follow(world.stop_in_order, nothing, nothing)
    control, _ = poolctrl.load(world.paths)
    assert control is not None and control.flags & ControlFlag.CLEAN and control.lsn == world.lsn
    assert world.signals.steps, "it did not go on without a manager"
    assert world.line.asked == []


def test_a_manager_that_is_killed_is_not_waited_for(world: ManagerWorld) -> None:
    before = world.checkpoint_lsn()
    world.put([3])
    world.commit()
    world.follow(world.vanish, nothing)
    assert world.checkpoint_lsn() == before and lock_is_free(world)


def test_another_manager_is_noticed(world: ManagerWorld) -> None:
    world.follow(lambda: world.publish(epoch=2), nothing, nothing)
    assert len(world.signals.steps) == 2


def test_it_goes_on_from_the_last_checkpoint(world: ManagerWorld) -> None:
    for _ in range(3):
        world.put([3])
        world.commit()
        world.follow()
    world.finish()
    world.follow()
    assert pool_of(world) == world.expected() == {}


@pytest.mark.dies
def test_it_finishes_what_a_killed_writer_left(world: ManagerWorld) -> None:
    from tests.unit.core.redo_world import Cut, CutDisk

    world.put([3])
    world.put([4])
    world.commit()
    durable.use(CutDisk(3))
    with pytest.raises(Cut):
        world.follow()
    durable.use(QuietDisk())
    world.finish()
    world.follow()
    assert pool_of(world) == world.expected() != {}


def test_a_manager_that_refuses_does_not_stop_checkpoints(world: ManagerWorld) -> None:
    world.line.refuse = NoAuthority(uid=1, action="admin", queue="POISON")
    world.rounds(3)
    assert world.checkpoint_lsn() == world.lsn
    assert world.events().count(FAILED) >= 3 and world.line.closed >= 3


def test_a_full_disk_postpones_it(world: ManagerWorld) -> None:
    class Full(QuietDisk):
        def pwritev(self, fd: int, buffers: Sequence[bytes | bytearray | memoryview],
                    offset: int) -> int:
            if "checkpoint.dw" in os.readlink(f"/proc/self/fd/{fd}"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().pwritev(fd, buffers, offset)

    before = world.checkpoint_lsn()
    world.put([3])
    world.commit()
    durable.use(Full())

    def room_again() -> None:
        durable.use(QuietDisk())

    world.follow(*[nothing] * 30, room_again)
    assert world.events().count(LATE) == 1
    assert before < world.checkpoint_lsn() == world.lsn
    assert pool_of(world) == world.expected()


def test_a_disk_error_ends_it(world: ManagerWorld) -> None:
    class Broken(QuietDisk):
        def fdatasync(self, fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    world.put([3])
    world.commit()
    made = world.following()
    durable.use(Broken())
    world.signals.stopping = True
    with pytest.raises(DiskError):
        made.follow()
    made.close()
    durable.use(QuietDisk())
    assert lock_is_free(world)


def test_damage_is_set_aside_and_reported(world: ManagerWorld) -> None:
    qpool = world.put([3], b"body" * 100)
    other = world.put([3])
    world.commit()
    t = world.core.t
    with (world.paths.journal / "0000000001.jnl").open("r+b") as file:
        file.seek(t.m_offset[t.slot_of(qpool)] + 200)
        file.write(b"X")
    world.follow()
    assert set(pool_of(world)) == {other}  # type: ignore[call-overload]
    assert [path.suffix for path in sorted(world.paths.quarantine.iterdir())] == [".bin", ".json"]
    assert 1312 in world.events()


def test_the_next_journal_file_is_prepared(world: ManagerWorld) -> None:
    world.follow(nothing)
    assert (world.paths.journal / PREPARED).stat().st_size == world.settings.journal_file_bytes


def test_status_and_signs_of_life(world: ManagerWorld) -> None:
    world.told.watchdog_s = 2.0
    world.put([3])
    world.commit()
    world.follow(*[nothing] * 12)
    said = [line for line in world.told.lines if line.startswith("STATUS=")]
    assert f"STATUS=checkpoint at LSN {world.lsn}, 0 frames behind, 1 journal files" in said
    assert world.told.lines.count("WATCHDOG=1") >= 12


def test_a_long_redo_gives_signs_of_life(world: ManagerWorld, monkeypatch: pytest.MonkeyPatch
                                         ) -> None:
    world.told.watchdog_s = 2.0
    beats: list[int] = []
    real = Redo._apply_one

    def slow(self: Redo, *frame: Any) -> None:  # each takes longer than the watchdog waits
        beats.append(world.told.lines.count("WATCHDOG=1"))
        world.signals.now_ns += 3_000_000_000
        real(self, *frame)

    monkeypatch.setattr("omq.core.redo.redo._PROGRESS_FRAMES", 1)
    monkeypatch.setattr(Redo, "_apply_one", slow)
    world.put([3, 4])
    world.put([3, 4])
    world.follow(*[nothing] * 12)
    for entry in world.give(3, 2):
        world.settle(entry)
    world.commit()
    world.follow(*[nothing] * 12)
    assert len(beats) > 1 and beats == sorted(set(beats))


# the daemon around it


def run(world: ManagerWorld) -> int:
    def connect(_paths: object, _timeout_s: float) -> object:
        return world.line

    return PoolWriter(world.context, connect).run()  # type: ignore[arg-type]


def test_it_is_ready_when_it_follows(world: ManagerWorld) -> None:
    world.signals.steps = [nothing]
    assert run(world) == 0
    assert world.told.lines.count("READY=1") == 1
    assert world.events()[0] == STARTED and world.events()[-1] == STOPPED


def test_without_a_manager_it_waits_and_holds_nothing(world: ManagerWorld) -> None:
    free: list[bool] = []
    world.vanish()
    world.signals.steps = [lambda: free.append(lock_is_free(world)), world.publish, nothing]
    assert run(world) == 0
    assert free == [True]
    assert world.told.lines[0] == "STATUS=waiting for the queue manager"
    assert "READY=1" in world.told.lines


def test_it_waits_for_the_lock_of_a_recovery(world: ManagerWorld) -> None:
    held = spool.lock(world.paths.pool_lock, "queue.manager, recovering")
    world.signals.steps = [nothing, nothing, held.close, nothing]
    world.put([3])
    world.commit()
    assert run(world) == 0
    assert "READY=1" in world.told.lines and world.checkpoint_lsn() == world.lsn


def test_it_waits_when_there_is_no_checkpoint(world: ManagerWorld) -> None:
    (world.paths.msgpool / "poolctrl").unlink()
    world.signals.steps = [nothing]
    assert run(world) == 0
    assert "READY=1" not in world.told.lines and lock_is_free(world)


def test_it_looks_less_often_while_nothing_is_new(world: ManagerWorld) -> None:
    def put() -> None:
        world.put([3])
        world.commit()

    world.follow(nothing, nothing, put, nothing, nothing)
    period = world.settings.pool_poll_ms / 1000
    assert world.signals.long_waits[:5] == [period, 4 * period, 4 * period, period, 4 * period]


def test_a_manager_that_ends_is_seen_at_once_even_before_it_is_reaped(world: ManagerWorld) -> None:
    manager = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        world.publish(pid=manager.pid)
        index = LiveIndex(world.paths)
        assert runs(index)
        manager.kill()
        assert select.select([index.pidfd], [], [], 30)[0], "its end wakes whoever waits"
        assert not runs(index)
        assert clock.process_start_ticks(manager.pid), "it is still to be reaped"
        index.close()
        late = LiveIndex(world.paths)
        assert not late.running
        late.close()
    finally:
        manager.kill()
        manager.communicate()
    after = LiveIndex(world.paths)
    assert after.pidfd == -1 and not after.running
    after.close()


def test_it_follows_the_next_manager(world: ManagerWorld) -> None:
    world.signals.steps = [world.vanish, nothing, world.publish, nothing]
    world.put([3])
    world.commit()
    assert run(world) == 0
    assert world.checkpoint_lsn() == world.lsn
    assert world.told.lines.count("READY=1") == 1


def test_a_reload_takes_new_settings(world: ManagerWorld) -> None:
    world.paths.conf.mkdir()
    (world.paths.conf / "omq.conf").write_text("[pool]\ncheckpoint_interval_s = 77\n")
    seen: list[int] = []
    watched = Following.follow

    def follow(self: Following) -> None:
        seen.append(self._settings.checkpoint_interval_s)
        watched(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Following, "follow", follow)
        world.signals.steps = [world.signals.request_reload, nothing, nothing]
        assert run(world) == 0
    assert seen == [10, 77] and 1004 in world.events()


def test_a_wrong_file_is_refused_at_a_reload(world: ManagerWorld) -> None:
    world.paths.conf.mkdir()
    (world.paths.conf / "omq.conf").write_text("[pool]\ncheckpoint_interval_s = never\n")
    world.signals.steps = [world.signals.request_reload, nothing]
    assert run(world) == 0
    assert 1005 in world.events()


def test_a_left_over_index_is_no_manager(world: ManagerWorld, monkeypatch: pytest.MonkeyPatch
                                         ) -> None:
    monkeypatch.setattr(clock, "process_start_ticks", lambda _pid: None)
    world.signals.steps = [nothing]
    assert run(world) == 0
    assert "READY=1" not in world.told.lines


def test_the_lock_says_who_holds_it(world: ManagerWorld) -> None:
    made = world.following()
    with pytest.raises(SpoolLocked, match=NAME):
        spool.lock(world.paths.pool_lock, "test")
    made.close()


def test_a_manager_that_goes_away_while_it_is_asked(world: ManagerWorld) -> None:
    world.line.refuse = ManagerUnavailable(spool=world.paths.root, reason="gone")
    world.rounds(1)
    assert world.checkpoint_lsn() == world.lsn and lock_is_free(world)
