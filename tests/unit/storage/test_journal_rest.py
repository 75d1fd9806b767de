"""The zeros at the end of a journal file that is done: given back, and the same bytes as before."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.journal import file_name
from omq.storage.journal_reader import scan_journal
from omq.storage.journal_trim import give_back
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import Journal

MIB = 1 << 20


def _taken(path: Path) -> int:
    return path.stat().st_blocks * 512


def _found(info: SpoolInfo) -> list[int]:
    return [block.header.last_lsn for block in scan_journal(info.paths, info.uuid)]


@pytest.fixture
def old(info: SpoolInfo) -> Path:
    """A file with two blocks, and a new epoch's behind it."""
    journal = Journal(info)
    journal.put(b"one")
    journal.put(b"x" * 50_000)
    journal.restart(2)
    journal.put(b"two")
    journal.writer.close()
    return info.paths.journal / file_name(1)


def test_the_room_comes_back_and_the_bytes_stay(info: SpoolInfo, old: Path) -> None:
    before, blocks = old.read_bytes(), _found(info)
    given = give_back(info.paths, 1)
    assert len(before) - 3 * 4096 - 53_000 < given < len(before) - 50_000
    assert _taken(old) <= len(before) - given + 8192
    assert old.read_bytes() == before
    assert _found(info) == blocks
    assert give_back(info.paths, 1) == given, "again is the same"


@pytest.mark.parametrize("at", [-1, -4097, -70_000, 60_000])
def test_bytes_that_are_no_zeros_stay(info: SpoolInfo, old: Path, at: int) -> None:
    """A torn block, or damage: whoever looks for it finds it."""
    data = bytearray(old.read_bytes())
    data[at] = 1
    old.write_bytes(data)
    given = give_back(info.paths, 1)
    assert old.read_bytes() == data
    assert given <= len(data) - at % len(data) - 1


def test_a_file_of_zeros_and_a_full_one(info: SpoolInfo, tmp_path: Path) -> None:
    empty, full = (info.paths.journal / file_name(number) for number in (7, 8))
    empty.write_bytes(bytes(3 * MIB + 5))
    full.write_bytes(b"x" * (2 * MIB))
    assert give_back(info.paths, 7) == 3 * MIB + 5
    assert empty.read_bytes() == bytes(3 * MIB + 5)
    assert give_back(info.paths, 8) == 0
    assert give_back(info.paths, 9) == 0, "a file that is not there"


def test_a_file_system_that_cannot_keeps_it(info: SpoolInfo, old: Path) -> None:
    class Old(Disk):
        def punch(self, fd: int, offset: int, length: int) -> None:
            raise OSError(errno.EOPNOTSUPP, "not supported")

    before = old.read_bytes()
    disk = durable.use(Old())
    try:
        assert give_back(info.paths, 1) == 0
    finally:
        durable.use(disk)
    assert old.read_bytes() == before
