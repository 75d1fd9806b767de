"""Checkpoints on a real pool: what counts when, and a cut between any two steps."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from omq.base.errors import DiskError, SpoolFull
from omq.core.redo.checkpoint import Checkpointer
from omq.core.redo.redo import Redo
from omq.format.pool import RECORD_BYTES
from omq.format.poolctrl import ControlFlag, PoolControl
from omq.storage import durable, poolctrl
from tests.unit.core.redo_world import QUEUES, TIME_NS, Cut, CutDisk, QuietDisk, World, found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    before = durable.use(QuietDisk())
    made = World(tmp_path / "spool")
    yield made
    made.close()
    durable.use(before)


def control_of(world: World) -> PoolControl:
    control, _ = poolctrl.load(world.paths)
    assert control is not None
    return control


def take(world: World, redo: Redo | None = None) -> Redo:
    """Redo what is new, and take a checkpoint of it."""
    pool = world.pool()
    redo = redo or world.restart(pool)
    redo.apply(world.blocks(redo.lsn))
    Checkpointer(pool, redo, world.paths, world.info.uuid, world.settings).take(
        3, 1, 8192, TIME_NS)
    pool.close()
    return redo


def test_poolctrl_says_where_redo_goes_on(world: World) -> None:
    world.put([3])
    world.commit()
    redo = take(world)
    control = control_of(world)
    assert (control.lsn, control.epoch, control.journal, control.offset) == (world.lsn, 3, 1, 8192)
    assert (control.generation, control.pool_files, control.next_qpool) == (1, 1, 2)
    assert control.queues[3] == "Q3" and control.clients == redo.clients != {}
    assert redo.settled and redo.changes() == {}
    take(world)
    assert control_of(world).generation == 2


def test_the_result_counts_records(world: World) -> None:
    for _ in range(5):
        world.put([3])
    world.commit()
    pool = world.pool()
    redo = Redo(pool)
    redo.apply(world.blocks())
    beats: list[int] = []
    result = Checkpointer(pool, redo, world.paths, world.info.uuid, world.settings,
                          lambda: beats.append(1)).take(1, 1, 0, TIME_NS)
    assert (result.lsn, result.records, result.bytes) == (world.lsn, 5, 5 * RECORD_BYTES)
    assert beats
    pool.close()


def test_only_so_many_clients_are_remembered(world: World) -> None:
    for token in range(40):
        world.party.token = token + 1
        world.put([3])
    world.commit()
    world.settings = type(world.settings)(dedupe_clients_max=16)
    redo = take(world)
    assert len(redo.clients) == len(control_of(world).clients) == 16
    assert 40 in redo.clients


def test_a_clean_end_is_remembered(world: World) -> None:
    from omq.format.journal import FrameFlag, FrameType

    world.core.block.frame(FrameType.STOP, FrameFlag.PERSISTENT, 0, 0)
    world.commit()
    take(world)
    assert control_of(world).flags & ControlFlag.CLEAN
    world.put([3])
    world.commit()
    take(world)
    assert not control_of(world).flags


def test_free_space_at_the_end_is_cut(world: World) -> None:
    for _ in range(300):
        world.put([3])
    world.commit()
    take(world)
    (path,) = world.paths.msgpool.glob("*QP")
    assert path.stat().st_size == 301 * RECORD_BYTES
    keep = world.core.t.m_qpool[0]
    for entry in world.give(3, 300):
        if world.core.t.m_qpool[world.core.t.e_message[entry]] != keep:
            world.settle(entry)
    world.commit()
    take(world)
    assert path.stat().st_size == 2 * RECORD_BYTES
    assert set(found(world.pool())) == {keep}


def test_a_full_disk_postpones_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put([3])
    world.commit()
    pool = world.pool()
    redo = Redo(pool)
    redo.apply(world.blocks())
    checkpointer = Checkpointer(pool, redo, world.paths, world.info.uuid, world.settings)

    class Full(QuietDisk):
        def pwritev(self, fd: int, buffers: Sequence[bytes | bytearray | memoryview],
                    offset: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    durable.use(Full())
    with pytest.raises(SpoolFull):
        checkpointer.take(1, 1, 0, TIME_NS)
    durable.use(QuietDisk())
    assert poolctrl.load(world.paths)[0] is None and not redo.settled and redo.changes()
    world.put([4])
    world.commit()
    redo.apply(world.blocks(redo.lsn))
    checkpointer.take(1, 1, 0, TIME_NS)
    assert found(pool) == world.expected() and control_of(world).lsn == world.lsn
    pool.close()


@pytest.mark.dies
def test_a_disk_error_is_not_a_checkpoint(world: World) -> None:
    world.put([3])
    world.commit()

    class Broken(QuietDisk):
        def fdatasync(self, fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    durable.use(Broken())
    with pytest.raises(DiskError):
        take(world, Redo(world.pool()))
    durable.use(QuietDisk())
    assert poolctrl.load(world.paths)[0] is None


@pytest.mark.parametrize("writes", range(9))
def test_cut_at_each_write(world: World, writes: int) -> None:
    """Born, grown to another place, ended: in the pool, then changed, then cut, then more."""
    first, second = world.put([3, 4]), world.put([3])
    world.put(list(QUEUES)[:20])
    world.commit()
    take(world)
    entries = world.give(3, 3)
    world.move(entries[0], list(QUEUES)[2:30])
    world.settle(entries[1])
    third = world.put([5])
    world.commit()
    durable.use(CutDisk(writes))
    with pytest.raises(Cut):
        take(world)
        raise Cut  # a late cut: everything was written
    durable.use(QuietDisk())
    for entry in world.give(5, 50):
        world.settle(entry)
    world.commit()
    assert world.recover() == world.expected()
    assert first in world.expected() and second not in world.expected()
    assert third not in world.expected()


def test_recovery_needs_no_running_manager_and_may_be_repeated(world: World) -> None:
    world.put([3])
    world.commit()
    assert world.recover() == world.recover() == world.expected()
