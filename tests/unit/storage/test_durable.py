"""The latch, short writes, full disks, and files that appear whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from omq.base import fault
from omq.base.errors import DiskError, SpoolFull
from omq.storage import durable
from omq.storage.disk import Buffer, Disk
from omq.storage.files import (
    UNREADABLE,
    File,
    create_file,
    create_filled,
    open_file,
    read_file,
    read_salvaged,
    write_new_file,
)
from tests.unit.storage.world import BROKEN, FULL, file_size_limit, use_faulty


@pytest.fixture
def file(tmp_path: Path) -> File:
    return create_file(tmp_path / "file", "journal")


def test_short_writes_are_completed(file: File) -> None:
    use_faulty(step=7)
    parts: list[Buffer] = [b"first", b"", bytearray(b"second part"), memoryview(b"third" * 10)]
    file.write(parts, 3)
    assert file.read(1000, 0) == bytes(3) + b"".join(bytes(part) for part in parts)


def test_more_buffers_than_one_call_takes(file: File) -> None:
    parts = [bytes([i % 256]) * (i % 5) for i in range(5000)]
    file.write(parts, 0)
    assert file.read(20_000, 0) == b"".join(parts)


def test_a_real_short_write_ends_in_an_error(file: File) -> None:
    with file_size_limit(4096), pytest.raises(DiskError):
        file.write([bytes(10_000)], 0)
    assert file.size() == 4096  # the first call was short, the second one refused
    assert durable.latched() is not None


@pytest.mark.parametrize("call", ["write", "fdatasync", "fsync", "truncate", "rename", "dirsync"])
def test_the_first_error_latches(tmp_path: Path, file: File, call: str) -> None:
    disk = use_faulty(**{call: BROKEN})
    actions: dict[str, Callable[[], object]] = {
        "write": lambda: file.write([b"x"], 0), "fdatasync": file.sync, "fsync": file.sync_all,
        "truncate": lambda: file.truncate(0),
        "rename": lambda: durable.rename(file.path, tmp_path / "other"),
        "dirsync": lambda: durable.sync_directory(tmp_path)}
    with pytest.raises(DiskError) as first:
        actions[call]()
    disk.failures.clear()
    made = len(disk.calls)
    for action in actions.values():  # nothing is tried again, whatever the disk says now
        with pytest.raises(DiskError) as again:
            action()
        assert again.value is first.value
    assert len(disk.calls) == made


def test_fsync_is_not_repeated_after_it_failed(file: File) -> None:
    disk = use_faulty(fdatasync=BROKEN)
    for _ in range(3):
        with pytest.raises(DiskError):
            file.sync()
    assert disk.calls == ["fdatasync file"]


def test_a_full_disk_latches_inside_a_file_that_counts(file: File) -> None:
    use_faulty(write=FULL)
    with pytest.raises(DiskError):
        file.write([b"x"], 0)
    assert durable.latched() is not None


@pytest.mark.parametrize("call", ["write", "fsync", "create", "rename"])
@pytest.mark.parametrize("number", [FULL, errno.EDQUOT])
def test_a_full_disk_refuses_a_new_file(tmp_path: Path, call: str, number: int) -> None:
    disk = use_faulty(**{call: number})
    with pytest.raises(SpoolFull):
        write_new_file(tmp_path / "new", [b"content"])
    disk.failures.clear()
    assert durable.latched() is None
    assert os.listdir(tmp_path) == []
    write_new_file(tmp_path / "new", [b"content"]).close()


@pytest.mark.parametrize("number", [FULL, BROKEN])
def test_a_name_that_could_not_be_synced_latches(tmp_path: Path, number: int) -> None:
    """The file is there for everybody who looks, and may be gone after a power cut: nothing may
    be built on it by this process, also where only a full disk was the cause."""
    disk = use_faulty(dirsync=number)
    with pytest.raises(DiskError):
        write_new_file(tmp_path / "new", [b"content"])
    disk.failures.clear()
    with pytest.raises(DiskError):
        write_new_file(tmp_path / "another", [b"content"])


def test_a_refused_open_does_not_latch(tmp_path: Path) -> None:
    use_faulty(create=errno.EMFILE, unlink=errno.EACCES, mkdir=errno.EACCES)
    for action in (lambda: create_file(tmp_path / "new"), lambda: durable.unlink(tmp_path / "new"),
                   lambda: durable.make_directory(tmp_path / "folder")):
        with pytest.raises(DiskError):
            action()
    assert durable.latched() is None


def test_a_new_file_is_synced_before_it_has_its_name(tmp_path: Path) -> None:
    disk = use_faulty()
    file = write_new_file(tmp_path / "new", [b"con", b"tent"])
    assert read_file(tmp_path / "new", 100) == b"content"
    assert disk.calls == ["create new.tmp", "write new.tmp", "fsync new.tmp", "rename new",
                          f"dirsync {tmp_path.name}"]
    assert stat.S_IMODE(os.stat(file.path).st_mode) & 0o027 == 0


def test_create_filled_is_zeros(tmp_path: Path) -> None:
    file = create_filled(tmp_path / "zeros", (1 << 20) + 5)
    assert file.size() == (1 << 20) + 5
    assert file.read(2 << 20, 0) == bytes((1 << 20) + 5)
    found = os.stat(file.path)
    assert found.st_blocks * 512 >= found.st_size - 4096, "a file with holes is not filled"


def test_an_unfinished_file_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "new.tmp").write_bytes(b"left over and longer than the new content")
    write_new_file(tmp_path / "new", [b"content"])
    assert read_file(tmp_path / "new", 100) == b"content"


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd"
    (tmp_path / "target").write_bytes(b"x")
    if kind == "link":
        path.symlink_to(tmp_path / "target")
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(DiskError):
        open_file(path)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "missing")


def test_unreadable_pages_become_damage(tmp_path: Path) -> None:
    file = write_new_file(tmp_path / "new", [b"a" * 10_000])

    class BadSector(Disk):
        def pread(self, fd: int, length: int, offset: int) -> bytes:
            if offset < 4096 + 100 < offset + length:
                raise OSError(errno.EIO, "bad sector")
            return os.pread(fd, length, offset)

    durable.use(BadSector())
    with pytest.raises(DiskError):
        file.read(10_000, 0)
    data = read_salvaged(file, 10_000, 0, 4096)
    assert data == b"a" * 4096 + UNREADABLE * 4096 + b"a" * (10_000 - 8192)
    assert durable.latched() is None


def test_injected_errors_latch(file: File) -> None:
    fault.arm("journal.before_sync:eio:2")
    file.sync()
    with pytest.raises(DiskError):
        file.sync()
    assert durable.latched() is not None


class Syncs(Disk):
    """Notes what directories have when each is synced."""

    def __init__(self) -> None:
        self.found: list[tuple[str, list[str]]] = []

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.found.append((Path(path).name, sorted(os.listdir(path))))


def test_directories_are_synced_once_behind_the_last(tmp_path: Path) -> None:
    (top := tmp_path / "top").mkdir()
    durable.use(disk := Syncs())
    wanted = [(top / "a", 0o700), (top / "a/x", 0o500), (top / "b", 0o700), (top / "a/y", 0o500)]
    for _ in range(2):  # the second time as after a cut: names that are there are synced again
        durable.make_directories(wanted)
    assert disk.found == [("top", ["a", "b"]), ("a", ["x", "y"])] * 2
    assert [stat.S_IMODE(path.stat().st_mode) for path, _ in wanted] == [0o700, 0o500, 0o700, 0o500]


def test_small_operations(tmp_path: Path) -> None:
    assert durable.make_directory(tmp_path / "folder")
    assert not durable.make_directory(tmp_path / "folder")
    assert durable.list_directory(tmp_path) == ["folder"]
    assert durable.list_directory(tmp_path / "missing") == []
    assert durable.status(tmp_path / "missing") is None
    create_file(tmp_path / "folder" / "file").close()
    assert not durable.remove_directory(tmp_path / "folder")
    assert durable.unlink(tmp_path / "folder" / "file")
    assert not durable.unlink(tmp_path / "folder" / "file")
    assert durable.remove_directory(tmp_path / "folder")
    assert durable.free_bytes(tmp_path) > 0
