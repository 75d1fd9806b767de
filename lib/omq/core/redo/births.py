"""Pool records of new messages, many at once: the one place that says what a birth makes.

Columns of the frames and of the payloads' descriptors become columns of pool records of messages
on one queue; only what is rare (group ids) and the CRC of each record is done one by one. What is
on several queues gets its parts elsewhere. A test compares with format.pool.encode_message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from omq.base import limits
from omq.base.arrays import Rows
from omq.base.checksum import crc32c, crc32c_rows
from omq.base.clock import NS_PER_S as NS
from omq.core.redo.window import Window
from omq.format import message as message_format
from omq.format.double_write import Image
from omq.format.journal import FrameFlag
from omq.format.location import LocationKind, location
from omq.format.pool import (
    CRC_FROM,
    NO_RECORD,
    PART,
    RECORD,
    RECORD_BYTES,
    RECORD_MAGIC,
    VERSION,
    Message,
    PartState,
    Record,
    RecordFlag,
    RecordKind,
    decode_record,
)

CHUNK: Final = 2048
"""Messages built at once: their columns stay in the processor's cache."""
USED: Final = RECORD.size + PART.size
COMPACT: Final = np.dtype([*RECORD.dtype.descr, ("parts_list", PART.dtype, (1,))])
"""A record of a message on one queue without the room for more."""
assert COMPACT.itemsize == USED
_COPIED = {"lsn": "lsn", "qpool": "qpool", "time": "time", "file": "file", "record": "record",
           "length": "length", "body_crc": "crc", "size": "size", "expiry": "argument",
           "pid": "pid", "uid": "uid"}  # fmt: skip
_DESCRIBED = ("message_id", "correlation_id", "reply_to", "origin", "group_sequence",
              "segment_offset", "report")  # fmt: skip
_PREPARED = int(FrameFlag.PREPARED)
_MEMORY = int(FrameFlag.MEMORY)
_BARRIER = int(FrameFlag.BARRIER)
_NO_ID = np.zeros(1, dtype="V24")[0]


def compact_records(window: Window, rows: Rows, heads: Rows) -> Rows:
    """The records (COMPACT) of the births in these rows of the window, not sealed; `heads` are the
    descriptors of their payloads. Message ids count when the frame has their hash in `lease`."""
    frames, origin = window.picked(rows), window.origin[rows]
    number = np.array([location(LocationKind.JOURNAL, b.number) for b in window.blocks], "<u4")
    at = np.array([block.payload_at for block in window.blocks], dtype="<u4")
    out: Rows = np.zeros(len(rows), dtype=COMPACT)
    out["magic"] = np.frombuffer(RECORD_MAGIC, dtype="V4")[0]
    out["version"], out["kind"], out["used"] = VERSION, RecordKind.LIVE, USED
    out["parts"], out["next"] = 1, NO_RECORD
    for name, source in _COPIED.items():
        out[name] = frames[source]
    for name in _DESCRIBED:
        out[name] = heads[name]
    given = (frames["lease"] != 0) & (heads["message_id"] != _NO_ID)
    out["flags"] = (int(RecordFlag.PERSISTENT) | frames["flags"] & int(FrameFlag.CONTAINER)
                    | np.where(given, int(RecordFlag.HAS_ID), 0)
                    | np.where(frames["flags"] & _MEMORY, int(RecordFlag.MEMORY), 0)
                    | np.where(frames["flags"] & _BARRIER, int(RecordFlag.BARRIER), 0))
    out["location"], out["offset"] = number[origin], at[origin] + frames["offset"]
    out["application"] = _first_bytes(heads["application"], 4)
    out["trace"] = _first_bytes(heads["trace_id"], 8).view("<u8")
    groups = heads["group_id"]
    for i in np.flatnonzero(groups != _NO_ID).tolist():
        out["group"][i] = message_format.id_hash(groups[i].tobytes())
    part = out["parts_list"][:, 0]
    part["queue"] = frames["queue"]
    prepared = frames["flags"] & _PREPARED != 0
    part["grade"] = (np.minimum(frames["priority"], limits.PRIORITIES - 1)
                     | np.where(prepared, int(PartState.PREPARED), int(PartState.READY)) << 4)
    part["until"] = np.where(prepared, frames["reason"], 0)
    part["submitted"] = (frames["time"] // NS & 0xFFFFFFFF).astype("<u4")
    part["sequence"] = frames["lsn"]
    return out


def compacted(rows: Rows) -> Rows:
    """Whole records (pool_scan.DTYPE) of messages on one queue as COMPACT."""
    whole = np.ascontiguousarray(rows).view("u1").reshape(len(rows), RECORD_BYTES)
    return np.ascontiguousarray(whole[:, :USED]).view(COMPACT).reshape(len(rows))


def joined(arrays: Iterable[Rows]) -> Rows:
    """Arrays of these records as one. As raw bytes: numpy would copy field by field."""
    raw = [np.ascontiguousarray(rows).view(f"V{USED}") for rows in arrays]
    return np.concatenate([np.zeros(0, f"V{USED}"), *raw]).view(COMPACT)


def sealed(rows: Rows) -> Rows:
    """Whole records with their CRC: uint8, shape (rows, 512)."""
    count = len(rows)
    out: Rows = np.zeros((count, RECORD_BYTES), dtype="u1")
    out[:, :USED] = np.ascontiguousarray(rows).view("u1").reshape(count, USED)
    view = memoryview(out.reshape(-1))  # type: ignore[arg-type]
    crcs = crc32c_rows(view, RECORD_BYTES, CRC_FROM, USED)
    out[:, CRC_FROM - 4 : CRC_FROM] = np.array(crcs, dtype="<u4").view("u1").reshape(count, 4)
    return out


def image(row: np.void) -> Image:
    """One whole record with its place: for one, a tenth of the cost of `sealed`."""
    raw = bytearray(row.tobytes())
    raw[CRC_FROM - 4 : CRC_FROM] = crc32c(memoryview(raw)[CRC_FROM:]).to_bytes(4, "little")
    return int(row["file"]), int(row["record"]), bytes(raw.ljust(RECORD_BYTES, b"\0"))


def message(image: Image) -> Message:
    """One whole record as a message."""
    file, number, raw = image
    made = decode_record(raw, 0, file, number)
    assert isinstance(made, Record)
    return made.message


def slots(rows: Rows) -> Rows:
    """Where they go: int64, file << 32 | record."""
    return np.asarray(rows["file"].astype(np.int64) << 32 | rows["record"])


def images(rows: Rows) -> Iterator[Image]:
    """Whole records one by one, each with its place."""
    places = zip(rows["file"].tolist(), rows["record"].tolist(), sealed(rows), strict=True)
    for file, record, image in places:
        yield file, record, image.tobytes()


def _first_bytes(column: Rows, count: int) -> Rows:
    """The first bytes of each item of a column of raw bytes."""
    size = column.dtype.itemsize
    flat = np.ascontiguousarray(column).view("u1").reshape(len(column), size)
    return np.ascontiguousarray(flat[:, :count]).view(f"V{count}").reshape(len(column))
