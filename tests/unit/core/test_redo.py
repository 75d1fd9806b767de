"""Redo, frame by frame: what each kind does to the pool record of its message."""

from __future__ import annotations

import pytest

from omq.core.redo.redo import Redo
from omq.format.journal import RELOCATION, FrameFlag, FrameType
from omq.format.location import LocationKind, location
from omq.format.message import Descriptor, derived_id
from omq.format.pool import PartState, QueuePart, RecordFlag
from tests.unit.core.frames import (
    LAST,
    SECONDS,
    TIME_NS,
    Frames,
    MemoryPool,
    P,
    after,
    save,
)

READY, ACTIVE, DEFERRED, HELD = (
    PartState.READY, PartState.ACTIVE, PartState.DEFERRED, PartState.HELD)


def part_of(pool: MemoryPool, qpool: int, queue: int = 3) -> QueuePart:
    message = pool.message(qpool)
    assert message is not None
    return next(part for part in message.parts if part.queue == queue)


def queues_of(pool: MemoryPool, qpool: int) -> list[int]:
    message = pool.message(qpool)
    assert message is not None
    return [part.queue for part in message.parts]


def test_put_makes_a_record() -> None:
    frames = Frames()
    identity = derived_id(bytes(16), 99)
    lsn = frames.put(7, body=b"hello", record=5, file=3, pid=42, uid=1000, lease=1,
                     argument=TIME_NS, descriptor=Descriptor(
                         message_id=identity, correlation_id=b"c".ljust(24, b"\0"),
                         group_id=b"g".ljust(24, b"\0"), application=b"program", reply_to=9,
                         trace_id=b"\1" + bytes(15), report=2, group_sequence=8))
    redo, pool = after(frames)
    message = pool.message(7)
    assert message is not None
    assert (message.file, message.record, message.lsn, message.time_ns) == (3, 5, lsn, TIME_NS)
    assert (message.message_id, message.reply_to, message.report) == (identity, 9, 2)
    assert (message.location, message.offset) == (location(LocationKind.JOURNAL, 1), 8192)
    assert (message.size, message.pid, message.uid, message.expiry) == (5, 42, 1000, TIME_NS)
    assert message.flags == RecordFlag.PERSISTENT | RecordFlag.HAS_ID
    assert (message.trace, message.application, message.group_sequence) == (1, b"prog", 8)
    assert message.parts == [QueuePart(3, 4, READY, 0, 0, 0, SECONDS, lsn)]
    assert (redo.lsn, redo.next_qpool) == (lsn, 8)


def test_put_on_several_queues_and_deferred() -> None:
    frames = Frames()
    frames.put(7, [3, 4, 5], until=SECONDS + 60)
    _, pool = after(frames)
    assert queues_of(pool, 7) == [3, 4, 5]
    assert (part_of(pool, 7).state, part_of(pool, 7).until) == (DEFERRED, SECONDS + 60)


def test_queues_in_the_payload_count_only_if_the_manager_checked_them() -> None:
    frames = Frames()
    frames.put(7, [8, 9])
    block = frames.block()
    rows = block.frames.copy()
    rows["parts"], rows["queue"] = 0, 3
    block.frames = rows
    pool = MemoryPool()
    redo = Redo(pool, settled=True)
    redo.apply([block])
    save(redo, pool)
    assert queues_of(pool, 7) == [3]


def test_an_id_counts_only_if_the_manager_knows_it() -> None:
    frames = Frames()
    frames.put(7, lease=0, descriptor=Descriptor(message_id=b"i" * 24))
    _, pool = after(frames)
    message = pool.message(7)
    assert message is not None and not message.flags & RecordFlag.HAS_ID


def test_more_than_sixteen_queues_take_several_records() -> None:
    frames = Frames()
    frames.put(7, range(3, 43), record=10)
    _, pool = after(frames)
    assert sorted(pool.slots) == [(0, 10), (0, 11), (0, 12)]
    assert queues_of(pool, 7) == list(range(3, 43))
    frames.add(FrameType.DONE, 7, 3, record=10)
    _, pool = after(frames, pool)
    assert queues_of(pool, 7) == list(range(4, 43))
    frames.add(FrameType.DONE, 7, 4, record=10, flags=LAST, parts=3)
    _, pool = after(frames, pool)
    assert pool.slots == {}


def test_a_record_that_is_not_needed_any_more_is_cleared() -> None:
    frames = Frames()
    frames.put(7, range(3, 20), record=10)
    _, pool = after(frames)
    frames.add(FrameType.DONE, 7, 3, record=10)
    _, pool = after(frames, pool)
    assert sorted(pool.slots) == [(0, 10)]


def test_give_counts_the_attempt_and_keeps_the_lease() -> None:
    frames = Frames()
    frames.put(7, [3, 4])
    lease = frames.add(FrameType.GIVE, 7, 3, attempt=2)
    _, pool = after(frames)
    part = part_of(pool, 7)
    assert (part.state, part.attempts, part.until) == (ACTIVE, 2, lease)
    assert part_of(pool, 7, 4).state is READY


@pytest.mark.parametrize("kind", [FrameType.RELEASE_GIVEN, FrameType.RELEASE])
def test_release_makes_it_ready_again(kind: FrameType) -> None:
    frames = Frames()
    frames.put(7)
    frames.add(FrameType.GIVE, 7, attempt=1)
    frames.add(kind, 7, attempt=0)
    _, pool = after(frames)
    part = part_of(pool, 7)
    assert (part.state, part.attempts, part.until) == (READY, 0, 0)


def test_defer_rounds_up_and_counts_a_retry() -> None:
    frames = Frames()
    frames.put(7)
    frames.add(FrameType.DEFER, 7, argument=TIME_NS + 1, attempt=0)
    _, pool = after(frames)
    part = part_of(pool, 7)
    assert (part.state, part.until, part.retries, part.attempts) == (DEFERRED, SECONDS + 1, 1, 0)


def test_a_failed_attempt_is_no_retry() -> None:
    frames = Frames()
    frames.put(7)
    frames.add(FrameType.DEFER, 7, argument=TIME_NS, attempt=2, flags=P | FrameFlag.FAILED)
    _, pool = after(frames)
    assert (part_of(pool, 7).retries, part_of(pool, 7).attempts) == (0, 2)


def test_counters_stop_at_their_width() -> None:
    frames = Frames()
    frames.put(7)
    for _ in range(300):
        frames.add(FrameType.DEFER, 7, argument=TIME_NS, attempt=300)
    _, pool = after(frames)
    assert (part_of(pool, 7).retries, part_of(pool, 7).attempts) == (255, 255)


def test_hold() -> None:
    frames = Frames()
    frames.put(7)
    frames.add(FrameType.HOLD, 7)
    _, pool = after(frames)
    assert part_of(pool, 7).state is HELD


def test_done_on_one_queue_leaves_the_others() -> None:
    frames = Frames()
    frames.put(7, [3, 4])
    frames.add(FrameType.DONE, 7, 3)
    _, pool = after(frames)
    assert queues_of(pool, 7) == [4]


def test_done_with_files_to_remove_waits_on_idel() -> None:
    frames = Frames()
    frames.put(7, flags=P | FrameFlag.CONTAINER)
    frames.add(FrameType.DONE, 7, flags=P | FrameFlag.TO_IDEL)
    _, pool = after(frames)
    message = pool.message(7)
    assert message is not None and message.parts == [] and message.flags & RecordFlag.CONTAINER
    frames.add(FrameType.DELETE, 7, 1, flags=LAST, parts=1)
    after(frames, pool)
    assert pool.slots == {}


def test_move_keeps_the_queues_it_is_on() -> None:
    frames = Frames()
    frames.put(7, [3, 4])
    lsn = frames.move(7, 3, [4, 5])
    _, pool = after(frames)
    assert queues_of(pool, 7) == [4, 5]
    assert part_of(pool, 7, 5).sequence == lsn


def test_move_to_its_own_queue_goes_to_the_end() -> None:
    frames = Frames()
    frames.put(7)
    frames.add(FrameType.GIVE, 7, attempt=3)
    lsn = frames.move(7, 3, [3])
    _, pool = after(frames)
    assert part_of(pool, 7) == QueuePart(3, 4, READY, 0, 0, 0, SECONDS, lsn)


def test_move_to_a_longer_run_of_records() -> None:
    frames = Frames()
    frames.put(7, [3, 4], record=2)
    _, pool = after(frames)
    frames.move(7, 3, range(5, 30), record=8, reason=2)
    _, pool = after(frames, pool)
    assert sorted(pool.slots) == [(0, 8), (0, 9)]
    assert queues_of(pool, 7) == [4, *range(5, 30)]
    frames.add(FrameType.GIVE, 7, 4, record=8, attempt=1)
    _, pool = after(frames, pool)
    assert part_of(pool, 7, 4).state is ACTIVE


def test_a_moved_message_that_ends_in_the_same_window_leaves_no_record() -> None:
    frames = Frames()
    frames.put(7, [3, 4], record=2)
    _, pool = after(frames)
    frames.move(7, 3, range(5, 30), record=8, reason=2)
    frames.add(FrameType.DONE, 7, 4, record=8, parts=2, flags=LAST)
    after(frames, pool)
    assert pool.slots == {}


def test_poison_goes_with_its_attempts_and_its_origin() -> None:
    frames = Frames()
    frames.put(7, [3, 4])
    lsn = frames.add(FrameType.POISON, 7, 3, target=2, attempt=3, payload=b"{}")
    _, pool = after(frames)
    assert part_of(pool, 7, 2) == QueuePart(2, 4, READY, 3, 0, 0, SECONDS, lsn)
    message = pool.message(7)
    assert message is not None and message.origin == 3
    frames.add(FrameType.POISON, 7, 4, target=2, attempt=1)
    _, pool = after(frames, pool)
    assert queues_of(pool, 7) == [2] and part_of(pool, 7, 2).attempts == 3


def test_relocate_changes_where_the_body_is() -> None:
    frames = Frames()
    for qpool in (7, 8):
        frames.put(qpool, record=qpool)
    _, pool = after(frames)
    word = location(LocationKind.STORE, 4)
    rows = RELOCATION.pack(7, word, 4096, 7, 0) + RELOCATION.pack(99, word, 5000, 8, 0)
    frames.add(FrameType.RELOCATE, 0, 0, payload=rows, parts=2)
    _, pool = after(frames, pool)
    seven, eight = pool.message(7), pool.message(8)
    assert seven is not None and (seven.location, seven.offset) == (word, 4096)
    assert eight is not None and eight.location == location(LocationKind.JOURNAL, 1)


def test_an_old_relocation_does_not_take_a_body_back() -> None:
    """Redo from an older checkpoint meets the first of two moves again; the second may be lost in a
    damaged block, and the first store file is gone."""
    frames = Frames()
    frames.put(7)
    _, pool = after(frames)
    words = [location(LocationKind.STORE, number) for number in (4, 5)]
    first, second = (RELOCATION.pack(7, word, 4096, 0, 0) for word in words)
    lsn = frames.add(FrameType.RELOCATE, 0, 0, payload=first, parts=1)
    frames.add(FrameType.RELOCATE, 0, 0, payload=second, parts=1)
    _, pool = after(frames, pool)
    again = Frames(lsn - 1)
    again.add(FrameType.RELOCATE, 0, 0, payload=first, parts=1)
    _, pool = after(again, pool)
    seven = pool.message(7)
    assert seven is not None and (seven.location, seven.lsn) == (words[1], lsn + 1)


def test_a_frame_about_a_queue_it_is_not_on_changes_nothing() -> None:
    frames = Frames()
    frames.put(7)
    for kind in (FrameType.GIVE, FrameType.DEFER, FrameType.HOLD, FrameType.RELEASE,
                 FrameType.DONE):
        frames.add(kind, 7, 30)
    _, pool = after(frames)
    assert queues_of(pool, 7) == [3] and part_of(pool, 7).state is READY


def test_a_frame_about_a_message_that_is_gone_is_ignored() -> None:
    frames = Frames()
    frames.add(FrameType.GIVE, 7, record=3)
    redo, pool = after(frames)
    assert pool.slots == {} and redo.findings == []


def test_non_persistent_messages_are_history_only() -> None:
    frames = Frames()
    frames.add(FrameType.PUT, 7, flags=0)
    frames.add(FrameType.GIVE, 7, flags=0)
    redo, pool = after(frames)
    assert pool.slots == {} and redo.next_qpool == 8


def test_queue_names_are_kept() -> None:
    frames = Frames()
    frames.add(FrameType.QUEUE, 0, 3, payload=b"ORDERS")
    redo, _ = after(frames)
    assert redo.queues == {3: "ORDERS"}


def test_the_last_frame_says_whether_the_end_was_clean() -> None:
    frames = Frames()
    frames.add(FrameType.STOP, 0, 0)
    redo, _ = after(frames)
    assert redo.clean_stop
    frames.add(FrameType.READER_UP, 0, 3)
    redo.apply([frames.block()])
    assert not redo.clean_stop


def test_frames_behind_it_are_not_applied_twice() -> None:
    frames = Frames()
    frames.put(7)
    frames.add(FrameType.DEFER, 7, argument=TIME_NS)
    block = frames.block()
    pool = MemoryPool()
    redo = Redo(pool)
    redo.apply([block])
    redo.apply([block])
    redo.apply([])
    save(redo, pool)
    assert part_of(pool, 7).retries == 1 and redo.frames_seen == 2


def test_a_record_that_is_newer_is_left_alone() -> None:
    frames = Frames()
    frames.put(7)
    frames.add(FrameType.DEFER, 7, argument=TIME_NS)
    block = frames.block()
    pool = MemoryPool()
    for _ in range(2):
        redo = Redo(pool, lsn=1)  # the PUT is in the checkpoint, the DEFER may or may not be
        if not pool.slots:
            redo = Redo(pool)
        redo.apply([block])
        save(redo, pool)
    assert part_of(pool, 7).retries == 1


# messages that were born and have ended


def test_brief_messages_never_touch_the_pool() -> None:
    frames = Frames()
    frames.put(7, record=1)
    frames.add(FrameType.GIVE, 7, record=1)
    frames.add(FrameType.DONE, 7, flags=LAST, record=1, parts=1)
    redo, pool = after(frames)
    assert (pool.reads, redo.skipped_short_lived) == (0, 1)


def test_born_and_ended_in_two_windows_never_touches_the_pool_either() -> None:
    frames = Frames()
    pool = MemoryPool()
    redo = Redo(pool, settled=True)
    frames.put(7, record=1)
    redo.apply([frames.block()])
    frames.add(FrameType.DONE, 7, flags=LAST, record=1, parts=1)
    redo.apply([frames.block()])
    assert redo.changes() == {}


@pytest.mark.parametrize("windows", [1, 2])
def test_what_a_cut_checkpoint_left_of_a_message_that_ended_is_cleared(windows: int) -> None:
    frames = Frames()
    frames.put(7, [3, 4], record=1)
    first = frames.block()
    pool = MemoryPool()
    cut = Redo(pool)
    cut.apply([first])
    pool.write(cut.changes())  # and no poolctrl: the checkpoint was cut
    frames.add(FrameType.DONE, 7, 3, record=1)
    frames.add(FrameType.DONE, 7, 4, flags=LAST, record=1, parts=1)
    second = frames.block()
    redo = Redo(pool)
    if windows == 1:
        redo.apply([first, second])
    else:
        redo.apply([first])
        redo.apply([second])
    save(redo, pool)
    assert pool.slots == {}


def test_what_a_cut_checkpoint_left_at_the_old_place_is_cleared() -> None:
    frames = Frames()
    frames.put(7, [3, 4], record=1)
    first = frames.block()
    pool = MemoryPool()
    cut = Redo(pool)
    cut.apply([first])
    pool.write(cut.changes())
    frames.move(7, 3, range(5, 30), record=8, reason=1)
    redo = Redo(pool)
    redo.apply([first, frames.block()])
    save(redo, pool)
    assert sorted(pool.slots) == [(0, 8), (0, 9)]


def test_a_slot_that_was_taken_again_keeps_its_new_message() -> None:
    frames = Frames()
    frames.put(7, record=1)
    _, pool = after(frames)
    frames.add(FrameType.DONE, 7, flags=LAST, record=1, parts=1)
    frames.put(8, record=1)
    after(frames, pool)
    assert pool.message(8) is not None and pool.message(7) is None


@pytest.mark.parametrize(("durable", "there", "answer"), [(0, [7], 4), (5, [7, 8, 10], 5)])
def test_a_batch_that_a_cut_tore_is_void_and_not_answered(
        durable: int, there: list[int], answer: int) -> None:
    """Above what was durable its client asks again; below, bytes have rotted: the rest is kept."""
    frames, redo = Frames(), Redo(MemoryPool())
    frames.put(7, token=1, sequence=4, uid=5)
    frames.put(8, record=1, token=1, sequence=5, uid=5)
    frames.put(9, record=2, token=1, sequence=5, uid=5, crc=1)
    frames.put(10, record=3, token=1, sequence=5, uid=5)
    redo.apply([frames.block()], durable)
    assert sorted([*redo.dirty, *redo.images.qpools().tolist()]) == there
    assert redo.clients[1].sequence == answer
    assert len(redo.findings) == 1 and redo.findings[0].lsn == 3
