"""What a power cut leaves of files that were written through omq.testing.unsynced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omq.testing.unsynced import UnsyncedDisk, forget, undo


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (tmp_path / "spool").mkdir()
    return tmp_path / "spool"


def opened(disk: UnsyncedDisk, path: Path) -> int:
    return disk.open(str(path), os.O_RDWR | os.O_CREAT)


def test_what_was_synced_stays_and_the_rest_goes(spool: Path, tmp_path: Path) -> None:
    disk, log = UnsyncedDisk(tmp_path / "log"), tmp_path / "log"
    a, b = opened(disk, spool / "a"), opened(disk, spool / "b")
    disk.pwritev(a, [b"one", b"two"], 0)
    disk.pwritev(b, [b"never"], 0)
    disk.fdatasync(a)
    disk.pwritev(a, [b"XXX"], 0)
    disk.pwritev(a, [b"YYYY"], 5)
    disk.truncate(a, 2)
    assert undo(log, spool) == 4
    assert ((spool / "a").read_bytes(), (spool / "b").read_bytes()) == (b"onetwo", b"")
    assert undo(log, spool) == 0
    for fd in (a, b):
        disk.close(fd)
    disk.done()


def test_a_sync_by_another_process_counts(spool: Path, tmp_path: Path) -> None:
    killed, next_one = UnsyncedDisk(tmp_path / "log"), UnsyncedDisk(tmp_path / "log")
    fd = opened(killed, spool / "a")
    killed.pwritev(fd, [b"written"], 0)
    next_one.fsync(fd)
    assert undo(tmp_path / "log", spool) == 0
    assert (spool / "a").read_bytes() == b"written"
    os.close(fd)
    killed.done()
    next_one.done()


def test_a_hole_and_a_removed_file(spool: Path, tmp_path: Path) -> None:
    disk = UnsyncedDisk(tmp_path / "log")
    fd = opened(disk, spool / "a")
    disk.pwritev(fd, [bytes(4096), b"x" * 4096], 0)
    disk.fsync(fd)
    disk.punch(fd, 4096, 4096)
    gone = opened(disk, spool / "gone")
    disk.pwritev(gone, [b"gone"], 0)
    disk.unlink(str(spool / "gone"))
    assert undo(tmp_path / "log", spool) == 1
    assert (spool / "a").read_bytes() == bytes(4096) + b"x" * 4096
    for each in (fd, gone):
        os.close(each)
    disk.done()


def test_the_last_record_of_a_killed_process_may_be_torn(spool: Path, tmp_path: Path) -> None:
    disk = UnsyncedDisk(tmp_path / "log")
    fd = opened(disk, spool / "a")
    disk.pwritev(fd, [b"old"], 0)
    disk.fsync(fd)
    disk.pwritev(fd, [b"new"], 0)
    os.close(fd)
    disk.done()
    whole = (tmp_path / "log").read_bytes()
    for cut in range(whole.rindex(b"W"), len(whole)):
        (tmp_path / "log").write_bytes(whole[:cut])
        assert undo(tmp_path / "log", spool) == 0
        assert (spool / "a").read_bytes() == b"new"
    (tmp_path / "log").write_bytes(whole)
    forget(tmp_path / "log")
    assert undo(tmp_path / "log", spool) == 0
