"""A repair, or a rebuild, that is killed before each of its durable calls and run again ends with
the same spool as one that was not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.disk import Buffer
from omqtools.omqrecover.apply import apply
from omqtools.omqrecover.plan import load_plan
from omqtools.omqrecover.rebuild import Bounds, rebuild
from tests.recovery import test_repair as damages
from tests.recovery.conftest import Dead
from tests.recovery.spool import SMALL, run, scan, start
from tests.unit.core.redo_world import Cut, QuietDisk

pytestmark = pytest.mark.dies

STEP = 3
"""Only every third call is cut: the first one of three differs from test to test."""


class Killed(QuietDisk):
    """Dies at the n-th call that changes the disk: before it, or in the middle of a write."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.calls = 0

    def _count(self) -> None:
        self.calls += 1
        if self.left == 0:
            raise Cut
        self.left -= 1

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        if self.left == 0:
            whole = b"".join(map(bytes, buffers))
            super().pwritev(fd, [whole[: len(whole) // 2]], offset)
        self._count()
        return super().pwritev(fd, buffers, offset)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)

    def mkdir(self, path: str, mode: int = 0o750) -> None:
        self._count()
        super().mkdir(path, mode)

    def truncate(self, fd: int, size: int) -> None:
        self._count()
        super().truncate(fd, size)

    def fsync(self, fd: int) -> None:
        self._count()

    def fdatasync(self, fd: int) -> None:
        self._count()


def result(root: Path) -> dict[str, bytes]:
    """What counts of a spool: not the double-write file, which recovery may leave as it likes."""
    left_out = ("checkpoint.dw", "lock", ".tmp")
    return {path: data for path, data in damages.contents(root).items()
            if not path.endswith(left_out)}


def calls_of(job: Callable[[Path], None], root: Path) -> int:
    """How many durable calls the job makes, uncut."""
    disk = Killed(1 << 30)
    durable.use(disk)
    job(root)
    durable.use(QuietDisk())
    return disk.calls


def every_cut(job: Callable[[Path], None], before: Path, work: Path, first: int) -> int:
    """Cut the job everywhere, run it again to the end each time; how many cuts there were."""
    whole = work / "whole"
    shutil.copytree(before, whole)
    calls = calls_of(job, whole)
    wanted = result(whole)
    cuts = 0
    for cut in range(first, calls, STEP):
        root = work / "cut"
        shutil.copytree(before, root)
        durable.use(Killed(cut))
        with pytest.raises(Cut):
            job(root)
        durable.use(QuietDisk())
        job(root)
        assert result(root) == wanted, f"cut before durable call {cut} of {calls}"
        shutil.rmtree(root)
        cuts += 1
    return cuts


@pytest.mark.parametrize("first", range(STEP))
def test_a_repair_may_be_killed_anywhere(dead: Dead, tmp_path: Path, first: int) -> None:
    """Records, headers, cut files, files that are moved and renamed."""
    for damage in (damages._extra_file, damages._lost_records, damages._duplicate,
                   damages._file_header, damages._cut_file, damages._orphan,
                   damages._renamed_journal):
        damage(dead)
    run("plan", dead.root, "--save", tmp_path / "plan")
    plan = load_plan(tmp_path / "plan")

    def job(root: Path) -> None:
        apply(SpoolPaths(root), dead.uuid, plan, lambda _: None, accept_loss=False)

    assert every_cut(job, dead.root, tmp_path, first) >= 5
    assert start(tmp_path / "whole", dead.uuid)[1] == dead.known


@pytest.mark.parametrize("first", range(STEP))
def test_going_on_after_a_loss_may_be_killed_anywhere(dead: Dead, tmp_path: Path, first: int
                                                      ) -> None:
    for number in (4, 5):
        (dead.paths.journal / f"{number:010d}.jnl").unlink()
    damages._torn_record(dead)
    run("plan", dead.root, "--save", tmp_path / "plan")
    plan = load_plan(tmp_path / "plan")

    def job(root: Path) -> None:
        apply(SpoolPaths(root), dead.uuid, plan, lambda _: None, accept_loss=True)

    assert every_cut(job, dead.root, tmp_path, first) >= 5
    assert scan(tmp_path / "whole")[0] == damages.LOSS  # bodies that were in these files


@pytest.mark.parametrize("first", range(STEP))
def test_a_rebuild_may_be_killed_anywhere(dead: Dead, tmp_path: Path, first: int,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    from omq.base import clock

    monkeypatch.setattr(clock, "wall_ns", lambda: 927_030_603_000_000_000)
    shutil.rmtree(dead.paths.msgpool)
    archive = tmp_path / "elsewhere"
    dead.paths.archive.rename(archive)
    dead.paths.archive.mkdir()
    wanted = Bounds(archive, until_lsn=dead.end_lsn - 3)

    def job(root: Path) -> None:
        rebuild(SpoolPaths(root), dead.uuid, SMALL, wanted, lambda _: None, accept_loss=False)

    assert every_cut(job, dead.root, tmp_path, first) >= 5
