"""The order in which a checkpoint writes: what redo would need is never overwritten too early."""

from __future__ import annotations

import pytest

from omq.core.redo.pool_batches import Group
from omq.core.redo.pool_batches import batches as image_batches
from omq.core.redo.redo import Redo
from omq.format.journal import FrameType
from omq.format.pool import Record, decode_record
from tests.unit.core.frames import LAST, Frames, MemoryPool, after


def continued(frames: Frames, pool: MemoryPool) -> Redo:
    block = frames.block()
    redo = Redo(pool, lsn=int(block.frames["lsn"][0]) - 1, settled=True)
    redo.apply([block])
    return redo


def batches(redo: Redo, limit: int) -> list[Group]:
    return [images.changes() for images in image_batches(redo, limit)]


def holding(made: list[Group], record: int) -> int:
    """Which batch writes (or clears) a record."""
    (index,) = [i for i, batch in enumerate(made) if (0, record) in batch]
    return index


def test_births_and_changes_come_in_the_order_of_their_places() -> None:
    """A birth that the bulk form made, one that changed since, and what takes a place left."""
    frames = Frames()
    for qpool in range(1, 21):
        frames.put(qpool, record=40 - qpool)
    redo = continued(frames, MemoryPool())
    assert len(redo.images) == 20
    frames.add(FrameType.GIVE, 3, record=37)
    frames.add(FrameType.DONE, 5, flags=LAST, record=35, parts=1)
    redo.apply([frames.block()])
    assert len(redo.images) == 18
    made = batches(redo, 8)
    places = [record for batch in made for _, record in batch]
    assert places == [n for n in range(20, 40) if n != 35]
    for batch in made:
        for (file, record), image in batch.items():
            assert image is not None
            found = decode_record(image, 0, file, record)
            assert isinstance(found, Record) and found.message.qpool == 40 - record


@pytest.mark.parametrize("settled", [False, True])
def test_new_messages_that_end_in_a_later_call(*, settled: bool) -> None:
    """Dropped in bulk, with the same outcome as one frame after the other."""
    frames = Frames()
    for qpool in range(1, 21):
        frames.put(qpool, record=qpool)
    born = frames.block()
    frames = Frames(lsn=20)
    frames.add(FrameType.GIVE, 3, record=3)  # something else happens to it
    for qpool in (2, 3, 5, 19, 99):
        frames.add(FrameType.DONE, qpool, flags=LAST, record=qpool, parts=1)
    ends = frames.block()
    bulk, single = (Redo(MemoryPool(), settled=settled, many=many) for many in (8, 1000))
    for redo in (bulk, single):
        redo.apply([born])
        redo.apply([ends])
    assert bulk.images.qpools().tolist() == [n for n in range(1, 21) if n not in (2, 3, 5, 19)]
    assert len(bulk.images) == 16 and not len(single.images)
    assert bulk.changes() == single.changes() and bulk.clears == single.clears


def test_batches_are_bounded_and_complete() -> None:
    frames = Frames()
    for qpool in range(1, 101):
        frames.put(qpool, record=qpool)
    redo = continued(frames, MemoryPool())
    made = batches(redo, 30)
    assert [len(batch) for batch in made] == [30, 30, 30, 10]
    assert sorted(record for batch in made for _, record in batch) == list(range(1, 101))


def test_a_record_and_its_continuations_go_together() -> None:
    frames = Frames()
    for i in range(20):
        frames.put(i + 1, range(3, 43), record=3 * i)
    made = batches(continued(frames, MemoryPool()), 10)
    assert [len(batch) for batch in made] == [9] * 6 + [6]
    for i in range(20):
        assert len({holding(made, 3 * i + n) for n in range(3)}) == 1


def test_what_takes_the_old_place_of_a_message_goes_with_its_new_place() -> None:
    frames = Frames()
    frames.put(1, [3, 4], record=0)
    frames.put(2, [3, 4], record=1)
    _, pool = after(frames)
    frames.move(1, 3, range(5, 30), record=10, reason=0)
    for i in range(20):
        frames.put(50 + i, record=50 + i)
    frames.put(90, record=0)  # a new message where the pool still holds message 1
    made = batches(continued(frames, pool), 3)
    assert holding(made, 0) == holding(made, 10) == holding(made, 11)


def test_messages_that_take_each_others_places_go_together() -> None:
    frames = Frames()
    for qpool, record in ((1, 0), (2, 4), (3, 8)):
        frames.put(qpool, range(3, 20), record=record)
    _, pool = after(frames)
    for qpool, old, new in ((1, 0, 4), (2, 4, 8), (3, 8, 0)):
        frames.move(qpool, 3, range(20, 45), record=new, reason=old)
    made = batches(continued(frames, pool), 4)
    assert len(made) == 1, "longer than the limit, but never halved"


def test_slots_are_freed_last() -> None:
    frames = Frames()
    frames.put(1, [3, 4], record=0)
    frames.put(2, record=1)
    _, pool = after(frames)
    frames.move(1, 3, range(5, 30), record=10, reason=0)
    frames.add(FrameType.DONE, 2, flags=LAST, record=1, parts=1)
    frames.put(3, record=20)
    made = batches(continued(frames, pool), 2)
    assert [list(batch) for batch in made] == [[(0, 10), (0, 11)], [(0, 20)], [(0, 0), (0, 1)]]
    assert all(image is None for image in made[-1].values())


def test_a_continuation_goes_when_its_message_is_shortened() -> None:
    """A crash between the two would leave it behind for ever: redo finds the message up to date."""
    frames = Frames()
    frames.put(1, range(3, 20), record=0)
    frames.put(2, range(3, 40), record=4)
    _, pool = after(frames)
    frames.add(FrameType.DONE, 1, 3, record=0)
    frames.move(2, 3, [4], record=4, reason=4)
    for queue in range(5, 10):
        frames.add(FrameType.DONE, 2, queue, record=4)
    for i in range(20):
        frames.put(50 + i, record=50 + i)
    made = batches(continued(frames, pool), 2)
    assert holding(made, 0) == holding(made, 1)
    assert holding(made, 4) == holding(made, 5) == holding(made, 6)
    assert [made[holding(made, n)][0, n] is None for n in (0, 1, 4, 5, 6)] == [
        False, True, False, False, True]
