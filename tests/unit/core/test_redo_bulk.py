"""What redo does to many messages at once is what it does to one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from omq.core.redo.redo import Redo
from omq.format.failure_note import FailureNote
from omq.format.journal import RELOCATION, FrameFlag, FrameType
from omq.format.location import LocationKind, location
from omq.format.pool import PartState
from tests.unit.core.frames import LAST, TIME_NS, Frames, MemoryPool, P, after, save

ONE_BY_ONE = 1 << 20
FAILED = int(FrameFlag.FAILED)
STORE = location(LocationKind.STORE, 4)
WIDE, DAMAGED, GONE, ELSEWHERE = 7, 9, 11, 13  # messages with which something is wrong
TAKEN, OWNER = 12, 112  # gone as well, and another message has its slot
FAILS = 15  # came here from queue 5, with a note of it in its record
PACKET = b'{"queue": "FIVE", "attempts": 3, "reason": "no price", "first_ns": 7}'


def pool_of_twenty() -> tuple[MemoryPool, int]:
    """Messages 1 to 20 in the pool, and the LSN so far."""
    frames = Frames()
    for qpool in range(1, 21):
        queues = {WIDE: (3, 4), FAILS: (5,)}.get(qpool, (3,))
        frames.put(qpool, queues, record=qpool)
    frames.add(FrameType.POISON, FAILS, 5, record=FAILS, target=3, reason=2, payload=PACKET)
    _, pool = after(frames)
    image = bytearray(pool.slots[0, DAMAGED])
    image[100] ^= 1
    pool.slots[0, DAMAGED] = bytes(image)
    del pool.slots[0, GONE]
    owner = Frames(frames.lsn)
    owner.put(OWNER, record=TAKEN)
    _, others = after(owner)
    pool.slots[0, TAKEN] = others.slots[0, TAKEN]
    return pool, owner.lsn


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


def some_given(frames: Frames) -> None:
    """Every other one, so that redo holds it already when all are looked at."""
    for qpool in range(1, 21, 2):
        frames.add(FrameType.GIVE, qpool, record=qpool, attempt=1, token=qpool << 40)


def put_off(frames: Frames) -> None:
    """All that changes an entry, each time enough for the bulk form."""
    until = 10**9 * 1_700_000_000
    for qpool in range(1, 21):
        kind = (FrameType.DEFER, FrameType.RELEASE_GIVEN, FrameType.HOLD, FrameType.GIVE)[qpool % 4]
        frames.add(kind, qpool, record=qpool, attempt=qpool % 3, argument=until + qpool,
                   flags=P | (FAILED if qpool % 8 == 0 else 0), token=qpool << 33)


def ended(frames: Frames) -> None:
    for qpool in (1, 2, 3, 14, 15, 16, 17, 18, 19, 20):
        frames.add(FrameType.DONE, qpool, flags=LAST, record=qpool, parts=1)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("last", [None, ended, moved, given, put_off])
@pytest.mark.parametrize("work", [given, moved, given_and_moved, damaged_and_moved, some_given,
                                  put_off])
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


def test_each_body_goes_to_its_own_place_whether_its_record_is_held_or_not() -> None:
    pool, lsn = pool_of_twenty()
    frames, redo = Frames(lsn), Redo(pool, lsn=lsn, settled=True, many=1)
    for work in (some_given, moved):
        work(frames)
        redo.apply([frames.block()])
    save(redo, pool)
    places = {qpool: message.offset for qpool in range(1, 21) if qpool != DAMAGED
              and (message := pool.message(qpool)) is not None}
    assert places == {qpool: 512 * qpool for qpool in range(1, 21)
                      if qpool not in (DAMAGED, GONE, TAKEN)}


def test_a_few_reads_for_many_messages() -> None:
    pool, lsn = pool_of_twenty()
    frames, redo = Frames(lsn), Redo(pool, lsn=lsn, settled=True)
    given(frames)
    pool.reads = 0
    redo.apply([frames.block()])
    assert pool.reads == 1 + 3  # all at once, then what does not fit: wide, damaged, with a note
    assert len(redo.images) == 15
    save(redo, pool)
    message = pool.message(5)
    assert message is not None
    (part,) = message.parts
    assert (part.state, part.attempts) == (PartState.ACTIVE, 1)
    assert part.until == (message.lsn ^ 5 << 40 ^ 5 << 8) & 0xFFFFFFFF


@pytest.mark.parametrize("many", [1, ONE_BY_ONE])
def test_a_record_that_is_newer_than_its_frame_stays(many: int) -> None:
    """A checkpoint was cut after it had written the pool, and redo begins before it again."""
    pool, lsn = pool_of_twenty()
    frames, redo = Frames(lsn), Redo(pool, lsn=lsn, many=many)
    given(frames)
    block = frames.block()
    moved(frames)
    redo.apply([block, frames.block()])
    save(redo, pool)
    message, before = pool.message(5), dict(pool.slots)
    assert message is not None and message.location == STORE
    again = Redo(pool, lsn=lsn, many=many)
    again.apply([block])
    save(again, pool)
    assert pool.slots == before


@pytest.mark.parametrize("many", [1, ONE_BY_ONE])
@pytest.mark.parametrize("work", [given, moved, given_and_moved, put_off])
def test_a_note_stays_while_its_message_is_on_that_queue(work: Callable[[Frames], None], many: int
                                                         ) -> None:
    pool, lsn = pool_of_twenty()
    frames, redo = Frames(lsn), Redo(pool, lsn=lsn, settled=True, many=many)
    work(frames)
    redo.apply([frames.block()])
    save(redo, pool)
    message = pool.message(FAILS)
    assert message is not None and message.lsn > lsn
    assert message.note == FailureNote(3, "FIVE", 2, 3, 7, TIME_NS, "no price")
    frames.move(FAILS, 3, (3,), record=FAILS)
    redo.apply([frames.block()])
    save(redo, pool)
    message = pool.message(FAILS)
    assert message is not None and message.note is None


@pytest.mark.parametrize("broken", [{"payload": b"{"}, {"payload": PACKET, "crc": 1},
                                    {"payload": b"7"}, {}])
def test_a_packet_that_cannot_be_believed_moves_its_message_without_a_note(
        broken: dict[str, Any]) -> None:
    pool, lsn = pool_of_twenty()
    frames, redo = Frames(lsn), Redo(pool, lsn=lsn, settled=True)
    frames.add(FrameType.POISON, FAILS, 3, record=FAILS, target=2, reason=2, **broken)
    redo.apply([frames.block()])
    save(redo, pool)
    message = pool.message(FAILS)
    assert message is not None and message.note is None and redo.findings == []
    assert [part.queue for part in message.parts] == [2] and message.origin == 3


def test_what_is_held_is_found_and_taken_out_once() -> None:
    pool, lsn = pool_of_twenty()
    frames, redo = Frames(lsn), Redo(pool, lsn=lsn, settled=True)
    given(frames)
    redo.apply([frames.block()])
    images = redo.images
    assert 5 in images and 21 not in images and "5" not in images
    born, loaded = images.drop(np.array([5, 21], dtype="<u8"))
    assert born.tolist() == [False, False] and loaded.tolist() == [True, False]
    assert 5 not in images and images.pop(5) is None and len(images) == 14
    popped = images.pop(6)
    assert popped is not None and popped[1] and popped[0][:2] == (0, 6)
    assert sorted(images.qpools().tolist()) == [
        n for n in range(1, 21) if n not in (5, 6, WIDE, DAMAGED, GONE, TAKEN, FAILS)]


def test_a_long_window_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute of deletions in one call: pool.writer was aborted by its watchdog, over and over."""
    monkeypatch.setattr("omq.core.redo.redo._PROGRESS_FRAMES", 5)
    signs: list[None] = []
    pool, lsn = pool_of_twenty()
    frames = Frames(lsn)
    redo = Redo(pool, lsn=lsn, settled=True, many=ONE_BY_ONE,
                progress=lambda: signs.append(None))
    given(frames)
    redo.apply([frames.block()])
    assert len(signs) == 4
