"""Traffic that leaves nothing behind never fills a disk: the journal is retired and history goes
before a put is refused. On a file system that the traffic would fill several times over."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import omq
from omq.base import events
from omq.base.config import load_settings
from omq.storage import history, holds
from omq.storage.archive import FRAMES_SUFFIX
from omq.storage.journal import numbers_in
from tests.process.instance import MANAGER, WRITER, Instance, instance
from tests.process.processes import run_program
from tests.process.small_disk import mounted
from tests.waiting import until

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
        small.stop()  # no file goes while they are counted
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


def test_a_disk_full_of_held_history_is_told_with_the_command(small: Instance) -> None:
    """Each tool names archive/, its size and omq-archive; with the hold gone, puts go on."""
    small.settings(disk_reserve_bytes=16 * MIB, archive="keep", journal_files_kept=1)
    small.start(MANAGER, WRITER)
    small.ready()
    with history.changing(small.paths, "test"):
        holds.make(small.paths, holds.Hold("base", 0, "test", lives=False)).close()
    refused: list[str] = []

    def full() -> bool:
        try:
            through(small, 10)
        except omq.SpoolFull as error:
            refused.append(str(error))
        drain(small)
        return bool(refused) and "archive" in refused[-1]

    until(full)
    assert "less is free than disk_reserve_bytes" in refused[-1]
    assert "'omq-archive' removes the oldest history" in refused[-1]
    until(lambda: "LOW" in tool(small, "omstat"))
    for command in ("omstat", "omqwhy A", "omqadvise", "omq health"):
        said = tool(small, *command.split())
        assert "disk space LOW" in said and "MiB free" in said, (command, said)
        assert "in the spool: archive" in said and "'omq-archive' removes" in said, (command, said)
    shown = [json.loads(line) for line in tool(small, "omstat", "--json").splitlines()]
    assert shown[0]["space_parts"]["archive"] > shown[0]["space_parts"]["store"] >= 0
    assert shown[0]["space_low"] is True
    told = small.events(events.SPOOL_FULL.number)[-1]
    # The next journal file, while it is not made, is as good as taken.
    assert told["free_bytes"] < 16 * MIB + load_settings(small.conf).journal_file_bytes
    assert tool(small, "omq-archive", "--holds").startswith("base  from 0000000000.oma on: test")
    assert tool(small, "omq-archive", "--release", "base") == ""
    until(lambda: goes(small))
    assert small.events(events.ARCHIVE_PRUNED.number)[0]["reason"] == "the disk is short"


def goes(made: Instance) -> bool:
    try:
        through(made, 1)
    except omq.SpoolFull:
        return False
    return True


def drain(made: Instance) -> None:
    made.drain("A")


def tool(made: Instance, *argv: str) -> str:
    """What it says, on both of its outputs."""
    done = run_program(argv[0], [*argv[1:], "--spool", str(made.root), "--conf", str(made.conf)])
    assert done.returncode in (0, 1), done
    return (done.stdout + done.stderr).decode()
