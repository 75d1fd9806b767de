"""An index with known contents, and a spool that has it in a segment: the original's example.

Message 956 is on three queues and in the hands of a local delivery reader, as in the annotated
dumps; times are those of that page, in its time zone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base import clock
from omq.base.clock import NS_PER_S
from omq.base.paths import SpoolPaths
from omq.core.index.tables import Tables
from omq.format import message
from omq.format.index import (
    Counter,
    EntryState,
    IndexHeader,
    IndexLayout,
    QueueFlag,
    ReaderFlag,
    write_header,
)
from omq.format.location import LocationKind, location
from omq.format.pool import NO_RECORD, PartState, QueuePart, RecordFlag, encode_message
from omq.format.poolctrl import PoolControl
from omq.storage import poolctrl as control
from omq.storage import segment
from omq.storage.pool import PoolFiles
from omq.storage.segment import RuntimeIds
from omq.storage.spool import SpoolInfo
from tests.unit.format import samples

GOLDEN = Path(__file__).parents[2] / "golden" / "dumps"
NOW_NS = 927_031_045 * NS_PER_S  # 18 May 1999, 13:37:25 in London
QUEUES = {1: "IDEL", 2: "POISON", 3: "ROUTER", 4: "LOCAL", 5: "UNIX", 6: "DESK"}
REF = "~/data/000000a/0000b94"
STORE = location(LocationKind.STORE, 1)
JOURNAL = location(LocationKind.JOURNAL, 7)
VOLATILE = location(LocationKind.VOLATILE, 3)
KEPT = int(RecordFlag.PERSISTENT)
LAYOUT = (16, 20, 8, 8)  # messages, entries, queues, readers
READY, ACTIVE = EntryState.READY, EntryState.ACTIVE
DEFERRED, HELD = EntryState.DEFERRED, EntryState.HELD
_COUNTED = {READY: "q_ready", ACTIVE: "q_active", DEFERRED: "q_deferred", HELD: "q_held"}


def set_row(t: Tables, number: int, **columns: float) -> None:
    """Columns of one row of any table."""
    for name, value in columns.items():
        getattr(t, name)[number] = value


def add_queue(t: Tables, number: int, name: str) -> None:
    special = QueueFlag.SPECIAL if number < 3 else 0
    pseudo = QueueFlag.PSEUDO if number == 1 else 0
    t.set_queue_name(number, name)
    set_row(t, number, q_flags=QueueFlag.IN_USE | special | pseudo, q_max_depth=1000,
            q_max_length=1 << 20, q_sampled=NOW_NS - 3 * NS_PER_S,
            q_started=NOW_NS - (12 * 86400 + 23 * 3600 + 37 * 60 + 28) * NS_PER_S)
    t.counters[Counter.QUEUES_HIGH] = max(t.counters[Counter.QUEUES_HIGH], number + 1)


def add_message(t: Tables, slot: int, qpool: int, record: int, *, word: int = JOURNAL,
                offset: int = 4224, length: int = 230, flags: int = KEPT) -> None:
    set_row(t, slot, m_qpool=qpool, m_record=record, m_location=word, m_offset=offset,
            m_length=length, m_flags=flags, m_size=512, m_file=21, m_pid=16650, m_lsn=400 + qpool,
            m_time=927_030_603 * NS_PER_S)
    t.counters[Counter.MESSAGES] += 1
    t.counters[Counter.MESSAGES_HIGH] = max(t.counters[Counter.MESSAGES_HIGH], slot + 1)


def add_entry(t: Tables, number: int, slot: int, queue: int, state: EntryState, sequence: int,
              priority: int = 4, **columns: int) -> None:
    set_row(t, number, e_message=slot, e_queue=queue, e_state=state, e_sequence=sequence,
            e_priority=priority, e_submitted=(927_029_300 + sequence) * NS_PER_S, **columns)
    t.m_parts[slot] += 1
    t.q_depth[queue] += 1
    t.q_ever[queue] += 1
    getattr(t, _COUNTED[state])[queue] += 1
    t.counters[Counter.ENTRIES] += 1
    t.counters[Counter.ENTRIES_HIGH] = max(t.counters[Counter.ENTRIES_HIGH], number + 1)


def add_reader(t: Tables, row: int, name: str, queue: int, flags: int) -> None:
    t.set_reader_name(row, name)
    set_row(t, row, r_flags=flags, r_queue=queue, r_pid=16650 + row, r_uid=100, r_client=row + 1,
            r_registered=(927_030_693 + row) * NS_PER_S, r_request=(927_031_018 + row) * NS_PER_S,
            r_response=(927_030_911 + row) * NS_PER_S, r_timeout=30 * row)
    t.counters[Counter.READERS_HIGH] = max(t.counters[Counter.READERS_HIGH], row + 1)


def fill(t: Tables) -> None:
    """Seven messages, nine entries, five clients of which four read."""
    for number, name in QUEUES.items():
        add_queue(t, number, name)
    set_row(t, 4, q_processed=874, q_hour=25, q_last_hour=121, q_hour_at=NOW_NS - 12 * NS_PER_S,
            q_load1=96.679782, q_load5=19.7, q_load15=12.74, q_rate1=28.22, q_rate5=31.18,
            q_rate15=31.72)
    add_message(t, 0, 956, 0, word=STORE, offset=16, length=len(container_payload()),
                flags=KEPT | RecordFlag.CONTAINER)
    add_message(t, 1, 983, 27)
    add_message(t, 3, 984, 28, offset=8320, flags=KEPT | RecordFlag.HAS_ID)
    add_message(t, 4, 985, 29)
    add_message(t, 5, 986, NO_RECORD, word=VOLATILE, flags=0)
    add_message(t, 6, 990, 30)
    add_message(t, 7, 991, 31)
    add_entry(t, 2, 0, 4, ACTIVE, 1442, e_attempts=1, e_reader=4, e_lease=1500,
              e_until=927_030_915 * NS_PER_S)
    add_entry(t, 3, 0, 5, READY, 1443)
    add_entry(t, 4, 0, 6, HELD, 1444)
    add_entry(t, 5, 1, 4, READY, 1370)
    add_entry(t, 7, 3, 4, READY, 1400, 7)
    add_entry(t, 8, 4, 4, DEFERRED, 1372, e_attempts=2, e_until=NOW_NS + 30 * NS_PER_S)
    add_entry(t, 9, 5, 4, READY, 1371)
    add_entry(t, 10, 6, 2, READY, 1300, e_attempts=3)
    add_entry(t, 11, 7, 4, ACTIVE, 1369, e_attempts=2, e_reader=4, e_lease=1499,
              e_until=927_030_915 * NS_PER_S)
    reads = ReaderFlag.IN_USE | ReaderFlag.READS
    add_reader(t, 0, "idel", 1, reads)
    add_reader(t, 1, "router", 3, reads)
    add_reader(t, 2, "omsend", 0, ReaderFlag.IN_USE)
    add_reader(t, 3, "local", 4, reads)
    add_reader(t, 4, "local", 4, reads | ReaderFlag.AUXILIARY)
    t.counters[Counter.NEXT_QPOOL] = 1056
    t.counters[Counter.ACTIVE_PEAK] = 4


def container_payload() -> bytes:
    """A payload that ends in an item reference."""
    properties = message.encode_properties({"mail.from": "a@example.org"})
    descriptor = message.Descriptor(application=b"omsend")
    return message.encode(descriptor, [], properties, REF.encode(), size=1 << 20)


def put_payload(paths: SpoolPaths, payload: bytes) -> None:
    """Where STORE and offset 16 point to."""
    (paths.store / "0000000001.sto").write_bytes(bytes(16) + payload)


def fill_pool(info: SpoolInfo) -> None:
    """21QP with a message on three queues, one on IDEL and one on 17; the control file."""
    plain = replace(samples.pool_message(), file=21, qpool=956, location=STORE, offset=16,
                    length=len(container_payload()), flags=KEPT | RecordFlag.CONTAINER, more=[])
    parts = [QueuePart(6, 4, PartState.HELD, 0, 0, 0, 927_030_900, 2),
             QueuePart(4, 4, PartState.ACTIVE, 1, 0, 0, 927_030_693, 1442),
             QueuePart(5, 7, PartState.DEFERRED, 1, 2, 927_031_075, 927_030_941, 3)]
    messages = [
        replace(plain, record=0, parts=parts),
        replace(plain, record=1, qpool=957, location=JOURNAL, offset=4224, flags=KEPT, parts=[]),
        replace(plain, record=3, qpool=958, location=JOURNAL, offset=8320, flags=KEPT, more=[5],
                parts=[QueuePart(number, 4, PartState.READY, 0, 0, 0, 927_030_900, number)
                       for number in range(3, 20)])]
    pool = PoolFiles(info.paths, info.uuid)
    changes: dict[tuple[int, int], bytes | None] = {
        (21, record): image for each in messages for record, image in encode_message(each)}
    pool.write(changes)
    pool.close()
    control.store(info.paths, PoolControl(info.uuid, 1, 1500, 3, 7, 4096, 1056, 0, 1, dict(QUEUES)))


@contextmanager
def indexed(info: SpoolInfo, *, alive: bool = True) -> Iterator[Tables]:
    """The index in a real segment of this spool, to be attached; removed at the end."""
    layout = IndexLayout.of(*LAYOUT)
    memory = segment.create(layout.size)
    tables = Tables(memoryview(memory), layout)
    try:
        boot, pid = clock.boot_id(), os.getpid()
        started = clock.process_start_ticks(pid) or 0
        if not alive:
            started += 1  # another process has that pid now
        write_header(tables.buffer, IndexHeader(
            info.uuid, boot, 3, pid, started, NOW_NS, *LAYOUT, layout.size))
        ids = RuntimeIds(3, boot.hex(), info.uuid.hex(), pid, started, memory.id, (0, 0))
        info.paths.ids.write_bytes(ids.text())
        yield tables
    finally:
        tables.release()
        memory.remove()
        memory.detach()


def change_ids(paths: SpoolPaths, **values: object) -> None:
    """Alter ids.json."""
    found = json.loads(paths.ids.read_text())
    paths.ids.write_text(json.dumps({**found, **values}))


def golden(request: pytest.FixtureRequest, name: str, text: str) -> None:
    """`text` is that of the golden file; `--regenerate-golden` writes it."""
    path = GOLDEN / name
    if request.config.getoption("--regenerate-golden"):
        path.write_text(text, encoding="ascii")
    assert text == path.read_text(encoding="ascii")
