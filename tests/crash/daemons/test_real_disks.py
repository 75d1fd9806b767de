"""L5: real file systems on loop devices: power cuts by FS_IOC_SHUTDOWN on ext4 and XFS, a full ext4
and btrfs, a file system that goes read-only. Part of `make crash` (OMQ_CRASH_LONG=1), not of CI.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omq.base.errors import Exit
from omqtools.omqtest.instance import MANAGER
from tests.crash.daemons.test_storm import LONG
from tests.crash.daemons.world import Run, ipc_objects, running, until

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2  # as if the power went: not even the file system's own log is written
PUTS = 25
LIVES = 5
MEGABYTES = {"ext4": 128, "xfs": 320, "btrfs": 160}

pytestmark = pytest.mark.skipif(
    not LONG, reason="real file systems are part of `make crash` (OMQ_CRASH_LONG=1)")


class Volume:
    """A file system in a file, mounted below `place`."""

    def __init__(self, place: Path, kind: str) -> None:
        self._image = place / "image"
        self.mount = place / "mnt"
        self.mount.mkdir()
        self._mounted = False
        with self._image.open("wb") as file:
            file.truncate(MEGABYTES[kind] << 20)
        force = "-F" if kind == "ext4" else "-f"
        subprocess.run([f"mkfs.{kind}", "-q", force, self._image], check=True)

    def on(self, options: str = "loop") -> None:
        subprocess.run(["mount", "-o", options, self._image, self.mount], check=True)
        self._mounted = True

    def off(self) -> None:
        if self._mounted:  # after a cut the mount point cannot even be looked at
            self._mounted = False
            subprocess.run(["umount", self.mount], check=True)

    def let_go(self) -> None:
        """Unmount below running processes."""
        self._mounted = False
        subprocess.run(["umount", "-l", self.mount], check=True)

    def cut(self) -> None:
        """Nothing reaches the disk from now on."""
        fd = os.open(self.mount, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, NO_LOG_FLUSH.to_bytes(4, "little"))
        finally:
            os.close(fd)

    def fill(self, leave: int) -> None:
        """A file that takes what is free but `leave` bytes."""
        found = os.statvfs(self.mount)
        step = found.f_bavail * found.f_frsize - leave
        with (self.mount / "ballast").open("wb") as file:
            while step > 65536:  # btrfs needs some of what it calls free for itself
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), step)
                    return
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    step = step * 3 // 4


@contextmanager
def on_volume(kind: str, reserve: int = 0) -> Iterator[tuple[Volume, Run]]:
    """A run on a real file system; skipped where it cannot be had."""
    if os.geteuid() or not Path("/dev/loop-control").exists():
        pytest.skip("NO REAL FILE SYSTEMS: loop mounts need root and /dev/loop-control")
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"NO {kind}: mkfs.{kind} is not installed")
    with tempfile.TemporaryDirectory(prefix="omq-") as name:
        place = Path(name)
        volume = Volume(place, kind)
        try:
            volume.on()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"NO {kind}: {error}")
        try:
            with running(volume.mount / "spool", place, reserve) as run:
                yield volume, run
        finally:
            volume.off()


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cuts(kind: str) -> None:
    """Several lives; what was acknowledged is there after each cut."""
    with on_volume(kind) as (volume, run):
        for _ in range(LIVES):
            run.start()
            run.load.keep()
            run.more(PUTS)
            volume.cut()
            run.crash()
            subprocess.run(["ipcrm", "-a"], check=True)
            assert ipc_objects() == 0
            volume.off()
            volume.on()
        run.start()
        run.load.keep(putters=0)
        assert run.verdict().acknowledged >= LIVES * PUTS


@pytest.mark.parametrize(("kind", "reserve"), [("ext4", 0), ("ext4", 4 << 20), ("xfs", 4 << 20),
                                               ("btrfs", 0), ("btrfs", 8 << 20)])
def test_full(kind: str, reserve: int) -> None:
    """Full under load (on btrfs in-place writes fail too): refused or ended, never lost."""
    with on_volume(kind, reserve) as (volume, run):
        run.start()
        run.load.keep()
        run.more(PUTS)
        volume.fill(reserve // 2 + (1 << 20))
        until(lambda: any('"no"' in path.read_text() for path in run.load.histories.iterdir())
              or run.instance.running[MANAGER].poll() is not None, "a refused put")
        run.crash()
        (volume.mount / "ballast").unlink()
        run.start()
        run.load.keep()
        run.more(PUTS)
        run.verdict()


def test_read_only() -> None:
    """Remounted read-only under load: the manager ends with 74, a start says why; writable again,
    all is there."""
    with on_volume("ext4") as (volume, run):
        run.start()
        run.load.keep(readers=0)
        run.more(PUTS)
        # Files are open for writing: what an error of the disk does (errors=remount-ro), asked for.
        volume.let_go()
        run.crash()
        volume.on("loop,ro")
        run.instance.start(MANAGER)
        assert run.instance.wait_dead(MANAGER) in (Exit.IO, Exit.CANT_CREATE)
        assert "Read-only file system" in run.instance.said()
        volume.off()
        volume.on()
        run.start()
        run.load.keep()
        run.more(PUTS)
        run.verdict()
