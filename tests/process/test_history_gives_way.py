"""Traffic that leaves nothing behind never fills a disk: the journal is retired and history goes
before a put is refused. On a file system that the traffic would fill several times over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import events
from omq.storage.archive import FRAMES_SUFFIX
from omq.storage.journal import numbers_in
from tests.process.instance import MANAGER, WRITER, Instance, instance
from tests.process.small_disk import mounted

DISK_MB = 64
BODY = 50_000
BATCH = 20
TIMES = 200
"""200 MB, of which nothing stays: three times the disk."""
MIB = 1 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Instance]:
    with mounted(tmp_path / "disk", DISK_MB) as root, instance(root) as made:
        yield made


@pytest.mark.parametrize("archive", ["delete", "keep"])
def test_no_put_is_refused_while_nothing_is_queued(small: Instance, archive: str) -> None:
    small.settings(disk_reserve_bytes=16 * MIB, archive=archive, journal_files_kept=4)
    small.start(MANAGER, WRITER)
    small.ready()
    through(small, TIMES)
    assert not small.events(events.SPOOL_FULL.number)
    said = {each["event"] for each in small.events()}
    if archive == "keep":
        assert events.ARCHIVE_PRUNED.number in said
        assert sum(each.stat().st_size for each in small.paths.archive.iterdir()) < (
            DISK_MB * MIB)
        numbers = numbers_in(small.paths.archive)
        assert numbers == [*range(numbers[0], numbers[-1] + 1)] if numbers else True
    else:
        assert not numbers_in(small.paths.archive) + numbers_in(small.paths.archive, FRAMES_SUFFIX)


def through(made: Instance, times: int) -> None:
    """Put and finish; SpoolFull is what must not come."""
    body = os.urandom(BODY)
    with made.connect("producer") as p, made.connect("consumer") as c, (
            c.reader("A", batch=BATCH)) as reader:
        for _ in range(times):
            p.put_many("A", [body] * BATCH)
            left = BATCH
            while left:
                for message in reader.next(timeout_s=60):
                    message.done()
                    left -= 1
