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
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.errors import DiskError, Exit, SpoolFull
from omq.base.settings import Settings
from omq.storage import containers, durable
from omq.storage.recycled_containers import Recycler, Taker
from omq.storage.spare_containers import SpareContainers
from omq.storage.spool import create_spool
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

    def __init__(self, place: Path, kind: str, *words: str) -> None:
        self._image = place / "image"
        self.mount = place / "mnt"
        self.mount.mkdir()
        self._mounted = False
        with self._image.open("wb") as file:
            file.truncate(MEGABYTES[kind] << 20)
        force = "-F" if kind == "ext4" else "-f"
        subprocess.run([f"mkfs.{kind}", "-q", force, *words, self._image], check=True)

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
def mounted(kind: str, *words: str) -> Iterator[Volume]:
    """A file system; skipped where it cannot be had."""
    if os.geteuid() or not Path("/dev/loop-control").exists():
        pytest.skip("NO REAL FILE SYSTEMS: loop mounts need root and /dev/loop-control")
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"NO {kind}: mkfs.{kind} is not installed")
    with tempfile.TemporaryDirectory(prefix="omq-") as name:
        volume = Volume(Path(name), kind, *words)
        try:
            volume.on()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"NO {kind}: {error}")
        try:
            yield volume
        finally:
            volume.off()


@contextmanager
def on_volume(kind: str, reserve: int = 0) -> Iterator[tuple[Volume, Run]]:
    """A run on a real file system; skipped where it cannot be had."""
    with mounted(kind) as volume, running(volume.mount / "spool", volume.mount.parent,
                                          reserve) as run:
        yield volume, run


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


SPARE_SETTINGS = replace(Settings(), disk_reserve_bytes=0, inode_reserve=0,
                         journal_file_bytes=4096)
SIZE = 3 << 20


class Bodies:
    """Containers on a volume, which are used again."""

    def __init__(self, volume: Volume) -> None:
        self.paths = create_spool(volume.mount / "spool").paths
        self.recycler = Recycler(self.paths, SPARE_SETTINGS)
        self.recycler.open()

    def put(self, letter: bytes, size: int = SIZE) -> str:
        ref, _, _ = containers.create(self.paths, [letter * size], SpareContainers(self.paths),
                                      size)
        assert self.get(ref, size) == letter * size
        return ref

    def get(self, ref: str, size: int = SIZE) -> bytes:
        return containers.read_item(self.paths, ref, size)

    def node(self, ref: str) -> int:
        return containers.path_of(self.paths, ref).stat().st_ino

    def files(self) -> int:
        return len(list(self.paths.data.glob("*/*")))


KINDS = pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])


@KINDS
def test_containers_are_used_again_on(kind: str) -> None:
    """Leases, mappings, lengths; on XFS and btrfs blocks that are another file's, too, which keeps
    its bytes."""
    with mounted(kind) as volume:
        bodies = Bodies(volume)
        first = bodies.put(b"a")
        node = bodies.node(first)
        for size in (SIZE, SIZE - 5, SIZE + 4097, 2 * SIZE, SIZE):
            assert bodies.recycler.end(first)
            first = bodies.put(b"b", size)
            assert bodies.node(first) == node
        with containers.path_of(bodies.paths, first).open("rb"):
            assert bodies.recycler.end(first)
        assert not bodies.files()
        source = volume.mount / "source"
        source.write_bytes(b"s" * SIZE)
        with source.open("rb") as shared:
            made = containers.clone(bodies.paths, shared.fileno(), lambda: None)
        assert (made is None) == (kind == "ext4")
        if made is not None:
            node = bodies.node(made[0])
            assert bodies.recycler.end(made[0])
            assert bodies.node(bodies.put(b"c")) == node
            assert source.read_bytes() == b"s" * SIZE


@KINDS
def test_a_body_over_a_spare_on_a_full(kind: str) -> None:
    """One that is too long, and any where overwriting takes blocks: it is refused whole, what it
    was written over goes, and the next finds room."""
    with mounted(kind) as volume:
        bodies = Bodies(volume)
        stays, ended = bodies.put(b"a"), bodies.put(b"b")
        assert bodies.recycler.end(ended)
        volume.fill(SIZE // 4)
        with (volume.mount / "rest").open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                os.fsync(file.fileno())
        with pytest.raises(SpoolFull):
            bodies.put(b"c", 2 * SIZE)
        assert durable.latched() is None and bodies.files() == 1
        assert bodies.recycler.end(stays)
        with suppress(SpoolFull):
            stays = bodies.put(b"d")
        (volume.mount / "ballast").unlink()
        (volume.mount / "rest").unlink()
        assert bodies.get(bodies.put(b"e")) == b"e" * SIZE
        bodies.recycler.give_back()
        assert durable.latched() is None


def test_without_inodes_containers_are_removed() -> None:
    """A spare needs none but for its offer."""
    with mounted("ext4", "-N", "512") as volume:
        bodies = Bodies(volume)
        first, second = bodies.put(b"a"), bodies.put(b"b")
        assert bodies.recycler.end(first)
        for number in range(600):
            try:
                (volume.mount / str(number)).touch()
            except OSError as error:
                assert error.errno == errno.ENOSPC
                break
        assert bodies.recycler.end(second) and bodies.files() == 1
        taken = bodies.put(b"c")
        assert bodies.get(taken) == b"c" * SIZE


def test_spares_of_a_file_system_that_becomes_read_only() -> None:
    """Nothing is taken, nothing is removed, and the next start has them."""
    with mounted("ext4") as volume:
        bodies = Bodies(volume)
        first, second = bodies.put(b"a"), bodies.put(b"b")
        assert bodies.recycler.end(first)
        subprocess.run(["mount", "-o", "remount,ro", volume.mount], check=True)
        with pytest.raises(DiskError):
            bodies.recycler.end(second)
        assert Taker(bodies.paths).take(SIZE) is None
        bodies.recycler.give_back()
        bodies.recycler.look_behind()
        assert bodies.files() == 2 and bodies.get(second) == b"b" * SIZE
        subprocess.run(["mount", "-o", "remount,rw", volume.mount], check=True)
        Recycler(bodies.paths, SPARE_SETTINGS).open()
        assert bodies.files() == 1
