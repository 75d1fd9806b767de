"""The message pool: checkpoints through the double-write file, single reads, bulk scans."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from omq.base import fault
from omq.base.errors import Damaged, DiskError, SpoolFull
from omq.format import double_write
from omq.format.findings import Finding, Kind
from omq.format.pool import (
    RECORD_BYTES,
    Message,
    PartState,
    QueuePart,
    RecordFlag,
    encode_file_header,
    encode_message,
)
from omq.storage import durable
from omq.storage.pool import DOUBLE_WRITE, PoolFiles
from omq.storage.spool import SpoolInfo
from tests.unit.format import samples
from tests.unit.format.samples import double_write_part
from tests.unit.storage.world import BROKEN, FULL, use_faulty

Changes = dict[tuple[int, int], bytes | None]


@pytest.fixture
def pool(info: SpoolInfo) -> PoolFiles:
    return PoolFiles(info.paths, info.uuid)


def _message(file: int, record: int, parts: int = 1, qpool: int = 0) -> Message:
    listed = [QueuePart(i + 1, 4, PartState.READY, 0, 0, 0, 0, 9) for i in range(parts)]
    more = [record + 1 + i for i in range(max(0, (parts - 1) // 16))]
    return replace(samples.pool_message(), file=file, record=record, parts=listed, more=more,
                   qpool=qpool or 1000 * file + record)


def _images(*messages: Message) -> Changes:
    return {(m.file, number): image for m in messages for number, image in encode_message(m)}


def _live(pool: PoolFiles) -> dict[tuple[int, int], int]:
    """(file, record) -> QPoolId of every valid message, by the bulk scan."""
    return {(chunk.file, chunk.first + int(i)): int(chunk.records["qpool"][i])
            for file in pool.files() for chunk in pool.scan(file)
            for i in np.flatnonzero(chunk.live)}


def _findings(pool: PoolFiles) -> list[Finding]:
    return [f for file in pool.files() for chunk in pool.scan(file) for f in chunk.findings]


def _spoil(info: SpoolInfo, name: str, offset: int, data: bytes) -> None:
    fd = os.open(info.paths.msgpool / name, os.O_RDWR)
    os.pwrite(fd, data, offset)
    os.close(fd)


def test_what_is_written_is_read(pool: PoolFiles) -> None:
    one, two = _message(3, 0), _message(3, 7, parts=40)
    pool.write(_images(one, two, _message(99, 2)))
    assert pool.files() == [3, 99]
    assert pool.read_record(3, 0) == one
    assert pool.read_record(3, 7) == replace(two, flags=two.flags | RecordFlag.MORE_RECORDS)
    assert pool.read_record(3, 8) is None, "a continuation is no message"
    assert pool.read_record(3, 1) is None
    assert pool.read_record(3, 5000) is None
    assert pool.read_record(4, 0) is None
    assert _live(pool) == {(3, 0): 3000, (3, 7): 3007, (99, 2): 99002}
    assert not _findings(pool)


def test_none_frees_the_slot(pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0), _message(0, 1)))
    pool.write({(0, 0): None})
    assert pool.read_record(0, 0) is None and _live(pool) == {(0, 1): 1}


def test_every_touched_file_is_synced_before_the_checkpoint(pool: PoolFiles) -> None:
    """IBM's APAR IC86846 is exactly one file forgotten."""
    pool.write(_images(*(_message(file, 0) for file in range(5))))
    disk = use_faulty()
    pool.write(_images(*(_message(file, record) for file in range(5) for record in (1, 2, 9))))
    staged = disk.calls.index(f"fsync {DOUBLE_WRITE}")
    for file in range(5):
        wrote = [i for i, call in enumerate(disk.calls) if call == f"write {file}QP"]
        (synced,) = [i for i, call in enumerate(disk.calls) if call == f"fdatasync {file}QP"]
        assert len(wrote) == 2, "neighbours are written together"
        assert staged < min(wrote) and max(wrote) < synced


def test_a_new_pool_file_is_durable_before_use(pool: PoolFiles) -> None:
    disk = use_faulty()
    pool.write(_images(_message(5, 0)))
    order = [disk.calls.index(call) for call in
             ("write 5QP.tmp", "fsync 5QP.tmp", "rename 5QP", "write 5QP", "fdatasync 5QP")]
    assert order == sorted(order)


def test_many_records_go_in_chunks(pool: PoolFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omq.storage.pool.COUNT_MAX", 10)
    disk = use_faulty()
    pool.write(_images(*(_message(0, record) for record in range(25))))
    assert len(_live(pool)) == 25
    chunks = [call for call in disk.calls if call in (f"fsync {DOUBLE_WRITE}", "fdatasync 0QP")]
    assert chunks == [f"fsync {DOUBLE_WRITE}", "fdatasync 0QP"] * 3


POINTS = ["pool.before_write", "pool.after_write", "pool.before_sync", "pool.after_sync"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("hit", [1, 2, 3])
def test_a_torn_record_is_repaired(info: SpoolInfo, point: str, hit: int) -> None:
    """Die at any step; then the sectors that were being written are garbage."""
    pool = PoolFiles(info.paths, info.uuid)
    pool.write(_images(_message(0, 0, qpool=1), _message(1, 0, qpool=2)))
    pool.close()
    pool = PoolFiles(info.paths, info.uuid)
    fault.arm(f"{point}:eio:{hit}")
    with pytest.raises(DiskError):
        pool.write(_images(_message(0, 0, qpool=11), _message(1, 0, qpool=12)))
    fault.arm("")
    disk = use_faulty()
    staged = not isinstance(double_write.decode(
        (info.paths.msgpool / DOUBLE_WRITE).read_bytes(), info.uuid), Finding)
    if staged:
        for file in (0, 1):
            _spoil(info, f"{file}QP", RECORD_BYTES, b"\x55" * RECORD_BYTES)
    again = PoolFiles(info.paths, info.uuid)
    assert again.recover_double_write() == (2 if staged else 0)
    wanted = {(0, 0): 11, (1, 0): 12} if staged else {(0, 0): 1, (1, 0): 2}
    assert _live(again) == wanted and not _findings(again) and not again.findings
    assert again.recover_double_write() == (2 if staged else 0), "idempotent"
    assert _live(again) == wanted
    assert disk.calls.count("fdatasync 0QP") == (2 if staged else 0)


def _encoded(uuid: bytes) -> bytes:
    """A double-write file that frees record 0 of file 0."""
    return double_write_part([(0, 0, bytes(512))], uuid, 2)


def test_a_torn_double_write_file_is_ignored(info: SpoolInfo, pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0, qpool=1)))
    image = _encoded(info.uuid)
    (info.paths.msgpool / DOUBLE_WRITE).write_bytes(image[:-1] + b"\1")
    again = PoolFiles(info.paths, info.uuid)
    assert again.recover_double_write() == 0
    assert _live(again) == {(0, 0): 1} and not again.findings


def test_a_foreign_double_write_file_is_reported(info: SpoolInfo, pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0, qpool=1)))
    image = _encoded(bytes(16))
    (info.paths.msgpool / DOUBLE_WRITE).write_bytes(image)
    again = PoolFiles(info.paths, info.uuid)
    assert again.recover_double_write() == 0
    assert [finding.kind for finding in again.findings] == [Kind.FOREIGN]
    assert _live(again) == {(0, 0): 1}


def test_a_cleared_double_write_file_is_the_normal_end(info: SpoolInfo, pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0)))
    assert PoolFiles(info.paths, info.uuid).recover_double_write() == 0


def test_a_full_disk_postpones_the_checkpoint(pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0, qpool=1)))
    disk = use_faulty()
    full = {"write": FULL}
    changes = _images(_message(0, 0, qpool=2), _message(1, 0, qpool=3))
    disk.failures.update(full)
    with pytest.raises(SpoolFull):
        pool.write(changes)
    assert durable.latched() is None
    disk.failures.clear()
    pool.write(changes)
    assert _live(pool) == {(0, 0): 2, (1, 0): 3}


def test_a_full_disk_in_place_keeps_the_double_write_file(info: SpoolInfo, pool: PoolFiles) -> None:
    """The staged chunk is finished before the double-write file is used for the next one."""
    pool.write(_images(_message(0, 0, qpool=1)))
    disk = use_faulty(create=FULL)  # 1QP cannot be made
    with pytest.raises(SpoolFull):
        pool.write(_images(_message(0, 0, qpool=2), _message(1, 0, qpool=3)))
    staged = (info.paths.msgpool / DOUBLE_WRITE).read_bytes()
    with pytest.raises(SpoolFull):
        pool.write(_images(_message(0, 0, qpool=9)))
    assert (info.paths.msgpool / DOUBLE_WRITE).read_bytes() == staged
    disk.failures.clear()
    pool.write(_images(_message(0, 0, qpool=9)))
    assert _live(pool) == {(0, 0): 9, (1, 0): 3}


def test_a_failed_sync_latches(pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0)))
    use_faulty(fdatasync=BROKEN)
    with pytest.raises(DiskError):
        pool.write(_images(_message(0, 1)))
    assert durable.latched() is not None


def test_truncate_tail(info: SpoolInfo, pool: PoolFiles) -> None:
    pool.write(_images(*(_message(0, record) for record in range(10))))
    pool.write({(0, record): None for record in range(4, 10)})
    assert pool.truncate_tail(0, 4)
    assert (info.paths.msgpool / "0QP").stat().st_size == 5 * RECORD_BYTES
    assert not pool.truncate_tail(0, 4) and not pool.truncate_tail(7, 0)
    assert len(_live(pool)) == 4
    pool.write(_images(_message(0, 20)))
    assert pool.read_record(0, 20) is not None and not _findings(pool)


def test_a_damaged_record_condemns_only_itself(info: SpoolInfo, pool: PoolFiles) -> None:
    pool.write(_images(*(_message(0, record) for record in range(5))))
    at = 3 * RECORD_BYTES + 100
    _spoil(info, "0QP", at, bytes([(info.paths.msgpool / "0QP").read_bytes()[at] ^ 0xaa]))
    (finding,) = _findings(pool)
    assert (finding.kind, finding.file, finding.record) == (Kind.CORRUPT, "0QP", 2)
    assert (finding.offset, finding.length) == (3 * RECORD_BYTES, RECORD_BYTES)
    assert sorted(_live(pool)) == [(0, 0), (0, 1), (0, 3), (0, 4)]
    assert pool.read_record(0, 2) == finding


def test_every_byte_of_a_record_counts(info: SpoolInfo, pool: PoolFiles) -> None:
    """One byte changed, anywhere in the used part: scan and single read agree that it is bad."""
    pool.write(_images(_message(0, 0, parts=2)))
    used = 176 + 2 * 21
    good = (info.paths.msgpool / "0QP").read_bytes()
    for at in range(used):
        _spoil(info, "0QP", RECORD_BYTES, good[RECORD_BYTES:])
        _spoil(info, "0QP", RECORD_BYTES + at, bytes([good[RECORD_BYTES + at] ^ 0x10]))
        single = pool.read_record(0, 0)
        assert isinstance(single, Finding), at
        assert _findings(pool) == [single] and not _live(pool)


@pytest.mark.parametrize("forge", ["state", "priority", "kind", "parts"])
def test_forged_records_are_judged_alike(info: SpoolInfo, pool: PoolFiles, forge: str) -> None:
    """A right CRC over wrong fields: bulk and single decoding agree."""
    from omq.base.checksum import crc32c
    from omq.format.pool import RECORD

    (_, image), = encode_message(_message(0, 0, parts=2))
    forged = bytearray(image)
    at, value = {"state": (RECORD.size + 2, 0x54), "priority": (RECORD.size + 2, 0x1A),
                 "kind": (RECORD.offset("kind"), 3),
                 "parts": (RECORD.offset("parts"), 3)}[forge]
    forged[at] = value
    used = RECORD.size + 2 * 21
    forged[4:8] = crc32c(bytes(forged[8:used])).to_bytes(4, "little")
    pool.write({(0, 0): bytes(forged)})
    single = pool.read_record(0, 0)
    assert isinstance(single, Finding) and single.kind is Kind.CORRUPT
    assert _findings(pool) == [single] and not _live(pool)


@pytest.mark.parametrize("spoil", ["loop", "missing", "other message"])
def test_broken_continuations(pool: PoolFiles, spoil: str) -> None:
    message = _message(0, 0, parts=40)
    images = _images(message)
    other = _images(replace(message, lsn=1))
    if spoil == "loop":
        images[0, 1] = encode_message(replace(message, more=[1, 1]))[1][1]  # 1 follows itself
    elif spoil == "missing":
        images[0, 1] = None
    else:
        images[0, 2] = other[0, 2]
    pool.write(images)
    found = pool.read_record(0, 0)
    assert isinstance(found, Finding) and found.kind is Kind.CORRUPT


def test_files_that_are_not_ours(info: SpoolInfo, pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0), _message(1, 0)))
    data = (info.paths.msgpool / "0QP").read_bytes()
    (info.paths.msgpool / "7QP").write_bytes(data)  # copied under another name
    (info.paths.msgpool / "8QP").write_bytes(encode_file_header(8, bytes(16), 0) + data[512:])
    (info.paths.msgpool / "9QP").write_bytes(data[:30])
    (info.paths.msgpool / "1000QP").write_bytes(b"not a pool file")
    (info.paths.msgpool / "01QP").write_bytes(b"not a pool file")
    assert pool.files() == [0, 1, 7, 8, 9]
    assert sorted(_live(pool)) == [(0, 0), (1, 0)]
    with pytest.raises(Damaged):
        pool.write(_images(_message(8, 0)))
    assert (info.paths.msgpool / "8QP").read_bytes()[512:] == data[512:]
    kinds = {(finding.file, finding.kind) for finding in _findings(pool)}
    assert kinds == {("7QP", Kind.FOREIGN), ("8QP", Kind.FOREIGN), ("9QP", Kind.SHORT)}


def test_a_damaged_file_header_hides_no_record(info: SpoolInfo, pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0)))
    was = (info.paths.msgpool / "0QP").read_bytes()[20]
    _spoil(info, "0QP", 20, bytes([was ^ 0xaa]))
    assert sorted(_live(pool)) == [(0, 0)]
    assert [finding.kind for finding in _findings(pool)] == [Kind.CORRUPT]


def test_a_cut_record(info: SpoolInfo, pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0), _message(0, 1)))
    os.truncate(info.paths.msgpool / "0QP", 3 * RECORD_BYTES - 1)
    assert sorted(_live(pool)) == [(0, 0)]
    (finding,) = _findings(pool)
    assert (finding.kind, finding.record) == (Kind.SHORT, 1)


def test_a_link_is_not_followed(info: SpoolInfo, pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0)))
    (info.paths.msgpool / "4QP").symlink_to(info.paths.msgpool / "0QP")
    (info.paths.msgpool / "5QP").mkdir()
    os.mkfifo(info.paths.msgpool / "6QP")
    assert [(finding.file, finding.kind) for finding in _findings(pool)] == [
        ("4QP", Kind.FOREIGN), ("5QP", Kind.FOREIGN), ("6QP", Kind.FOREIGN)]
    assert isinstance(pool.read_record(4, 0), Finding)
    assert pool.recover_double_write() == 0
    assert sorted(_live(pool)) == [(0, 0)] and durable.latched() is None


def test_a_tool_that_only_looks(info: SpoolInfo, pool: PoolFiles) -> None:
    pool.write(_images(_message(0, 0)))
    looking = PoolFiles(info.paths, info.uuid, write=False)
    assert sorted(_live(looking)) == [(0, 0)]
    assert looking.read_record(0, 0) is not None
    with pytest.raises(AssertionError):
        looking.write(_images(_message(0, 1)))


def test_chunks_cover_a_large_file(pool: PoolFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omq.storage.pool_scan.CHUNK_RECORDS", 8)
    pool.write(_images(*(_message(0, record) for record in range(0, 50, 3))))
    chunks = list(pool.scan(0))
    assert [chunk.first for chunk in chunks] == list(range(0, 49, 8))
    assert all(b.first - a.first == len(a.records) for a, b in pairwise(chunks))
    assert sorted(_live(pool)) == [(0, record) for record in range(0, 50, 3)]


def test_a_start_makes_the_names_that_it_finds_durable(pool: PoolFiles) -> None:
    """The writer before it may have been killed between a rename and the sync of the directory."""
    disk = use_faulty()
    pool.recover_double_write()
    assert disk.calls[0] == "dirsync msgpool"


def test_rows_of_a_file_that_cannot_be_read_are_not_free_slots(info: SpoolInfo, pool: PoolFiles
                                                               ) -> None:
    """Redo passes over what belongs to a free slot; of this it must hear."""
    slots = np.arange(3)
    rows, good = pool.read_rows(5, slots)
    assert not good.any() and not rows.tobytes().strip(b"\0"), "there is no such file: all free"
    (info.paths.msgpool / "5QP").symlink_to("elsewhere")
    rows, good = pool.read_rows(5, slots)
    assert not good.any() and all(row.tobytes().strip(b"\0") for row in rows)
    assert isinstance(pool.read_record(5, 0), Finding)
