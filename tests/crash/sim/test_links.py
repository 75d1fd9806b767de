"""A link in the spool is never followed: not by recovery, not by what comes behind it. Here on the
real disk, for links are what the system does; with the bug of history, the harness must see it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from unittest import mock

import pytest

from omq.base import clock
from omq.base.errors import OmqError
from omq.core.load.recovery import recover
from omq.storage import durable, spool
from omq.storage.disk import Disk
from omq.storage.journal import JournalWriter, prepare_next
from omq.storage.pool import PoolFiles
from omq.storage.volatile import VolatileBodies
from tests.crash.sim.life import SETTINGS
from tests.storage_files import files_of_the_test

__all__ = ["files_of_the_test"]
pytestmark = pytest.mark.dies

NAMES = ("msgpool/checkpoint.dw", "msgpool/poolctrl", "msgpool/poolctrl.tmp", "msgpool/0QP",
         "journal/0000000001.jnl", "journal/next.jnl", "journal/next.jnl.tmp",
         "journal/fresh.jnl.tmp", "journal/0000000002.jnl", "volatile/0000000001.vol",
         "volatile/0000000003.vol", "run/manager.lock", "msgpool/lock")
"""Names that a start opens, makes, renames over or removes."""


def start(root: Path) -> None:
    """What a start does to the files of a spool."""
    info = spool.open_spool(root, writer=True)
    locks = [spool.lock(info.paths.manager_lock, "x"), spool.lock(info.paths.pool_lock, "x")]
    pool = PoolFiles(info.paths, info.uuid)
    try:
        found = recover(info.paths, SETTINGS, info.uuid, pool, lambda text: None)
        writer = JournalWriter.open_epoch(
            info.paths, SETTINGS, info.uuid, found.epoch, found.first_lsn, found.lsn, found.journal,
            found.next_qpool, clock.wall_ns())
        VolatileBodies(info.paths, SETTINGS, info.uuid).close()
        prepare_next(info.paths, SETTINGS)
        writer.close()
    finally:
        pool.close()
        for lock in locks:
            lock.close()


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A spool that was started twice, so that all its files are there."""
    root = tmp_path / "used"
    spool.create_spool(root)
    start(root)
    start(root)
    return root


def touched(used: Path, folder: Path) -> list[str]:
    """For each name: is what a link of that name leads to, outside of the spool, still the same
    after a start? The names for which it is not."""
    out = []
    for name in NAMES:
        root = folder / name.replace("/", "-")
        shutil.copytree(used, root)
        victim = root.with_suffix(".victim")
        link = root / name
        if link.exists():
            shutil.copyfile(link, victim)
            link.unlink()
        else:
            victim.write_bytes(b"not of the spool" * 100)
        link.symlink_to(victim)
        before = victim.read_bytes(), victim.stat().st_mtime_ns
        durable.use(Disk())
        try:
            start(root)
        except OmqError as error:
            assert str(link.name) in str(error) or "lock" in str(error), error
        if (victim.read_bytes(), victim.stat().st_mtime_ns) != before:
            out.append(name)
    durable.use(Disk())
    return out


def test_no_start_follows_a_link(used: Path, tmp_path: Path) -> None:
    assert touched(used, tmp_path) == []


def test_the_harness_finds_a_recovery_that_follows_links(used: Path, tmp_path: Path) -> None:
    with mock.patch("omq.storage.disk._SAFE", os.O_CLOEXEC):
        found = touched(used, tmp_path)
    assert {"journal/next.jnl.tmp", "msgpool/lock", "run/manager.lock"} <= set(found)
