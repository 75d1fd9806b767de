"""What the journal says of messages that are not persistent: their queues and times, not their
bodies; and what is made of it: the archive's rows, the history that omqlog tells, redo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.core.history.frames import History
from omq.core.redo.window import Window
from omq.format.archive import Section
from omq.format.frame_rules import parts_at
from omq.format.journal import FrameFlag, FrameType
from omq.format.message import DESCRIPTOR, PART
from omq.storage.archive import cut
from omq.storage.journal import file_name
from omq.storage.journal_scan import FileScan
from tests.unit.engine.world import A, B, World, make_world

BODY = b"a body that is not to be seen"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[tuple[World, bytes, list[int]]]:
    """One put on one queue, on two, and with a delay; the journal file."""
    world = make_world(tmp_path / "spool")
    qpools = [world.put(A, body=BODY, persistent=False), world.put(A, B, body=BODY, priority=7,
                                                                    persistent=False),
              world.put(B, body=BODY, priority=2, persistent=False, delay_s=900)]
    path = world.info.paths.journal / file_name(world.writer.file_number)
    yield world, path.read_bytes(), qpools
    world.writer.close()
    world.core.volatile.close()  # type: ignore[attr-defined]


def frames_of(world: World, data: bytes) -> list[tuple[Any, bytes]]:
    scan = FileScan(data, world.writer.file_number, world.info.uuid)
    return [(frame, block.payload(int(frame["offset"]), int(frame["length"])))
            for block in scan for frame in block.frames if frame["type"] == FrameType.PUT]


def test_the_frame_carries_the_queues_and_nothing_else(
        journal: tuple[World, bytes, list[int]]) -> None:
    world, data, _ = journal
    (plain, none), (two, both), (late, one) = frames_of(world, data)
    assert (int(plain["flags"]) & FrameFlag.QUEUES, none) == (0, b"")
    for frame in (two, late):
        assert int(frame["flags"]) & FrameFlag.QUEUES
        assert not int(frame["flags"]) & FrameFlag.PERSISTENT
    assert [PART.unpack_from(both, at)[:2] for at in (0, PART.size)] == [(A, 7), (B, 7)]
    queue, priority, _, until = PART.unpack(one)
    assert (queue, priority) == (B, 2)
    assert until > 900
    assert BODY not in data
    assert (parts_at(FrameType.PUT, int(two["flags"])), parts_at(FrameType.PUT, 1)) == (
        0, DESCRIPTOR.size)


def test_the_archive_and_the_history_have_them(journal: tuple[World, bytes, list[int]]) -> None:
    world, data, (plain, two, late) = journal
    rows = cut(data, world.writer.file_number, world.info.uuid).sections[Section.PARTS]
    found = [(int(r["qpool"]), int(r["queue"]), int(r["priority"]), int(r["until"]) > 0)
             for r in rows]
    assert found == [(two, A, 7, False), (two, B, 7, False), (late, B, 2, True)]
    told = {happening.qpool: happening.targets for qpool in (plain, two, late)
            for happening in History(world.info.paths).of_message(qpool)
            if happening.kind is FrameType.PUT}
    assert [len(told[qpool]) for qpool in (plain, two, late)] == [0, 2, 1]


def test_redo_passes_over_them(journal: tuple[World, bytes, list[int]]) -> None:
    world, data, qpools = journal
    scan = FileScan(data, world.writer.file_number, world.info.uuid)
    window = Window.of(list(scan), 0)
    assert window is not None
    keep, brief = window.select()
    assert not set(qpools) & set(window.frames["qpool"][keep].tolist())
    assert not set(qpools) & set(brief.tolist())
