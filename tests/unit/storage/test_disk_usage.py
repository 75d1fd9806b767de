"""What fills a spool, what is left, and what ran out."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.errors import OmqError, SpoolFull
from omq.base.paths import SpoolPaths
from omq.base.settings import DEFAULTS
from omq.storage import disk_usage, durable
from omq.storage.disk import Disk
from omq.storage.spool import SpoolInfo

MIB = 1 << 20


class Stated(Disk):
    """A file system of these numbers, in blocks of 1 MiB."""

    def __init__(self, free: int, inodes: int = 0, inodes_free: int = 0) -> None:
        self.said = (MIB, MIB, 1000, free + 10, free, inodes, inodes_free + 5, inodes_free, 0, 255)

    def statvfs(self, path: str) -> os.statvfs_result:
        return os.statvfs_result(self.said)

    def mkdir(self, path: str, mode: int = 0) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_every_part_is_measured_by_its_own_name(info: SpoolInfo) -> None:
    for number, folder in enumerate(disk_usage.PARTS.values(), start=1):
        below = info.paths.root / folder / "deep"
        below.mkdir(parents=True)
        (below / "file").write_bytes(os.urandom(number * 100_000))
    found = disk_usage.filled(info.paths)
    assert set(found.parts) == set(disk_usage.PARTS) and not found.at_least
    assert found.files["mail"] == 2 and "2 files" in found.files_text
    for number, part in enumerate(disk_usage.PARTS, start=1):
        assert number * 100_000 <= found.parts[part] <= number * 100_000 + 50_000, part


def test_a_part_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    found = disk_usage.filled(SpoolPaths(tmp_path / "gone"))
    assert found.parts == {} and found.text == ""


def test_very_many_files_are_counted_up_to_a_number_and_that_is_said(info: SpoolInfo) -> None:
    for number in range(30):
        (info.paths.data / str(number)).write_bytes(bytes(4096))
    found = disk_usage.filled(info.paths, files_max=10)
    assert found.parts["containers"] == 10 * 4096 and "containers" in found.at_least
    assert "containers at least 40.0 KiB" in found.text


@pytest.mark.parametrize(("parts", "says", "command"), [
    ({"archive": 300 * MIB, "journal": 200 * MIB, "store": MIB, "logs": 5},
     "archive 300.0 MiB, journal 200.0 MiB, store 1.0 MiB", "omq-archive"),
    ({"archive": 60 * MIB, "journal": 400 * MIB, "store": 0}, "journal 400.0 MiB, archive 60.0 MiB",
     "omq-archive"),
    ({"archive": 0, "journal": 400 * MIB}, "journal 400.0 MiB;", "pool.writer"),
    ({"containers": 400 * MIB, "archive": MIB}, "containers 400.0 MiB", "omscan"),
    ({"mail": MIB}, "mail 1.0 MiB", "read or remove mail"),
    ({"quarantine": MIB}, "quarantine 1.0 MiB", "quarantine/"),
    ({"logs": MIB}, "logs 1.0 MiB", "event_log_bytes_max")])
def test_the_largest_are_named_with_the_command_that_helps(parts: dict[str, int], says: str,
                                                           command: str) -> None:
    text = disk_usage.Filled(parts).text
    assert says in text and command in text
    assert set(disk_usage.REMEDIES) == set(disk_usage.PARTS)


@pytest.mark.parametrize(("free", "low", "short", "depth", "wanted"), [
    (300, False, False, 0.0, 0), (192, False, False, 0.0, 0), (128, False, True, 0.5, 64),
    (64, False, True, 1.0, 128), (63, True, True, 1.0, 129), (0, True, True, 1.0, 192)])
def test_lines_are_drawn_in_bytes(info: SpoolInfo, free: int, low: bool,  # noqa: FBT001
                                  short: bool, depth: float, wanted: int) -> None:  # noqa: FBT001
    """64 MiB of reserve, and two journal files of 64 MiB above it."""
    durable.use(Stated(free))
    found = disk_usage.free(info.paths, DEFAULTS)
    assert (found.low, found.short, found.depth, found.wanted) == (low, short, depth, wanted * MIB)
    assert found.inodes is None
    assert found.half == (free < 32)


@pytest.mark.parametrize(("inodes", "free", "low", "short"), [
    (0, 0, False, False), (10_000, 512, False, False), (10_000, 511, False, True),
    (10_000, 255, True, True), (1000, 150, False, True), (1000, 99, True, True)])
def test_lines_are_drawn_in_inodes_where_they_are_counted(
        info: SpoolInfo, inodes: int, free: int, low: bool, short: bool) -> None:  # noqa: FBT001
    """256 of them, a tenth of few; 0 in all: btrfs makes them as it needs them."""
    durable.use(Stated(900, inodes, free))
    found = disk_usage.free(info.paths, DEFAULTS)
    assert (found.low, found.short) == (low, short)
    assert found.history_wanted == int(short) and found.lacking == 2
    assert not disk_usage.free(info.paths, replace(DEFAULTS, inode_reserve=0)).low


@pytest.mark.parametrize(("inodes", "free", "says"), [
    (5000, 0, "no inode is free (all 5000 of the file system are in use), though"),
    (5000, 1, "No space left on device"), (0, 0, "No space left on device")])
def test_what_was_refused_says_which_of_the_two_ran_out(info: SpoolInfo, inodes: int, free: int,
                                                        says: str) -> None:
    durable.use(Stated(50, inodes, free))
    with pytest.raises(OmqError) as refused:
        durable.make_directory(info.paths.data / "0000001")
    assert isinstance(refused.value, SpoolFull) and says in str(refused.value)
