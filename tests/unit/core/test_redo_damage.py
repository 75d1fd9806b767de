"""Redo and damage: what cannot be believed condemns as little as possible, and is reported."""

from __future__ import annotations

import pytest

from omq.base.checksum import crc32c
from omq.core.redo.redo import Redo
from omq.format.journal import FrameType
from tests.unit.core.frames import LAST, Frames, MemoryBlock, MemoryPool, after, save


def damage(block: MemoryBlock, qpool: int) -> None:
    """Flip a byte in the payload of a message's birth."""
    row = next(r for r in block.frames if r["qpool"] == qpool and r["length"])
    block.payloads[int(row["offset"]) + int(row["length"]) - 1] ^= 1


def apply(*blocks: MemoryBlock, pool: MemoryPool | None = None) -> tuple[Redo, MemoryPool]:
    pool = pool or MemoryPool()
    redo = Redo(pool)
    redo.apply(blocks)
    save(redo, pool)
    return redo, pool


def test_a_bad_payload_condemns_its_message_only() -> None:
    frames = Frames()
    for qpool in (7, 8, 9):
        frames.put(qpool, record=qpool)
    block = frames.block(number=5)
    damage(block, 8)
    redo, pool = apply(block)
    assert pool.message(8) is None
    assert pool.message(7) is not None and pool.message(9) is not None
    (finding,) = redo.findings
    assert (finding.file, finding.lsn, finding.length) == ("0000000005.jnl", 2, 161)
    assert finding.offset == 8192 + 161


def test_frames_about_a_condemned_message_are_ignored() -> None:
    frames = Frames()
    frames.put(7)
    block = frames.block()
    damage(block, 7)
    frames.add(FrameType.GIVE, 7, attempt=1)
    frames.move(7, 3, [4])
    redo, pool = apply(block, frames.block())
    assert pool.slots == {} and len(redo.findings) == 1


@pytest.mark.parametrize("payload", [b"", b"MD", b"x" * 200, b"MD\xff" + bytes(200)])
def test_a_payload_that_is_no_message_is_a_finding(payload: bytes) -> None:
    frames = Frames()
    frames.add(FrameType.PUT, 7, payload=payload)
    redo, pool = after(frames)
    assert pool.slots == {} and len(redo.findings) == 1


def test_a_payload_beyond_its_block_is_a_finding() -> None:
    frames = Frames()
    frames.put(7)
    block = frames.block()
    del block.payloads[-10:]
    redo, pool = apply(block)
    assert pool.slots == {} and len(redo.findings) == 1


def test_a_bad_new_message_condemns_the_move_that_made_it() -> None:
    frames = Frames()
    frames.put(7, record=1)
    unit = frames.move(7, 3, [4], record=1, unit=2)
    frames.put(8, record=2, unit=unit)
    frames.put(9, record=3, unit=unit)
    frames.put(10, record=4)
    block = frames.block()
    damage(block, 8)
    redo, pool = apply(block)
    message = pool.message(7)
    assert message is not None and [p.queue for p in message.parts] == [3]
    assert pool.message(9) is None and pool.message(10) is not None
    assert len(redo.findings) == 1


def test_a_bad_new_message_brings_back_the_one_that_ended_for_it() -> None:
    frames = Frames()
    frames.put(7, record=1)
    unit = frames.add(FrameType.DONE, 7, 3, flags=LAST, parts=1, record=1, unit=2)
    frames.put(8, record=2, unit=unit)
    block = frames.block()
    damage(block, 8)
    redo, pool = apply(block)
    assert pool.message(7) is not None and pool.message(8) is None
    assert redo.skipped_short_lived == 0


def test_a_move_without_its_queues_is_not_done_nor_its_unit() -> None:
    frames = Frames()
    frames.put(7, record=1)
    unit = frames.move(7, 3, [4], record=1, unit=2)
    frames.put(8, record=2, unit=unit)
    block = frames.block()
    row = block.frames[1]
    at = int(row["offset"])
    block.payloads[at : at + 8] = bytes(8)
    _, pool = apply(block)
    message = pool.message(7)
    assert message is not None and [p.queue for p in message.parts] == [3]
    assert pool.message(8) is None


@pytest.mark.parametrize(
    ("raw", "parts"), [(bytes(8), 1), (b"\4\0\x0a" + bytes(5), 1), (b"\4\0\4" + bytes(5), 2)])
def test_a_move_that_makes_no_sense_leaves_the_message_where_it_is(raw: bytes, parts: int) -> None:
    frames = Frames()
    frames.put(7)
    frames.add(FrameType.MOVE, 7, 3, payload=raw, parts=parts, crc=0)
    redo, pool = after(frames)
    message = pool.message(7)
    assert message is not None and [p.queue for p in message.parts] == [3]
    assert len(redo.findings) == 1


@pytest.mark.parametrize("kind", [FrameType.MOVE, FrameType.QUEUE, FrameType.RELOCATE])
def test_other_payloads_have_a_crc_too(kind: FrameType) -> None:
    frames = Frames()
    frames.put(7)
    raw = b"\4\0\4" + bytes(5)
    frames.add(kind, 7 if kind is FrameType.MOVE else 0, 3, payload=raw, parts=1,
               crc=crc32c(raw) ^ 1)
    redo, _ = after(frames)
    assert len(redo.findings) == 1 and redo.queues == {}


@pytest.mark.parametrize("name", [b"\0\0\0", b"\xff\xfe", b""])
def test_a_queue_without_a_name_is_a_finding(name: bytes) -> None:
    frames = Frames()
    frames.add(FrameType.QUEUE, 0, 3, payload=name, crc=0)
    redo, _ = after(frames)
    assert len(redo.findings) == 1 and redo.queues == {}


def test_a_birth_that_the_pool_holds_does_not_need_its_payload() -> None:
    frames = Frames()
    frames.put(7, record=1)
    block = frames.block()
    _, pool = apply(block)
    damage(block, 7)
    redo, pool = apply(block, pool=pool)  # from an older position, over the pool
    assert pool.message(7) is not None and redo.findings == []


def test_a_damaged_record_is_reported_once_and_goes_with_its_message() -> None:
    frames = Frames()
    frames.put(7, [3, 4], record=1)
    _, pool = after(frames)
    pool.slots[0, 1] = pool.slots[0, 1][:100] + b"\xff" + pool.slots[0, 1][101:]
    redo = Redo(pool, lsn=1)
    frames.add(FrameType.GIVE, 7, 3, record=1)
    frames.add(FrameType.GIVE, 7, 4, record=1)
    redo.apply([frames.block()])
    assert len(redo.findings) == 1
    frames.add(FrameType.DONE, 7, 4, flags=LAST, record=1, parts=1)
    redo.apply([frames.block()])
    save(redo, pool)
    assert pool.slots == {}
