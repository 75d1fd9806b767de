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
from omq.storage import disk_reserve, disk_usage, durable, journal
from omq.storage.disk import Disk
from omq.storage.journal import PREPARED
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import Journal

MIB = 1 << 20


class Stated(Disk):
    """A file system of these numbers, in blocks of 1 MiB."""

    def __init__(self, free: int, inodes: int = 0, inodes_free: int = 0) -> None:
        self.said = (MIB, MIB, 1010, free + 10, free, inodes, inodes_free + 5, inodes_free, 0, 255)

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
    (300, False, False, 0.0, 0), (256, False, False, 0.0, 0), (192, False, True, 0.5, 64),
    (128, False, True, 1.0, 128), (127, True, True, 1.0, 129), (0, True, True, 1.0, 256)])
def test_lines_are_drawn_in_bytes(info: SpoolInfo, free: int, low: bool,  # noqa: FBT001
                                  short: bool, depth: float, wanted: int) -> None:  # noqa: FBT001
    """128 MiB of reserve, and two journal files of 64 MiB above it, of which one is prepared."""
    _next_file(info)
    durable.use(Stated(free))
    found = disk_usage.free(info.paths, DEFAULTS)
    assert (found.low, found.short, found.depth, found.wanted) == (low, short, depth, wanted * MIB)
    assert found.inodes is None
    assert found.late == (free < 96)


def _next_file(info: SpoolInfo) -> None:
    with (info.paths.journal / PREPARED).open("wb") as file:
        file.truncate(DEFAULTS.journal_file_bytes)


@pytest.mark.parametrize(("free", "low", "late", "depth"), [
    (192, False, False, 1.0), (191, True, False, 1.0), (159, True, True, 1.0),
    (224, False, False, 0.5)])
def test_a_next_file_that_is_not_made_counts_as_taken(
        info: SpoolInfo, free: int, low: bool, late: bool, depth: float) -> None:  # noqa: FBT001
    durable.use(Stated(free))
    found = disk_usage.free(info.paths, DEFAULTS)
    assert (found.low, found.late, found.depth) == (low, late, depth)
    assert found.lacking == (1 if low else 2)


def test_what_the_pool_grows_by_counts_as_taken(info: SpoolInfo) -> None:
    """A record of 512 bytes each, and a copy of one batch of them."""
    _next_file(info)
    durable.use(Stated(199))
    assert not disk_usage.free(info.paths, DEFAULTS).low
    found = disk_usage.free(info.paths, DEFAULTS, 131_072)
    assert found.low and found.debt == (131_072 + 16_384) * 512
    (info.paths.msgpool / "0QP").write_bytes(bytes(MIB))
    assert disk_usage.free(info.paths, DEFAULTS, 131_072).debt == found.debt - MIB
    assert disk_usage.free(info.paths, replace(DEFAULTS, disk_reserve_bytes=0), 131_072).debt == 0


def test_the_reserve_is_two_journal_files_at_least(info: SpoolInfo) -> None:
    small = replace(DEFAULTS, disk_reserve_bytes=1)
    assert disk_reserve.reserve_bytes(small) == 2 * DEFAULTS.journal_file_bytes
    assert disk_reserve.reserve_bytes(replace(DEFAULTS, disk_reserve_bytes=1 << 40)) == 1 << 40
    none = replace(DEFAULTS, disk_reserve_bytes=0)
    assert disk_reserve.reserve_bytes(none) == disk_reserve.least_bytes(none) == 0


@pytest.mark.parametrize(("free", "messages", "made"), [
    (160, 0, True), (159, 0, False), (159 + 32, 32_768, False), (160 + 32, 32_768, True)])
def test_the_next_file_leaves_three_quarters_of_the_reserve(
        info: SpoolInfo, monkeypatch: pytest.MonkeyPatch, free: int, messages: int,
        made: bool) -> None:  # noqa: FBT001
    """And the debt of the pool, here of 1 KiB a message."""
    monkeypatch.setattr(disk_reserve, "debt_bytes", lambda *said: said[2] * 1024)
    monkeypatch.setattr(journal, "create_filled", lambda path, size: path.open("wb"))
    durable.use(Stated(free))
    if made:
        assert journal.prepare_next(info.paths, DEFAULTS, messages)
        return
    with pytest.raises(SpoolFull, match="are to stay so"):
        journal.prepare_next(info.paths, DEFAULTS, messages)


def test_a_rotation_leaves_what_checkpoints_take(info: SpoolInfo) -> None:
    writer = Journal(info).writer
    writer.leave = lambda: 50 * MIB
    durable.use(Stated(50))
    with pytest.raises(SpoolFull, match="are to stay so"):
        writer.rotate(writer.last_lsn + 1, 1, 0)
    assert writer.file_number == 1
    durable.use(Stated(51))
    writer.rotate(writer.last_lsn + 1, 1, 0)
    assert writer.file_number == 2


@pytest.mark.parametrize(("reserve", "file", "key", "most"), [
    (900 * MIB, 64 * MIB, "disk_reserve_bytes", "868.0 MiB"), (868 * MIB, 64 * MIB, "", ""),
    (1, 250 * MIB, "journal_file_bytes", "249.0 MiB"), (1, 249 * MIB, "", ""),
    (900 * MIB, 250 * MIB, "journal_file_bytes", "249.0 MiB"), (0, 250 * MIB, "", "")])
def test_a_file_system_may_be_too_small_for_ever(info: SpoolInfo, reserve: int, file: int,
                                                 key: str, most: str) -> None:
    """It says what asks for too much, and with that changed it is not too small."""
    durable.use(Stated(5))
    settings = replace(DEFAULTS, disk_reserve_bytes=reserve, journal_file_bytes=file)
    found = disk_reserve.too_small(info.paths.journal, settings)
    assert bool(found) == bool(key)
    if found:
        assert (found.key, found.most) == (key, most)
        assert "1000.0 MiB in all" in found.text and f"set {key} to {most} or less" in found.text


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
