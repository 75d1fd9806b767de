"""The index made from the files alone, in private memory: what a start would load, without one.

The steps are those of core.load.recovery and core.load.rebuild, and the code is theirs; but nothing
is locked, settled or written. So it works whether a manager lives, hangs or is dead.

The files of a living instance move on: if the checkpoint moved while they were read, they are
read again. What comes out is the state at `lsn`, which may be a moment old. Whether everything is
there (core.load.presence) is asked on its own, which is quicker; what moved each time is
`uncompared`.

Invariants: 1. nothing in the spool changes; 2. what cannot be read is a finding, all else is there;
3. only what is on the disk: no readers, no averages, no non-persistent messages.
Errors: SpoolMissing, SpoolOwner, Damaged, NewerFormat, DiskError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from omq.base.arrays import Vector, distinct
from omq.base.errors import IndexFull
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.core.engine.state import SPECIAL_QUEUES, Core
from omq.core.index.tables import Tables
from omq.core.judge.cases import Case
from omq.core.judge.finding import Found
from omq.core.judge.judge import judge_names, judge_spool
from omq.core.judge.redo_findings import of_double_write, of_journal, of_records, once
from omq.core.load.missing_bodies import missing_bodies
from omq.core.load.rebuild import load
from omq.core.redo.held_records import HeldRecords
from omq.core.redo.redo import Redo
from omq.core.redo.windows import Windows
from omq.format.findings import Finding, Kind
from omq.format.index import Counter, IndexLayout, QueueFlag
from omq.format.poolctrl import PoolControl
from omq.storage import poolctrl
from omq.storage.journal_reader import JournalScan, void_up_to
from omq.storage.pool import PoolFiles, possible_contents
from omq.storage.pool_beside import has_moved, look_beside
from omq.storage.pool_overlay import OverlaidPool
from omq.storage.slots import SlotAllocator
from omq.storage.spool import open_spool

_QUEUES: Final = 1000  # rows of the queue table, as the manager has them
_READERS: Final = 1
_SPARE: Final = 1024
_PARTS_MAX: Final = 17  # queue parts a pool record has at most, and one for IDEL
_TRIES: Final = 3
POOL_FILES: Final = "pool files"
BODY_FILES: Final = "files of bodies"
Told = Callable[[int], None]
_WINDOW_BYTES: Final = 16 << 20  # of journal redone at once: bounds what it takes besides the index


@dataclass(slots=True)
class OfflineIndex:
    """The tables, and what was met on the way."""

    tables: Tables
    lsn: int  # last LSN of the journal
    durable_lsn: int  # highest that the journal says was on the disk
    control: PoolControl | None
    queues: dict[int, str]
    findings: list[Finding] = field(default_factory=list)
    clean: bool = False  # the last manager stopped in order
    moved: bool = False  # the checkpoint moved while the files were read
    pending: int = 0  # changes of pool records that are only in the journal
    cut: list[Finding] = field(default_factory=list)  # a slot of poolctrl that a cut left
    definitions: dict[str, str] = field(default_factory=dict)  # of queues made at run time
    uncompared: list[str] = field(default_factory=list)  # what moved while it was compared
    judged: list[Found] = field(default_factory=list)  # `findings`, and what they mean


def read_files(paths: SpoolPaths, now_ns: int, progress: Told = lambda done: None
               ) -> OfflineIndex:
    """See the module. `now_ns`: wall clock; deferred messages that are due then are ready.
    `progress` gets how many bytes of the journal were read."""
    info = open_spool(paths.root)
    found = _read(paths, info.uuid, now_ns, progress)
    for _ in range(_TRIES - 1):
        if not found.moved:
            break
        found = _read(paths, info.uuid, now_ns, progress)
    absent, moved = look_beside(paths, info.uuid, partial(_absent, paths, info.uuid))
    if moved:
        found.uncompared.append(POOL_FILES)
    else:
        found.judged = [*absent, *_not_told(found.judged, absent)]
    if found.moved:
        found.uncompared.append(BODY_FILES)
    found.judged = once(found.judged)
    seen = [each.finding for each in found.judged]
    found.findings = [f for f in seen if f.kind not in (Kind.END, Kind.TORN)]
    found.cut = [f for f in seen if f.kind is Kind.TORN and f.file == poolctrl.NAME]
    return found


def _not_told(judged: list[Found], absent: list[Found]) -> list[Found]:
    """What the reading met, without what the look at the files as such has told."""
    told = {(each.file, each.lsn) for each in absent if each.file.startswith("journal/")}
    return [each for each in judged if each.case is Case.BODY_DAMAGED
            or (each.file, each.lsn) not in told]


def _read(paths: SpoolPaths, uuid: bytes, now_ns: int, progress: Told) -> OfflineIndex:
    control, _ = poolctrl.load(paths)
    pool, findings = OverlaidPool(paths, uuid), list[Finding]()
    try:
        pool.lay_double_write()
        redo, scan = _redo(paths, uuid, pool, control, progress)
        born, redo.images = redo.images, HeldRecords()
        pending = len(born) + len(redo.dirty) + len(redo.clears)
        pool.lay(redo.changes())
        pool.lay_rows(born.rows())
        core = _fill(pool, uuid, now_ns, findings)
        absent = missing_bodies(core, paths)
    finally:
        pool.close()
    moved = has_moved(paths, uuid, control, pool.stands)
    judged = [*of_double_write(pool.findings), *of_journal([*scan.findings, *_damage(redo, scan)]),
              *judge_names(control, redo.queues, int(core.t.v["m_qpool"].max(initial=0))),
              *of_records(findings),
              *([] if moved else absent)]  # what was retired meanwhile is not missing
    _name_queues(core.t, redo.queues)
    _count(core.t, redo, control, void_up_to(paths, uuid, control.lsn) if control else 0)
    return OfflineIndex(core.t, redo.lsn, scan.durable_lsn, control, redo.queues,
                        clean=redo.clean_stop, moved=moved, pending=pending,
                        definitions=redo.definitions, judged=judged)


def _absent(paths: SpoolPaths, uuid: bytes, control: PoolControl | None, pool: OverlaidPool
            ) -> list[Found]:
    """What a start would miss."""
    _, slots = poolctrl.load(paths)
    possible, pool.checkpoint = possible_contents(control, pool.stands)
    return judge_spool(paths, uuid, control, slots, pool, possible)


def _redo(paths: SpoolPaths, uuid: bytes, pool: PoolFiles, control: PoolControl | None,
          progress: Told) -> tuple[Redo, JournalScan]:
    """The journal after the checkpoint, redone in memory."""
    redo = Redo(pool)
    number = offset = 0
    if control is not None:
        redo.queues, redo.lsn = dict(control.queues), control.lsn
        redo.definitions = dict(control.definitions)
        redo.next_qpool = control.next_qpool
        number, offset = control.journal, control.offset
    scan = JournalScan(paths, uuid, number, offset, redo.lsn)
    windows, read = Windows(scan, _WINDOW_BYTES), 0
    for window in windows:
        redo.next_qpool = max(redo.next_qpool, *(b.header.next_qpool for b in window))
        redo.apply(window, windows.durable)
        read += sum(block.header.length for block in window)
        progress(read)
    return redo, scan


def _damage(redo: Redo, scan: JournalScan) -> list[Finding]:
    """What redo could not believe; above what was durable it is a torn append."""
    return [replace(f, kind=Kind.TORN) if f.kind is Kind.CORRUPT and f.lsn > scan.durable_lsn else f
            for f in redo.findings]


def _fill(pool: OverlaidPool, uuid: bytes, now_ns: int, findings: list[Finding]) -> Core:
    slots = pool.record_slots() + _SPARE
    for entries in (2 * slots, _PARTS_MAX * slots):
        core = Core(_private(slots, entries), SlotAllocator(), _NoBodies(), uuid)
        core.now_ns = now_ns
        try:
            loaded = load(core, pool, SlotAllocator())
        except IndexFull:
            continue  # messages on many queues: once more with room for all
        findings += loaded.findings
        core.t.publish()
        return core
    raise AssertionError("a record has no more parts than it has room for")


class _NoBodies:
    """Non-persistent messages are not on the disk, so a load has none."""

    number = 0

    def append(self, payloads: Sequence[bytes | memoryview]) -> tuple[int, list[int]]:
        raise AssertionError("nothing is put here")

    @property
    def is_full(self) -> bool:
        return False

    def release(self, number: int, count: int = 1) -> None:
        raise AssertionError("nothing ends here")


def _private(messages: int, entries: int) -> Tables:
    """Tables in memory that the kernel gives when it is touched, however large they may get."""
    layout = IndexLayout.of(messages, entries, _QUEUES, _READERS)
    memory: Vector = np.zeros(layout.size, dtype="u1")
    return Tables(memoryview(memory), layout)  # type: ignore[arg-type]


def _name_queues(t: Tables, queues: dict[int, str]) -> None:
    high = t.counters[Counter.ENTRIES_HIGH]
    used = distinct(t.v["e_queue"][:high][t.v["e_state"][:high] != 0]).tolist()
    unnamed = {number: f"#{number}" for number in used}  # whose name is lost with its journal file
    for number, name in (unnamed | queues | SPECIAL_QUEUES).items():
        if number >= t.layout.queues:
            continue
        flags = QueueFlag.IN_USE
        if number in SPECIAL_QUEUES:
            flags |= QueueFlag.SPECIAL
        t.q_flags[number] = flags
        t.set_queue_name(number, escape(name))
        t.counters[Counter.QUEUES_HIGH] = max(t.counters[Counter.QUEUES_HIGH], number + 1)


def _count(t: Tables, redo: Redo, control: PoolControl | None, saved: int) -> None:
    c = t.counters
    c[Counter.LAST_LSN] = c[Counter.DURABLE_LSN] = redo.lsn
    c[Counter.NEXT_QPOOL] = redo.next_qpool
    if control is not None:
        c[Counter.CHECKPOINT_LSN] = min(saved, redo.lsn)
        c[Counter.CHECKPOINT_TIME] = control.time_ns
