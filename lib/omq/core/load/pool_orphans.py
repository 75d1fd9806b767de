"""Pool records that belong to no message: a start passes them over, and keeps their slot for ever.

    continuation     it names no message whose record leads to it
    duplicate        an older record of a message that has a newer one

Damaged records are not told: what they were is for omqrecover to judge. A pool that is being
written moves under this; what is found in two looks is not half of a write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omq.format.findings import Finding, Kind
from omq.format.pool import NO_RECORD, RECORD_BYTES, Message
from omq.storage.pool import PoolFiles

Slot = tuple[int, int]  # pool file, record
_MORE: Final = "continuation record that no message leads to"
_OLDER: Final = "older record of QPoolId {}"


def orphan_records(pool: PoolFiles) -> list[Finding]:
    """See the module; by file and record. Kind DUPLICATE or CORRUPT."""
    first, again = dict(_look(pool)), dict(_look(pool))
    return [found for slot, found in sorted(again.items()) if slot in first]


def _look(pool: PoolFiles) -> Iterator[tuple[Slot, Finding]]:
    more: set[Slot] = set()
    led: set[Slot] = set()  # continuations that a message names
    newest: dict[int, tuple[int, Slot]] = {}  # QPoolId -> LSN and place
    older: list[tuple[int, Slot]] = []
    for file in pool.files():
        for chunk in pool.scan(file):
            rows = chunk.records
            more.update((file, record) for record in rows["record"][chunk.more].tolist())
            live = rows[chunk.live]
            for qpool, lsn, record in live[["qpool", "lsn", "record"]].tolist():
                known = newest.get(qpool)
                place = (file, record)
                if known is None or lsn > known[0]:
                    newest[qpool] = lsn, place
                if known is not None:
                    older.append((qpool, place if lsn <= known[0] else known[1]))
            for record in live["record"][live["next"] != NO_RECORD].tolist():
                found = pool.read_record(file, record)
                if isinstance(found, Message):
                    led.update((file, each) for each in found.more)
    for file, record in more - led:
        yield (file, record), _finding(Kind.CORRUPT, _MORE, file, record)
    for qpool, (file, record) in older:
        yield (file, record), _finding(Kind.DUPLICATE, _OLDER.format(qpool), file, record)


def _finding(kind: Kind, reason: str, file: int, record: int) -> Finding:
    return Finding(kind, reason, f"{file}QP", (record + 1) * RECORD_BYTES, RECORD_BYTES, record)
