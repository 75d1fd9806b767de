"""What redo does to many messages at once is what it does to one after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from omq.core.redo import Redo
from omq.format.journal import RELOCATION, FrameType
from omq.format.location import LocationKind, location
from omq.format.pool import PartState
from tests.unit.core.frames import LAST, Frames, MemoryPool, after, save

ONE_BY_ONE = 1 << 20
STORE = location(LocationKind.STORE, 4)
WIDE, DAMAGED, GONE, ELSEWHERE = 7, 9, 11, 13  # messages with which something is wrong


def pool_of_twenty() -> tuple[MemoryPool, int]:
    """Messages 1 to 20 in the pool, and the LSN so far."""
    frames = Frames()
    for qpool in range(1, 21):
        frames.put(qpool, (3, 4) if qpool == WIDE else (3,), record=qpool)
    _, pool = after(frames)
    image = bytearray(pool.slots[0, DAMAGED])
    image[100] ^= 1
    pool.slots[0, DAMAGED] = bytes(image)
    del pool.slots[0, GONE]
    return pool, frames.lsn


def given(frames: Frames) -> None:
    for qpool in range(1, 21):
        frames.add(FrameType.GIVE, qpool, 5 if qpool == ELSEWHERE else 3, record=qpool,
                   attempt=1, token=qpool << 40)


def moved(frames: Frames) -> None:
    rows = b"".join(RELOCATION.pack(qpool, STORE, 512 * qpool, qpool, 0) for qpool in range(1, 21))
    frames.add(FrameType.RELOCATE, 0, 0, payload=rows, parts=20)


def given_and_moved(frames: Frames) -> None:
    """Some of them both, one of them ended, one moved twice."""
    for qpool in range(1, 5):
        frames.add(FrameType.GIVE, qpool, record=qpool, attempt=1)
    moved(frames)
    frames.add(FrameType.DONE, 6, flags=LAST, record=6, parts=1)
    row = RELOCATION.pack(8, STORE, 99, 8, 0)
    frames.add(FrameType.RELOCATE, 0, 0, payload=row, parts=1)


def damaged_and_moved(frames: Frames) -> None:
    """A relocation that cannot be believed, before one that can."""
    row = RELOCATION.pack(2, STORE, 77, 2, 0)
    frames.add(FrameType.RELOCATE, 0, 0, payload=row, parts=1, crc=1)
    moved(frames)


def ended(frames: Frames) -> None:
    for qpool in (1, 2, 3, 14, 15, 16, 17, 18, 19, 20):
        frames.add(FrameType.DONE, qpool, flags=LAST, record=qpool, parts=1)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("last", [None, ended, moved])
@pytest.mark.parametrize("work", [given, moved, given_and_moved, damaged_and_moved])
def test_the_same_outcome(work: Callable[[Frames], None], last: Callable[[Frames], None] | None, *,
                          settled: bool) -> None:
    outcomes = []
    for many in (1, ONE_BY_ONE):
        pool, lsn = pool_of_twenty()
        frames, redo = Frames(lsn), Redo(pool, lsn=lsn, settled=settled, many=many)
        for each in (work, last):
            if each is not None:
                each(frames)
                redo.apply([frames.block()])
        assert bool(len(redo.images)) == (many == 1)
        findings = [(found.record, found.reason, found.lsn) for found in redo.findings]
        save(redo, pool)
        outcomes.append((sorted(findings), pool.slots))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0], "the damaged record was met"


def test_a_few_reads_for_many_messages() -> None:
    pool, lsn = pool_of_twenty()
    frames, redo = Frames(lsn), Redo(pool, lsn=lsn, settled=True)
    given(frames)
    pool.reads = 0
    redo.apply([frames.block()])
    assert pool.reads == 1 + 3  # all at once, then what does not fit: wide, damaged and gone
    assert len(redo.images) == 17
    save(redo, pool)
    message = pool.message(5)
    assert message is not None
    (part,) = message.parts
    assert (part.state, part.attempts) == (PartState.ACTIVE, 1)
    assert part.until == (message.lsn ^ 5 << 40 ^ 5 << 8) & 0xFFFFFFFF


def test_what_is_held_is_found_and_taken_out_once() -> None:
    pool, lsn = pool_of_twenty()
    frames, redo = Frames(lsn), Redo(pool, lsn=lsn, settled=True)
    given(frames)
    redo.apply([frames.block()])
    images = redo.images
    assert 5 in images and 21 not in images and "5" not in images
    born, loaded = images.drop(np.array([5, 21], dtype="<u8"))
    assert born.tolist() == [False, False] and loaded.tolist() == [True, False]
    assert 5 not in images and images.pop(5) is None and len(images) == 16
    popped = images.pop(6)
    assert popped is not None and popped[1] and popped[0][:2] == (0, 6)
    assert sorted(images.qpools().tolist()) == [
        n for n in range(1, 21) if n not in (5, 6, WIDE, DAMAGED, GONE)]
