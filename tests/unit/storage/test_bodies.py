"""Store files, volatile files, and the reader of payloads wherever they lie."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from omq.base.checksum import crc32c
from omq.base.errors import BodyUnavailable, DiskError, SpoolFull
from omq.format.findings import Kind
from omq.format.location import LocationKind, location
from omq.format.store import ENTRY
from omq.storage import durable, journal, store
from omq.storage.payloads import GAP_BYTES, PayloadReader, read_payload
from omq.storage.spool import SpoolInfo, create_spool
from omq.storage.store import (
    StoreWriter,
    remove_store_file,
    scan_store_file,
    store_numbers,
)
from omq.storage.volatile import VolatileBodies, volatile_numbers
from tests.unit.storage.world import BROKEN, FULL, PAGE, SETTINGS, Journal, use_faulty


@pytest.fixture
def writer(info: SpoolInfo) -> StoreWriter:
    return StoreWriter(info.paths, SETTINGS, info.uuid)


def _in_store(number: int) -> int:
    return location(LocationKind.STORE, number)


def test_what_is_stored_is_read(info: SpoolInfo, writer: StoreWriter) -> None:
    bodies = {qpool: bytes([qpool]) * (qpool * 700) for qpool in range(1, 40)}
    places = {qpool: writer.append(qpool, body) for qpool, body in bodies.items()}
    writer.sync()
    assert len(store_numbers(info.paths)) > 1, "it rotated"
    for qpool, (number, offset) in places.items():
        assert read_payload(info.paths, _in_store(number), offset, len(bodies[qpool])
                            ) == bodies[qpool]
    found = [entry for number in store_numbers(info.paths)
             for entry in scan_store_file(info.paths, number, info.uuid)[0]]
    assert [(entry.qpool, entry.length) for entry in found] == [(q, q * 700) for q in bodies]


def test_a_full_disk_takes_only_what_was_not_synced(info: SpoolInfo, writer: StoreWriter) -> None:
    """It ended pool.writer: a latched error, and a file that kept the space."""
    number, offset = writer.append(1, b"kept")
    writer.sync()
    path = info.paths.store / store.file_name(number)
    disk = use_faulty()
    writer.append(2, bytes(PAGE))
    disk.failures["write"] = FULL
    with pytest.raises(SpoolFull):
        writer.sync()
    assert durable.latched() is None and path.stat().st_size == 2 * PAGE
    disk.failures.clear()
    after, at = writer.append(3, b"later")
    writer.sync()
    assert (after, at) == (number, 2 * PAGE + ENTRY.size)
    assert read_payload(info.paths, _in_store(number), offset, 4) == b"kept"
    assert read_payload(info.paths, _in_store(number), at, 5) == b"later"


def test_copies_that_nobody_names_are_taken_back(info: SpoolInfo, writer: StoreWriter) -> None:
    number, offset = writer.append(1, b"kept")
    writer.sync()
    writer.append(2, bytes(3 * PAGE))
    writer.sync()
    writer.take_back()
    assert (info.paths.store / store.file_name(number)).stat().st_size == 2 * PAGE
    assert read_payload(info.paths, _in_store(number), offset, 4) == b"kept"
    writer.take_back()
    assert writer.append(3, b"x") == (number, 2 * PAGE + ENTRY.size)


def test_a_synced_entry_shares_no_page_with_a_later_write(
        info: SpoolInfo, writer: StoreWriter) -> None:
    ends = []
    for size in (1, 4096, 3 * PAGE - ENTRY.size):
        number, offset = writer.append(1, bytes(size))
        assert (offset - ENTRY.size) % PAGE == 0
        writer.sync()
        ends.append(offset + size)
        assert writer.offset % PAGE == 0 and writer.offset >= ends[-1]
        before = writer.offset
        writer.sync()
        assert writer.offset == before
    entries, findings = scan_store_file(info.paths, number, info.uuid)
    assert len(entries) == 3 and not findings


def test_nothing_is_made_before_the_first_append(info: SpoolInfo, writer: StoreWriter) -> None:
    writer.sync()
    writer.close()
    assert store_numbers(info.paths) == []


def test_every_start_has_a_new_file(info: SpoolInfo, writer: StoreWriter) -> None:
    writer.append(1, b"x")
    writer.close()
    again = StoreWriter(info.paths, SETTINGS, info.uuid)
    assert again.append(2, b"y")[0] == 2


def test_a_sync_is_really_one(writer: StoreWriter) -> None:
    disk = use_faulty()
    writer.append(1, b"x")
    writer.append(2, b"y")
    disk.calls.clear()
    writer.sync()
    assert disk.calls == ["write 0000000001.sto", "fsync 0000000001.sto"]
    disk.failures["fsync"] = BROKEN
    writer.append(3, b"z")
    with pytest.raises(DiskError):
        writer.sync()


def test_large_payloads_are_written_as_they_come(writer: StoreWriter) -> None:
    disk = use_faulty()
    number, offset = writer.append(1, bytes(3 << 20))
    assert disk.calls[-1] == "write 0000000001.sto"
    assert (number, offset) == (1, PAGE + ENTRY.size)


def test_the_newest_number_is_never_given_away(info: SpoolInfo, writer: StoreWriter) -> None:
    for qpool in range(1, 4):
        writer.append(qpool, bytes(50_000))
    writer.close()
    assert store_numbers(info.paths) == [1, 2, 3]
    assert remove_store_file(info.paths, 1) and not remove_store_file(info.paths, 1)
    assert remove_store_file(info.paths, 3)
    assert store_numbers(info.paths) == [2, 3]
    assert (info.paths.store / store.file_name(3)).stat().st_size == 512
    assert scan_store_file(info.paths, 3, info.uuid) == ([], [])
    assert StoreWriter(info.paths, SETTINGS, info.uuid).append(9, b"x")[0] == 4


def test_a_damaged_store_file(info: SpoolInfo, writer: StoreWriter) -> None:
    places = []
    for qpool in range(1, 5):
        places.append(writer.append(qpool, bytes(600))[1])
        writer.sync()
    path = info.paths.store / store.file_name(1)
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, b"\x55" * 20, places[1] - ENTRY.size + 4)
    os.close(fd)
    entries, findings = scan_store_file(info.paths, 1, info.uuid)
    assert [entry.qpool for entry in entries] == [1, 3, 4]
    assert [(finding.kind, finding.offset) for finding in findings] == [
        (Kind.CORRUPT, places[1] - ENTRY.size)]
    assert scan_store_file(info.paths, 1, bytes(16))[1][0].kind is Kind.FOREIGN


def test_bodies_in_the_journal_follow_it_to_the_archive(info: SpoolInfo) -> None:
    writer = Journal(info)
    at = writer.put(b"first", b"second")
    word = location(LocationKind.JOURNAL, 1)
    reader = PayloadReader(info.paths)
    assert reader.read(word, at + 5, 6) == b"second"
    name = journal.file_name(1)
    durable.rename(info.paths.journal / name, info.paths.archive / name)
    assert reader.read(word, at, 5) == b"first"
    assert read_payload(info.paths, word, at, 5) == b"first"
    durable.unlink(info.paths.archive / name)
    assert reader.read(word, at, 5) == b"first", "an open file outlives its name"
    with pytest.raises(BodyUnavailable) as caught:
        read_payload(info.paths, word, at, 5, 77)
    assert caught.value.fields["qpool_id"] == 77


def test_the_reader_closes_the_oldest(info: SpoolInfo, writer: StoreWriter) -> None:
    places = [writer.append(1, bytes([i]) * 50_000) for i in range(6)]
    writer.sync()
    reader = PayloadReader(info.paths, files_max=2)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        for i, (number, offset) in enumerate(places):
            assert reader.read(_in_store(number), offset, 50_000) == bytes([i]) * 50_000
    assert len(os.listdir("/proc/self/fd")) == before + 2
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("word", "offset", "length"), [
    (location(LocationKind.STORE, 9), 0, 1),  # no such file
    (location(LocationKind.STORE, 1), 0, 1 << 40),  # no length of a payload
    (location(LocationKind.STORE, 1), 1 << 62, 10),  # behind the end
    (location(LocationKind.STORE, 1), 0, 1 << 20),  # longer than the file
    (3 << 30, 0, 1),  # unknown kind
])
def test_hostile_locations(info: SpoolInfo, writer: StoreWriter, word: int, offset: int,
                           length: int) -> None:
    writer.append(1, b"x")
    writer.sync()
    with pytest.raises(BodyUnavailable):
        read_payload(info.paths, word, offset, length)


def test_links_and_unreadable_files(info: SpoolInfo, writer: StoreWriter) -> None:
    number, offset = writer.append(1, b"x")
    writer.sync()
    (info.paths.store / store.file_name(5)).symlink_to(info.paths.store / store.file_name(1))
    with pytest.raises(BodyUnavailable):
        read_payload(info.paths, _in_store(5), offset, 1)
    reader = PayloadReader(info.paths)
    use_faulty(read=BROKEN)
    with pytest.raises(BodyUnavailable):
        reader.read(_in_store(number), offset, 1)
    assert durable.latched() is None


def _read_volatile(info: SpoolInfo, number: int, offset: int, length: int) -> bytes:
    return read_payload(info.paths, location(LocationKind.VOLATILE, number), offset, length)


def test_volatile_bodies(info: SpoolInfo) -> None:
    bodies = VolatileBodies(info.paths, SETTINGS, info.uuid)
    disk = use_faulty()
    number, offsets = bodies.append([b"one", b"", b"three"])
    assert [_read_volatile(info, number, at, n) for at, n in zip(offsets, (3, 0, 5), strict=True)
            ] == [b"one", b"", b"three"]
    assert not [call for call in disk.calls if "sync" in call]
    assert bodies.live == {1: 3}


def test_a_volatile_file_goes_with_its_last_body(info: SpoolInfo) -> None:
    bodies = VolatileBodies(info.paths, SETTINGS, info.uuid)
    for _ in range(3):
        bodies.append([bytes(40_000)] * 2)
    assert volatile_numbers(info.paths) == [1, 2, 3]
    bodies.release(1)
    bodies.release(3, 2)
    assert volatile_numbers(info.paths) == [1, 2, 3], "the newest one stays"
    bodies.release(1)
    assert volatile_numbers(info.paths) == [2, 3]
    bodies.append([b"x"])
    assert volatile_numbers(info.paths) == [2, 4], "an empty one goes when the next is begun"


def test_a_start_empties_the_directory(info: SpoolInfo) -> None:
    VolatileBodies(info.paths, SETTINGS, info.uuid).append([b"x"])
    again = VolatileBodies(info.paths, SETTINGS, info.uuid)
    assert volatile_numbers(info.paths) == [2] and again.live == {2: 0}


def test_a_full_disk_refuses_volatile_bodies(info: SpoolInfo) -> None:
    bodies = VolatileBodies(info.paths, SETTINGS, info.uuid)
    disk = use_faulty(write=FULL)
    with pytest.raises(SpoolFull):
        bodies.append([b"x"])
    disk.failures.clear()
    number, (offset,) = bodies.append([b"y"])
    assert _read_volatile(info, number, offset, 1) == b"y" and bodies.live == {1: 1}


def test_many_at_once_go_to_the_places_of_one_after_the_other(
        info: SpoolInfo, writer: StoreWriter, tmp_path: Path) -> None:
    """Over the ends of files, and with payloads larger than a file."""
    bodies = [bytes([n % 251]) * size for n, size in enumerate(
        [0, 1, 7, 8, 9, 3000, 200_000, 5, *range(100, 900, 3)])]
    crcs = np.array([crc32c(body) for body in bodies])
    numbers, offsets = writer.append_many(np.arange(1, len(bodies) + 1), bodies, crcs)
    writer.sync()
    other = create_spool(tmp_path / "other")
    single = StoreWriter(other.paths, SETTINGS, other.uuid)
    assert [single.append(n + 1, body) for n, body in enumerate(bodies)] == list(
        zip(numbers.tolist(), offsets.tolist(), strict=True))
    single.sync()
    assert len(set(numbers.tolist())) > 2
    for paths in (info.paths, other.paths):
        reader = PayloadReader(paths)
        for number, offset, body in zip(numbers.tolist(), offsets.tolist(), bodies, strict=True):
            assert reader.read(_in_store(number), offset, len(body)) == body
        reader.close()
    for number in store_numbers(info.paths):
        found = [scan_store_file(each.paths, number, each.uuid) for each in (info, other)]
        assert found[0] == found[1] and not found[0][1]


def test_payloads_are_read_with_their_neighbours(info: SpoolInfo, writer: StoreWriter) -> None:
    disk = use_faulty()
    bodies = [bytes([n]) * 1000 for n in range(1, 9)]
    places = [writer.append(n, body)[1] for n, body in enumerate(bodies)]
    writer.sync()
    far = [*places[:4], places[4] + GAP_BYTES, places[5] + GAP_BYTES]  # the last is cut, then empty
    reader = PayloadReader(info.paths)
    disk.calls.clear()
    runs = list(reader.read_runs(_in_store(1), far, [1000] * 6))
    assert [(count, base) for count, base, _ in runs] == [(4, places[0]), (2, far[4])]
    data = runs[0][2]
    assert [data[at - places[0] : at - places[0] + 1000] for at in places[:4]] == bodies[:4]
    assert len(runs[1][2]) < 2000
    assert list(reader.read_runs(_in_store(9), [0], [10])) == [(1, 0, b"")], "no such file"
    assert list(reader.read_runs(_in_store(1), [0], [1 << 40])) == [(1, 0, b"")], "no length"
    assert list(reader.read_runs(_in_store(1), [], [])) == []
    reader.close()


@pytest.mark.parametrize("refusal", [0, errno.EAGAIN, errno.EOPNOTSUPP, errno.EIO])
def test_what_is_in_memory_is_read_without_a_wait(
        info: SpoolInfo, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch, refusal: int
        ) -> None:
    """Of a file that is open, and all of it or nothing; whatever is wrong is for `read` to say."""
    number, place = writer.append(1, b"a body")
    writer.sync()
    reader = PayloadReader(info.paths)
    asked = []

    def preadv(fd: int, buffers: Sequence[bytearray], offset: int, flags: int) -> int:
        asked.append(flags)
        if refusal:
            raise OSError(refusal, os.strerror(refusal))
        found = os.pread(fd, len(buffers[0]), offset)
        buffers[0][: len(found)] = found
        return len(found)

    monkeypatch.setattr(os, "preadv", preadv)
    word = _in_store(number)
    assert reader.read_now(word, place, 6) is None and not asked  # it is not open
    assert reader.read(word, place, 6) == b"a body"
    assert reader.read_now(word, place, 6) == (None if refusal else b"a body")
    assert reader.read_now(word, place + (1 << 30), 6) is None  # behind its end
    assert reader.read_now(word, place, 1 << 62) is None
    assert asked == [os.RWF_NOWAIT] * 2
    reader.close()
