"""A file system without inodes: puts are refused before it has none, and it is said which of the
two ran out, bytes or inodes."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import omq
from omq.base import events
from tests.process.instance import MANAGER, WRITER, Instance, instance
from tests.process.small_disk import mounted
from tests.process.test_history_gives_way import tool
from tests.waiting import until

INODES = 400
RESERVE = 40  # a tenth, for inode_reserve is more than that


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Instance]:
    with mounted(tmp_path / "disk", 64, INODES) as root, instance(root) as made:
        yield made


def test_inodes_are_kept_shown_and_named(few: Instance) -> None:
    few.settings(disk_reserve_bytes=0)
    few.start(MANAGER, WRITER)
    few.ready()
    filler = few.root.parent / "filler"
    filler.mkdir()
    with few.connect() as c, c.reader("A", batch=1) as reader:
        c.put("A", b"before")
        _fill(filler, leave=RESERVE // 4)
        until(lambda: _refused(c, b"small"))
        assert "fewer inodes are free than inode_reserve" in _why(c, b"small")
        for message in reader.next(timeout_s=60):
            message.done()
        reader.flush()
        assert reader.lost == 0
        said = tool(few, "omstat")
        assert re.search(rf"inodes LOW: \d+ of {INODES} free", said), said
        assert " files" in said
        assert "inodes LOW" in tool(few, "omq", "health")
        _fill(filler, leave=0)
        large = _why(c, bytes(400_000))
        assert f"no inode is free (all {INODES} of the file system are in use)" in large
        for path in filler.iterdir():
            path.unlink()
        until(lambda: not _refused(c, b"again"))
        c.put("A", bytes(400_000))
    (low, *_) = few.events(events.SPOOL_FULL.number)
    assert low["inodes"] < RESERVE
    few.drain("A")
    filler.rmdir()


def _fill(filler: Path, *, leave: int) -> None:
    """Until so few are free: the daemons make files, and remove some, meanwhile."""
    number = len(list(filler.iterdir()))
    while os.statvfs(filler).f_favail > leave:
        try:
            (filler / str(number)).touch()
        except OSError as error:
            assert error.errno == errno.ENOSPC, error  # somebody else took the last one
        number += 1


def _why(c: omq.Connection, body: bytes) -> str:
    with pytest.raises(omq.SpoolFull) as refused:
        c.put("A", body)
    return str(refused.value)


def _refused(c: omq.Connection, body: bytes) -> bool:
    try:
        c.put("A", body)
    except omq.SpoolFull:
        return True
    return False
