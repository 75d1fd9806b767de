"""Pool records that belong to no message: a start passes them over, and keeps their slot for ever.

    continuation     it names no message whose record leads to it
    duplicate        an older record of a message that has a newer one

Damaged records are not told: what they were is for omqrecover to judge. A pool that is being
written moves under this; what is found in two looks is not half of a write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.format.findings import Finding, Kind
from omq.format.pool import NO_RECORD, RECORD_BYTES, Message
from omq.storage.pool import PoolFiles

Slot = tuple[int, int]  # pool file, record
_MORE: Final = "continuation record that no message leads to"
_OLDER: Final = "older record of QPoolId {}"


def orphan_records(pool: PoolFiles) -> list[Finding]:
    """See the module; by file and record. Kind DUPLICATE or CORRUPT."""
    first = dict(_look(pool))
    if not first:
        return []
    return [found for slot, found in sorted(dict(_look(pool)).items()) if slot in first]


def _look(pool: PoolFiles) -> Iterator[tuple[Slot, Finding]]:
    more: set[Slot] = set()
    led: set[Slot] = set()  # continuations that a message names
    messages: list[Vector] = [np.zeros((0, 4), dtype=np.uint64)]  # QPoolId, LSN, file, record
    for file in pool.files():
        for chunk in pool.scan(file):
            rows = chunk.records
            more.update((file, record) for record in rows["record"][chunk.more].tolist())
            live = rows[chunk.live]
            messages.append(np.column_stack([
                live["qpool"].astype(np.uint64), live["lsn"].astype(np.uint64),
                np.full(len(live), file, dtype=np.uint64), live["record"].astype(np.uint64)]))
            for record in live["record"][live["next"] != NO_RECORD].tolist():
                found = pool.read_record(file, record)
                if isinstance(found, Message):
                    led.update((file, each) for each in found.more)
    for file, record in more - led:
        yield (file, record), _finding(Kind.CORRUPT, _MORE, file, record)
    for qpool, _, file, record in _older(np.concatenate(messages)).tolist():
        yield (file, record), _finding(Kind.DUPLICATE, _OLDER.format(qpool), file, record)


def _older(messages: Vector) -> Vector:
    """The rows of messages that have a newer one; of equal ones the first counts."""
    order = np.lexsort((-np.arange(len(messages)), messages[:, 1], messages[:, 0]))
    ordered = messages[order]
    return np.asarray(ordered[:-1][ordered[:-1, 0] == ordered[1:, 0]])


def _finding(kind: Kind, reason: str, file: int, record: int) -> Finding:
    return Finding(kind, reason, f"{file}QP", (record + 1) * RECORD_BYTES, RECORD_BYTES, record)
