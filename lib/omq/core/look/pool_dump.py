"""The Message Pool's files as text: option `t m` of omqdump, in the original's layout.

One block a record, in the order of the files; nothing is sorted. A message on more than 16 queues
has `Flags=MORE RECORDS` and the number of its next record. Differences from the original:
    Offset, Priority      of our records (512 bytes each); 0 to 9, 9 first
    Flags=CONTINUATION    the record that a NextRecord names: its queue parts belong to that message
    message flags         pool.RecordFlag: 1 persistent, 2 container, 8 the submitter gave an id
    Queue Flags           QueuePartFlag
    Damage=               in the place of the fields of a record that cannot be believed
A message on no queue has no Queue line: it is on IDEL, which is never written.

A checkpoint may be written meanwhile. A record that looks damaged is read once more, so that the
half of a write is not called damage. Errors: DiskError from the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntFlag
from typing import Final, Protocol

import numpy as np

from omq.base.clock import NS_PER_S, seed_time
from omq.base.names import escape
from omq.core.index.item_refs import ItemRefs
from omq.core.look.pool_plain import RECORDS, PlainText, is_plain
from omq.core.look.text_dump import RULE
from omq.format.findings import Finding
from omq.format.pool import (
    NO_RECORD,
    RECORD_BYTES,
    VERSION,
    Message,
    PartState,
    QueuePart,
    Record,
    RecordFlag,
    RecordKind,
    decode_record,
)
from omq.storage.pool_scan import PoolChunk

_BANNER: Final = "HHHHHHHHHHHHHHHH"


class QueuePartFlag(IntFlag):
    """`Queue Flags` of the dump. The original did not use them."""

    ACTIVE = 1
    DEFERRED = 2
    HELD = 4


_PART_FLAGS: Final = {
    PartState.READY: QueuePartFlag(0),
    PartState.ACTIVE: QueuePartFlag.ACTIVE,
    PartState.DEFERRED: QueuePartFlag.DEFERRED,
    PartState.HELD: QueuePartFlag.HELD,
}


class Pool(Protocol):
    """What is dumped; storage.pool.PoolFiles."""

    def files(self) -> list[int]: ...
    def scan(self, file: int) -> Iterator[PoolChunk]: ...
    def read_record(self, file: int, record: int) -> Message | Finding | None: ...


def pool_lines(pool: Pool, queues: Mapping[int, str], refs: ItemRefs) -> Iterator[str]:
    """The whole dump, in pieces of one or more lines, without the last line end of each. `queues`:
    names by number, as poolctrl has them."""
    plain = PlainText(RULE, queues, _plain_part, _moment)
    files = pool.files()
    yield _BANNER
    yield f"Version={VERSION}"
    yield f"Total Files={len(files)}"
    yield _BANNER
    for file in files:
        for chunk in pool.scan(file):
            yield from _chunk_lines(pool, chunk, queues, refs, plain)


def _chunk_lines(pool: Pool, chunk: PoolChunk, queues: Mapping[int, str], refs: ItemRefs,
                 plain: PlainText) -> Iterator[str]:
    damaged = {}
    for finding in chunk.findings:
        if finding.record < chunk.first:  # about the file as a whole
            yield from _damage(chunk.file, finding)
        else:
            damaged[finding.record - chunk.first] = finding
    valid = (chunk.live | chunk.more).tolist()
    count = max(len(valid), *(at + 1 for at in damaged), 0)
    index = 0
    for stop in [*np.flatnonzero(~is_plain(chunk)).tolist(), *range(len(valid), count), count]:
        for begin in range(index, min(stop, len(valid)), RECORDS):
            yield plain.of(chunk, begin, min(begin + RECORDS, stop))
        index = stop + 1
        if stop < count:
            yield from _one(pool, chunk, stop, damaged, valid, queues, refs)


def _one(pool: Pool, chunk: PoolChunk, index: int, damaged: Mapping[int, Finding],
         valid: Sequence[bool], queues: Mapping[int, str], refs: ItemRefs) -> Iterator[str]:
    """The lines of a slot that has anything unusual; none of a free one."""
    record = chunk.first + index
    if index in damaged:
        again = pool.read_record(chunk.file, record)
        if isinstance(again, Finding):
            yield from _damage(chunk.file, again)
        elif again is not None:
            following = again.more[0] if again.more else NO_RECORD
            yield from _message(again, RecordKind.LIVE, following, queues, refs)
    elif valid[index]:
        found = decode_record(chunk.records[index].tobytes(), 0, chunk.file, record)
        assert isinstance(found, Record), "the scan has checked it"
        yield from _message(found.message, found.kind, found.next, queues, refs)


def _message(message: Message, kind: RecordKind, following: int, queues: Mapping[int, str],
             refs: ItemRefs) -> Iterator[str]:
    created_s = message.time_ns // NS_PER_S
    shown = ["CONTINUATION"] if kind is RecordKind.MORE else []
    if following != NO_RECORD:
        shown.append("MORE RECORDS")
    yield from _place(message.file, message.record)
    yield f"FileName={refs.of(message.location, message.offset, message.length, message.flags)}"
    yield f"Flags={' '.join(shown)}"
    yield f"NextRecord={'NONE' if following == NO_RECORD else following}"
    yield f"Create Time={_moment(created_s)}"
    yield f"QPoolId={message.qpool}"
    yield _flags(message.flags)
    for part in message.parts:
        yield from _part(part, queues.get(part.queue, f"#{part.queue}"))


def _part(part: QueuePart, queue: str) -> Iterator[str]:
    deferred = part.state is PartState.DEFERRED
    yield from _grade(queue, part.priority, part.state)
    yield f"Defer Time={_moment(part.until) if deferred else 'NONE'}"
    yield f"Submit Time={_moment(part.submitted)}"


def _flags(flags: int) -> str:
    return f"message flags=0x{flags & ~RecordFlag.MORE_RECORDS:08X}"


def _grade(queue: str, priority: int, state: PartState) -> tuple[str, str, str]:
    return f"Queue={queue}", f"Priority={priority}", f"Queue Flags=0x{_PART_FLAGS[state]:08X}"


def _plain_part(flags: int, queue: str, grade: int) -> str:
    return "\n".join((_flags(flags), *_grade(queue, grade & 15, PartState(grade >> 4))))


def _damage(file: int, finding: Finding) -> Iterator[str]:
    yield from _place(file, finding.record)
    yield f"Damage={finding.kind.value}: {escape(finding.reason)}"


def _place(file: int, record: int) -> Iterator[str]:
    """`record` -1: the header of the file."""
    yield RULE
    yield f"Pool File={file}"
    yield f"Record Num={'NONE' if record < 0 else record}"
    yield f"Offset=0x{(record + 1) * RECORD_BYTES:08X}"


def _moment(seconds: int) -> str:
    """`927030603 05.18.99 13:30:03`: seconds since 1970, then local time."""
    return f"{seconds} {seed_time(seconds * NS_PER_S)}"
