"""One small sample of each format, always the same bytes: for golden files and hostile variants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omq.base.checksum import crc32c
from omq.format import (
    archive,
    double_write,
    index,
    journal,
    message,
    pool,
    poolctrl,
    standby,
    store,
)
from omq.format.archive_block import seal_rows
from omq.format.failure_note import FailureNote
from omq.format.journal import BLOCK, FRAME, BlockHeader, FileHeader, FrameFlag, FrameType
from omq.format.pool import Message, PartState, QueuePart
from omq.format.pool_contents import Content, Contents, marks_of, sum_of, words_of

UUID = bytes(range(16))
PAGE = 512
TIME_NS = 927_030_603_000_000_000


def journal_file_header() -> bytes:
    header = FileHeader(UUID, 3, 42, PAGE, 1 << 20, 1000, 990, 41, TIME_NS, 77)
    return header.encode()


def payload() -> bytes:
    properties = message.encode_properties({"mail.from": "a@example.org", "größe": "ü"})
    parts = [message.Part(7, 4), message.Part(8, 9, 1, 927_030_700)]
    descriptor = message.Descriptor(correlation_id=b"C" * 24, application=b"omsend", reply_to=3)
    return message.encode(descriptor, parts, properties, b"the body")


def block() -> bytes:
    body = payload()
    length = journal.block_length(2, len(body), PAGE)
    data = bytearray(length)
    values = {
        "type": FrameType.PUT, "priority": 4, "flags": FrameFlag.PERSISTENT, "queue": 7,
        "lsn": 1000, "time": TIME_NS, "qpool": 76, "size": 8, "length": len(body),
        "crc": crc32c(body), "client": 5, "pid": 4711, "file": 11, "record": 12, "parts": 2,
        "uid": 99, "token": 1 << 63, "sequence": 6, "unit": 1000}
    FRAME.pack_into(data, BLOCK.size, *_row(values))
    values = {"type": FrameType.DONE, "queue": 7, "lsn": 1001, "qpool": 76, "lease": 950,
              "offset": len(body), "flags": FrameFlag.PERSISTENT | FrameFlag.LAST_PART}
    FRAME.pack_into(data, BLOCK.size + FRAME.size, *_row(values))
    at = BLOCK.size + 2 * FRAME.size
    data[at : at + len(body)] = body
    header = BlockHeader(3, 1000, 2, 999, TIME_NS, 42, 0, len(body), length, 0, 77)
    journal.seal_block(data, UUID, header)
    return bytes(data)


def _row(values: dict[str, int]) -> list[int]:
    return [int(values.get(name, 0)) for name in FRAME.names]


def pool_message(parts: int = 17, record: int = 5) -> Message:
    listed = [QueuePart(i + 1, i % 10, PartState(i % 4 + 1), i, 2 * i, 927_030_700 + i, 927_030_603,
                        1000 + i) for i in range(parts)]
    return Message(
        qpool=76, file=11, record=record, lsn=1001, time_ns=TIME_NS, message_id=b"I" * 24,
        correlation_id=bytes(24), flags=1, location=42, offset=4096, length=230, crc=0xABCD, size=8,
        expiry=0, pid=4711, uid=99, reply_to=3, origin=0, group=0, group_sequence=0,
        segment_offset=0, report=0, application=b"omse", trace=0, parts=listed, more=[9])


def noted_record() -> bytes:
    """The record of a message on POISON, with a note of how it came there."""
    note = FailureNote(2, "ORDERS", 2, 3, TIME_NS, TIME_NS + 60_000_000_000, "größe is missing")
    return pool.encode_message(replace(pool_message(1), note=note))[0][1]


def pool_file() -> bytes:
    """Header of 11QP, then the two records of a message on 17 queues."""
    records = pool.encode_message(pool_message())
    return pool.encode_file_header(11, UUID, TIME_NS) + b"".join(image for _, image in records)


def control_slot() -> bytes:
    control = poolctrl.PoolControl(
        UUID, 9, 1001, 3, 42, 8192, 77, TIME_NS, 2, {7: "ROUTER", 8: "LOCAL"},
        {1 << 63: poolctrl.Answered(1 << 63, 6, 76, 1, 1000, 0, TIME_NS)}, 0, contents())
    return control.encode()


def contents() -> dict[int, Content]:
    """11QP with the two records of the message, and a free slot behind them."""
    data = pool_file()[pool.RECORD_BYTES :]
    marks = marks_of(np.array([8, 9]), words_of(data))
    return {0: Content(), 11: Content(10, 2, 1001, sum_of(marks))}


def double_write_part(images: list[tuple[int, int, bytes]], uuid: bytes = UUID, generation: int = 4,
                      checkpoint: int = 10, held: Contents | None = None) -> bytes:
    """A double-write file with one chunk; `held`: what the pool files hold with it."""
    out = bytearray()
    for offset, pieces in double_write.encode(uuid, generation, double_write.Images.of(images),
                                              checkpoint, contents() if held is None else held):
        data = b"".join(bytes(piece) for piece in pieces)
        out += bytes(max(0, offset + len(data) - len(out)))
        out[offset : offset + len(data)] = data
    return bytes(out)


def double_write_file() -> bytes:
    images = [(11, number, image) for number, image in pool.encode_message(pool_message())]
    return double_write_part([*images, (11, 12, bytes(512))])


def newest_journal_file() -> bytes:
    return journal.Newest(UUID, 42, 3, 1000).encode()


def synced_mark() -> bytes:
    return standby.Synced(UUID, 7, 42, 2, 3, 8192, 1001, 999, 0xABCD).encode()


def stream_piece() -> bytes:
    made = standby.Piece(standby.PieceKind.BLOCK, 2, 42, PAGE, 1001, 999, block())
    return b"".join(bytes(part) for part in made.encode(5))


def store_file() -> bytes:
    header = store.StoreHeader(store.STORE_MAGIC, 6, UUID, TIME_NS).encode()
    body = payload()
    entry = store.encode_entries(*map(np.array, ([76], [len(body)], [crc32c(body)])))
    return header + entry + body.ljust(store.padded(len(body)), b"\0")


def index_header() -> bytes:
    layout = index.IndexLayout.of(100, 130, 4, 4)
    buffer = memoryview(bytearray(index.TABLES_AT))
    header = index.IndexHeader(UUID, b"B" * 16, 3, 4711, 123, TIME_NS, 100, 130, 4, 4, layout.size)
    index.write_header(buffer, header)
    return bytes(buffer[: index.SELECTOR_AT + 1])


def archive_head() -> bytes:
    header = archive.ArchiveHeader(UUID, 42, 3, 1000, 1001, 990, 41, 2, 1 << 20, 0xABCD, PAGE,
                                   TIME_NS, TIME_NS, TIME_NS + 1, 6 * 65536, 230, 9,
                                   (1, 1, 1, 1, 1, 1), 7, 1, 1)
    return header.encode(archive.MAGIC)


def archive_block() -> bytes:
    rows = FRAME.array(block(), 2, BLOCK.size)
    sealed = seal_rows(UUID, 42, 0, archive.Section.FRAMES, rows)
    return sealed[: archive.SEAL.size + 3 * FRAME.size]


GOLDEN = {
    "archive_head.bin": archive_head,
    "archive_block.bin": archive_block,
    "journal_file_header.bin": journal_file_header,
    "journal_block.bin": block,
    "message_payload.bin": payload,
    "pool_file.bin": pool_file,
    "pool_noted.bin": noted_record,
    "poolctrl_slot.bin": control_slot,
    "double_write.bin": double_write_file,
    "journal_newest.bin": newest_journal_file,
    "store_file.bin": store_file,
    "synced_mark.bin": synced_mark,
    "stream_piece.bin": stream_piece,
    "index_header.bin": index_header,
}
