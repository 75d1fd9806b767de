"""The journal writer: epochs, blocks, syncs, rotation, and what it leaves for a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omq.base import fault
from omq.base.errors import DiskError, SpoolFull
from omq.storage import durable, journal
from omq.storage.journal_reader import load_file, scan_journal
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import BROKEN, FULL, PAGE, SETTINGS, Journal, use_faulty


def _bodies(info: SpoolInfo) -> dict[int, bytes]:
    """What a reader finds: LSN -> payload, over all files."""
    found: dict[int, bytes] = {}
    for block in scan_journal(info.paths, info.uuid):
        for frame in block.frames:
            body = block.payload(int(frame["offset"]), int(frame["length"]))
            found[int(frame["lsn"])] = body
    return found


def test_what_is_appended_is_read(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.put(b"one")
    writer.put(b"two", b"", b"three" * 1000)
    writer.fill(100)
    assert writer.writer.file_number > 1, "it rotated"
    assert _bodies(info) == writer.bodies


def test_payloads_lie_where_append_says(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.put(b"a")
    at = writer.put(b"bb", b"ccc")
    data = load_file(info.paths.journal / journal.file_name(1))
    assert data[at : at + 5] == b"bbccc"


def test_blocks_take_whole_pages_written_once(info: SpoolInfo) -> None:
    writer = Journal(info)
    disk = use_faulty()
    for size in (1, 4096 - 256, 4096 - 255, 10_000):
        before = writer.writer.offset
        writer.put(bytes(size))
        assert before % PAGE == 0 == writer.writer.offset % PAGE
    assert disk.calls == ["write 0000000001.jnl", "fdatasync 0000000001.jnl"] * 4


def test_durable_lsn_moves_with_a_sync_only(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.put(b"1", b"2")
    assert writer.writer.durable_lsn == 2
    writer.put(b"3", sync=False)
    assert (writer.writer.durable_lsn, writer.writer.last_lsn) == (2, 3)
    writer.put(b"4")
    assert writer.writer.durable_lsn == 4
    headers = [block.header for block in scan_journal(info.paths, info.uuid)]
    assert [header.durable for header in headers] == [0, 2, 2]
    assert [header.flags for header in headers] == [0, 1, 0]


def test_it_is_told_what_is_written_before_the_sync(info: SpoolInfo) -> None:
    writer, told = Journal(info), list[tuple[int, int]]()
    disk = use_faulty()
    writer.writer.written = lambda lsn: told.append((lsn, len(disk.calls)))
    writer.put(b"1", b"2")
    writer.put(b"3", sync=False)
    writer.put(b"4")
    assert disk.calls == [f"{call} 0000000001.jnl" for call in (
        "write", "fdatasync", "write", "write", "fdatasync")]
    assert told == [(2, 1), (4, 4)], "behind the write, before the sync; of a block that has one"


def test_a_failed_sync_stops_the_writer(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.put(b"1")
    disk = use_faulty(fdatasync=BROKEN)
    with pytest.raises(DiskError):
        writer.put(b"2")
    assert writer.writer.durable_lsn == 1
    disk.failures.clear()
    for action in (writer.writer.sync, lambda: writer.writer.rotate(3, 1, 0)):
        with pytest.raises(DiskError):
            action()
    assert disk.calls.count("fdatasync 0000000001.jnl") == 1


def test_every_start_has_a_new_file_and_epoch(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.put(b"1")
    writer.restart(follows_lsn=1, next_lsn=50)
    writer.put(b"50")
    assert journal.numbers_in(info.paths.journal) == [1, 2]
    scan = scan_journal(info.paths, info.uuid)
    assert [block.header.epoch for block in scan] == [1, 2]
    assert not scan.findings and scan.last_lsn == 50


def test_numbers_are_not_used_again_after_archiving(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.put(b"1")
    writer.writer.close()
    durable.rename(info.paths.journal / journal.file_name(1),
                   info.paths.archive / journal.file_name(1))
    assert Journal(info, next_lsn=2).writer.file_number == 2


def test_rotation_uses_the_prepared_file(info: SpoolInfo) -> None:
    writer = Journal(info)
    assert journal.prepare_next(info.paths, SETTINGS)
    assert not journal.prepare_next(info.paths, SETTINGS)
    disk = use_faulty()
    writer.put(b"1", sync=False)
    writer.writer.rotate(2, 1, 0)
    assert disk.calls == [
        "write 0000000001.jnl", "fdatasync 0000000001.jnl",  # the old file is synced first
        "write next.jnl", "fdatasync next.jnl",  # a file has its header before it has its name
        "rename 0000000002.jnl", "dirsync journal",
        "write newest", "fdatasync newest"]  # and is noted before anything is in it
    assert writer.writer.durable_lsn == 1
    writer.put(b"2")
    assert _bodies(info) == writer.bodies


def test_a_prepared_file_of_another_size_is_not_used(info: SpoolInfo) -> None:
    journal.prepare_next(info.paths, replace(SETTINGS, journal_file_bytes=128 * 1024))
    writer = Journal(info)
    assert durable.status(info.paths.journal / journal.PREPARED) is not None
    assert writer.writer.room() == 256 * 1024 - PAGE
    assert journal.prepare_next(info.paths, SETTINGS)


def test_a_full_disk_leaves_the_current_file_in_use(info: SpoolInfo) -> None:
    writer = Journal(info)
    writer.put(b"1")
    disk = use_faulty(create=FULL)
    with pytest.raises(SpoolFull):
        writer.writer.rotate(2, 1, 0)
    with pytest.raises(SpoolFull):
        journal.prepare_next(info.paths, SETTINGS)
    disk.failures.clear()
    writer.put(b"2")
    assert writer.writer.file_number == 1
    assert _bodies(info) == writer.bodies


@pytest.mark.parametrize("point", ["journal.before_rotate", "durable.before_rename",
                                   "durable.after_rename", "journal.after_rotate"])
def test_a_cut_in_rotation_loses_nothing(info: SpoolInfo, point: str) -> None:
    writer = Journal(info)
    writer.put(b"1")
    journal.prepare_next(info.paths, SETTINGS)
    fault.arm(f"{point}:eio:1")  # stands for a death at this point
    with pytest.raises(DiskError):
        writer.writer.rotate(2, 1, 0)
    fault.arm("")
    use_faulty()
    scan = scan_journal(info.paths, info.uuid)
    assert [block.header.first_lsn for block in scan] == [1]
    assert not scan.findings
    again = Journal(info, next_lsn=2)
    again.put(b"2")
    assert _bodies(info) == {1: b"1", 2: b"2"}
