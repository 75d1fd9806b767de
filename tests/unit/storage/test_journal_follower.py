"""The follower gives what a scan gives, piece by piece, while the journal grows."""

from __future__ import annotations

import os

import pytest

from omq.format.findings import Kind
from omq.storage import journal, journal_follower
from omq.storage.journal_follower import JournalFollower
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import PAGE, Journal, use_faulty

ALL = 1 << 30


def _read(follower: JournalFollower, up_to: int, bytes_max: int = ALL) -> list[int]:
    return [int(lsn) for block in follower.read(up_to, bytes_max) for lsn in block.frames["lsn"]]


@pytest.fixture
def writer(info: SpoolInfo) -> Journal:
    return Journal(info)


def _follower(writer: Journal, number: int = 0, offset: int = 0, lsn: int = 0) -> JournalFollower:
    return JournalFollower(writer.info.paths, writer.info.uuid, number, offset, lsn)


def test_nothing_above_the_durable_lsn(writer: Journal) -> None:
    follower = _follower(writer)
    writer.fill(5)
    assert _read(follower, 3) == [1, 2, 3]
    assert _read(follower, 3) == []
    assert _read(follower, 5) == [4, 5]
    assert not follower.findings


def test_nothing_new_costs_no_call(writer: Journal) -> None:
    follower = _follower(writer)
    writer.fill(2)
    assert _read(follower, 2) == [1, 2]
    disk = use_faulty()
    assert _read(follower, 2) == [] and disk.calls == []


def test_it_follows_rotations_and_restarts(writer: Journal) -> None:
    follower = _follower(writer)
    seen: list[int] = []
    for _ in range(6):
        writer.fill(40)
        seen += _read(follower, writer.next_lsn - 1)
        writer.restart(writer.next_lsn - 1, next_lsn=writer.next_lsn + 100)
    assert seen == sorted(writer.bodies)
    assert not follower.findings
    assert len(journal.numbers_in(writer.info.paths.journal)) > 6


def test_who_knows_in_which_file_the_end_lies_looks_at_no_directory(
        writer: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only in that file: whoever is in an earlier one looks, and goes on in the next."""
    follower = _follower(writer)
    writer.fill(2)
    assert _read(follower, 2) == [1, 2]
    number = follower.number
    monkeypatch.setattr(journal_follower, "numbers_in", lambda _: pytest.fail("it looks"))
    writer.fill(1)
    assert [int(lsn) for block in follower.read(3, ALL, within=number)
            for lsn in block.frames["lsn"]] == [3]
    monkeypatch.undo()
    writer.restart(3, next_lsn=100)
    writer.fill(1)
    assert follower.read(100, ALL, within=number + 1)[0].number == number + 1
    assert not follower.findings
    follower.close()
    writer.writer.close()


def test_the_first_read_of_a_call_is_short_and_the_next_ones_grow(
        writer: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows closely finds one block, and after it zeros that nobody needs."""
    follower = _follower(writer)
    writer.fill(1)
    assert _read(follower, 1) == [1]
    reads = list[int]()
    window = JournalFollower._window

    def noted(self: JournalFollower, bytes_max: int) -> bytes:
        reads.append(bytes_max)
        return window(self, bytes_max)

    monkeypatch.setattr(JournalFollower, "_window", noted)
    writer.fill(1)
    assert _read(follower, 2) == [2] and reads == [8192]
    reads.clear()
    writer.fill(12)
    assert _read(follower, 14) == list(range(3, 15))
    assert reads[:2] == [8192, 65536] and max(reads) <= 1 << 20


def test_pieces(writer: Journal) -> None:
    follower = _follower(writer)
    writer.fill(50)
    writer.put(*[bytes(500)] * 60)
    seen: list[int] = []
    while piece := follower.read(writer.next_lsn - 1, 3 * PAGE):
        # the last block of a piece may go over, a block is never cut
        assert sum(block.header.length for block in piece[:-1]) <= 3 * PAGE
        seen += [int(lsn) for block in piece for lsn in block.frames["lsn"]]
    assert seen == list(range(1, writer.next_lsn))


def test_it_goes_on_from_a_position(writer: Journal) -> None:
    writer.fill(100)
    first = _follower(writer)
    _read(first, 60)
    second = _follower(writer, first.number, first.offset, first.last_lsn)
    assert _read(second, 100) == list(range(61, 101))
    assert not second.findings


def test_a_position_at_the_end_of_a_file(writer: Journal) -> None:
    writer.fill(3)
    first = _follower(writer)
    _read(first, 3)
    writer.restart(3)
    writer.fill(2)
    second = _follower(writer, first.number, first.offset, first.last_lsn)
    assert _read(second, 5) == [4, 5] and not second.findings


def test_void_blocks_do_not_come_out(writer: Journal) -> None:
    writer.fill(5)
    writer.restart(follows_lsn=3, next_lsn=9)
    writer.fill(2)
    follower = _follower(writer)
    assert _read(follower, 10) == [1, 2, 3, 9, 10]
    assert not follower.findings


def _spoil(writer: Journal, number: int, offset: int, data: bytes) -> None:
    path = writer.info.paths.journal / journal.file_name(number)
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, data, offset)
    os.close(fd)


@pytest.mark.parametrize("block", [0, 2, 4])
def test_damage_is_reported_and_passed(writer: Journal, block: int) -> None:
    writer.fill(5)
    _spoil(writer, 1, PAGE * (block + 1), bytes(PAGE))
    follower = _follower(writer)
    seen = _read(follower, 5)
    assert seen == [lsn for lsn in (1, 2, 3, 4, 5) if lsn != block + 1]
    writer.fill(3)
    assert _read(follower, 8) == [6, 7, 8]
    assert {finding.kind for finding in follower.findings} == {Kind.CORRUPT}
    assert follower.findings[0].lsn == block + 1


def test_damage_at_the_end_of_a_file(writer: Journal) -> None:
    writer.fill(3)
    writer.restart(3)
    writer.fill(2)
    _spoil(writer, 1, PAGE * 3, b"\xaa" * PAGE)
    follower = _follower(writer)
    assert _read(follower, 5) == [1, 2, 4, 5]
    assert Kind.CORRUPT in {finding.kind for finding in follower.findings}


def test_a_damaged_header(writer: Journal) -> None:
    writer.fill(3)
    writer.restart(3)
    writer.fill(2)
    _spoil(writer, 2, 16, b"\xaa" * 8)
    follower = _follower(writer)
    assert _read(follower, 5) == [1, 2, 3, 4, 5]
    assert {finding.kind for finding in follower.findings} == {Kind.CORRUPT}


def test_a_missing_file(writer: Journal) -> None:
    writer.fill(2)
    writer.restart(2)
    writer.fill(2)
    (writer.info.paths.journal / journal.file_name(1)).unlink()
    follower = _follower(writer, 1, PAGE, 0)
    assert _read(follower, 4) == [3, 4]
    assert [finding.kind for finding in follower.findings] == [Kind.GAP]


def test_no_journal_yet(info: SpoolInfo) -> None:
    follower = JournalFollower(info.paths, info.uuid)
    assert follower.read(10, ALL) == []
    writer = Journal(info)
    writer.fill(1)
    assert _read(follower, 1) == [1]
