"""Every pool file and record: what is live, what is damaged, lost, old, double or stray.

Records are judged alone first (format, place, continuation), then against each other (one record a
message), then against the ledger at the checkpoint (missing, older, ended). What a checkpoint that
was cut has written already, above the checkpoint's LSN, is newer and right.

Errors: DiskError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from omq.base.arrays import Rows, joined, picked
from omq.base.limits import POOL_FILES_MAX
from omq.core.judge.cases import Case, Place, Source
from omq.core.judge.finding import Found
from omq.format.findings import Finding, Kind
from omq.format.pool import FILE_HEADER, FILE_MAGIC, NO_RECORD, RECORD_BYTES, Message
from omq.format.pool_contents import Contents
from omq.format.poolctrl import PoolControl
from omq.storage.pool import possible_contents
from omq.storage.pool_scan import PoolChunk
from omqtools.omqrecover.history import History
from omqtools.omqrecover.ledger import Ledger
from omqtools.omqrecover.pending_pool import PendingPool

COLUMNS: Final = ("qpool", "lsn", "file", "record", "location", "offset", "length", "body_crc",
                  "size", "flags", "parts", "next")  # fmt: skip
Slot = tuple[int, int]


@dataclass(slots=True)
class PoolState:
    """The records that are valid and count."""

    rows: Rows  # COLUMNS
    found: list[Found] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)  # counts of each file
    damaged: dict[Slot, Finding] = field(default_factory=dict)
    absent: list[int] = field(default_factory=list)  # pool files that must be there and are not
    possible: list[Contents] = field(default_factory=list)  # what the files may hold; [] = unknown
    sure: set[int] = field(default_factory=set)  # files that hold just what the checkpoint left
    returning: set[int] = field(default_factory=set)  # those that are there under another name


def read_pool(pool: PendingPool, control: PoolControl | None, progress: Callable[[str], None]
              ) -> PoolState:
    """All pool files, and what they may hold."""
    state = PoolState(np.zeros(0, dtype=np.int64))
    state.possible, pool.checkpoint = possible_contents(control, pool.stands)
    kept: list[Rows] = []
    strays: list[Slot] = []
    for file in pool.files():
        progress(f"reading msgpool/{file}QP")
        live, more, damaged = _read_file(pool, file, state)
        kept.append(live)
        chained = _chains(pool, file, live, state)
        strays += [(file, n) for n in more if n not in chained]
        state.files.append({"part": "pool file", "name": f"msgpool/{file}QP", "live": len(live),
                            "continuations": len(more), "damaged": damaged})
    state.rows = _joined(kept)
    state.returning = {int(f.target.removeprefix("msgpool/").removesuffix("QP"))
                       for f in state.found
                       if f.case is Case.POOL_FILE_RENAMED and f.place is Place.FREE}
    state.found += [_at(Case.RECORD_STRAY, slot, "no record leads to it") for slot in strays]
    _duplicates(state)
    return state


def _joined(kept: list[Rows]) -> Rows:
    """The gathered rows; an empty table with the right columns when there are none."""
    if kept:
        return joined(kept)
    return np.zeros(0, dtype=[(name, "<u8") for name in COLUMNS])


def _read_file(pool: PendingPool, file: int, state: PoolState) -> tuple[Rows, list[int], int]:
    live: list[Rows] = []
    more: list[int] = []
    damaged = 0
    for chunk in pool.scan(file):
        live.append(_columns(chunk))
        more += (np.flatnonzero(chunk.more) + chunk.first).tolist()
        for finding in chunk.findings:
            damaged += 1
            _judge(file, finding, state, pool)
    return _joined(live), more, damaged


def _columns(chunk: PoolChunk) -> Rows:
    out = np.zeros(np.count_nonzero(chunk.live), dtype=[(name, "<u8") for name in COLUMNS])
    for name in COLUMNS:
        out[name] = chunk.records[name][chunk.live]
    return out


def _judge(file: int, finding: Finding, state: PoolState, pool: PendingPool) -> None:
    """A finding of the bulk scan: about a record, or about the whole file."""
    if finding.kind is Kind.NEWER:
        state.found.append(Found.of(Case.NEWER, "msgpool", finding))
    elif finding.kind is Kind.SHORT and finding.record >= 0:
        state.found.append(Found.of(Case.POOL_FILE_CUT, "msgpool", finding))
    elif finding.record >= 0:
        state.damaged[file, finding.record] = finding
    elif finding.kind is Kind.CORRUPT:
        state.found.append(Found.of(Case.POOL_FILE_HEADER, "msgpool", finding))
    else:
        state.found.append(_foreign(file, finding, pool))


def _foreign(file: int, finding: Finding, pool: PendingPool) -> Found:
    """A file that is not what its name says: one of ours that was renamed, or anything else."""
    number = _named(file, pool) if "another name" in finding.reason else -1
    if number < 0:
        return Found.of(Case.POOL_FILE_FOREIGN, "msgpool", finding)
    place = Place.TAKEN if number in pool.files() else Place.FREE
    return Found(Case.POOL_FILE_RENAMED, f"msgpool/{file}QP", finding.reason, place=place,
                 target=f"msgpool/{number}QP")


def _named(file: int, pool: PendingPool) -> int:
    """The number in the header of a pool file; -1 when it cannot be one."""
    opened = pool._open(file)
    data = opened.read(FILE_HEADER.size, 0) if opened is not None else b""
    if len(data) < FILE_HEADER.size or data[:4] != FILE_MAGIC:
        return -1
    number = int(FILE_HEADER.as_dict(data)["number"])
    return number if number < POOL_FILES_MAX else -1


def _chains(pool: PendingPool, file: int, live: Rows, state: PoolState) -> set[int]:
    """Records that continue a message; one whose continuation is missing counts as damaged."""
    out: set[int] = set()
    for record in live["record"][live["next"] != NO_RECORD].tolist():
        message = pool.read_record(file, record)
        if isinstance(message, Message):
            out.update(message.more)
        elif isinstance(message, Finding):
            state.damaged[file, record] = message
    return out


def _duplicates(state: PoolState) -> None:
    """Of two records with one QPoolId the higher LSN stays in `rows`."""
    rows = state.rows
    order = np.lexsort((rows["lsn"], rows["qpool"]))
    rows = picked(rows, order)
    older = np.append(rows["qpool"][:-1] == rows["qpool"][1:], False)[: len(rows)]
    for row in rows[older]:
        state.found.append(_at(
            Case.RECORD_DUPLICATE, (int(row["file"]), int(row["record"])),
            f"QPoolId {row['qpool']} is there twice", int(row["qpool"]), int(row["lsn"])))
    state.rows = picked(rows, ~older) if older.any() else rows


def _at(case: Case, slot: Slot, reason: str, qpool: int = 0, lsn: int = 0,
        source: Source = Source.NONE) -> Found:
    file, record = slot
    return Found(case, f"msgpool/{file}QP", reason, (record + 1) * RECORD_BYTES, RECORD_BYTES,
                 record, qpool, lsn, source)


# against what was written


def judged_files(state: PoolState, judged: list[Found], history: History) -> list[Found]:
    """The files that are not what the last checkpoint left, with what history knows of them;
    `state.absent` and `state.sure` (those that are) are filled in."""
    wrong = {_number(each): each for each in judged
             if each.case in (Case.POOL_FILE_MISSING, Case.POOL_FILE_DIFFERS)}
    state.absent = sorted(file for file, each in wrong.items()
                          if each.case is Case.POOL_FILE_MISSING and file not in state.returning)
    if state.possible:
        damaged = {file for file, _ in state.damaged}
        state.sure = {*range(POOL_FILES_MAX)} - {*wrong} - damaged
    source = Source.WHOLE if history.complete else Source.PART
    return [replace(each, source=source) for file, each in wrong.items()
            if each.case is Case.POOL_FILE_DIFFERS and file not in state.returning]


def _number(each: Found) -> int:
    return int(each.file.removeprefix("msgpool/").removesuffix("QP"))


# against history


def compare(state: PoolState, then: Ledger, now: Ledger, history: History) -> list[Found]:
    """What the ledger at the checkpoint (`then`) and at the end (`now`) say of the records."""
    out = [_damaged(slot, finding, now, history) for slot, finding in state.damaged.items()]
    out += [_absent(file, now, history) for file in state.absent]
    out += _old_and_ended(state, then, now, history)
    return out + _missing(state, then, now, history)


def source_of(born: int, history: History) -> Source:
    """How well history knows a message that was born at this LSN."""
    return Source.PART if history.missing_since(born) else Source.WHOLE


def _damaged(slot: Slot, finding: Finding, now: Ledger, history: History) -> Found:
    row = now.at_slot(*slot)
    if row is not None:
        reason = f"{finding.reason}; it held message {row['qpool']}"
        return _at(Case.RECORD_DAMAGED, slot, reason, int(row["qpool"]), int(row["last"]),
                   source_of(int(row["born"]), history))
    source = Source.WHOLE if history.complete else Source.NONE
    reason = finding.reason + ("; the slot was free" if history.complete else "")
    return _at(Case.RECORD_DAMAGED, slot, reason, source=source)


def _absent(file: int, now: Ledger, history: History) -> Found:
    known = len(now.in_file(file))
    source = Source.WHOLE if history.complete else Source.PART if known else Source.NONE
    reason = f"the checkpoint counts it; history knows {known} messages in it"
    return Found(Case.POOL_FILE_MISSING, f"msgpool/{file}QP", reason, source=source)


def _old_and_ended(state: PoolState, then: Ledger, now: Ledger, history: History) -> list[Found]:
    rows = state.rows
    known, there = then.of(rows["qpool"])
    old = there & (rows["lsn"] < known["last"])
    # What ended above the checkpoint is cleared by the start; only what ended below it is damage.
    ended = np.isin(rows["qpool"], then.ended)
    out = []
    for row, last in zip(rows[old], known[old], strict=True):
        at = now.of(row["qpool"].reshape(1))[0][0]
        source = source_of(int(at["born"] or last["born"]), history)
        if source is not Source.WHOLE and int(row["file"]) in state.sure:
            continue
        out.append(_at(Case.RECORD_OLD, _slot(row), f"LSN {row['lsn']}, history has {last['last']}",
                       int(row["qpool"]), int(last["last"]), source))
    out += [_at(Case.RECORD_ENDED, _slot(row), f"message {row['qpool']} has ended",
                int(row["qpool"]), int(row["lsn"]), Source.WHOLE) for row in rows[ended]]
    return out


def _missing(state: PoolState, then: Ledger, now: Ledger, history: History) -> list[Found]:
    """Messages that were alive at the checkpoint and are alive now, without a record; those of
    damaged slots and absent files are findings already."""
    listed = then.rows[~np.isin(then.rows["qpool"], state.rows["qpool"])]
    later, alive = now.of(listed["qpool"])
    hidden = {*state.absent, *state.returning}
    out = []
    for row in later[alive]:
        source = source_of(int(row["born"]), history)
        # The checkpoint left no record of it: it has ended in what is missing of history.
        ended = source is not Source.WHOLE and int(row["file"]) in state.sure
        if _slot(row) not in state.damaged and int(row["file"]) not in hidden and not ended:
            out.append(_at(Case.RECORD_MISSING, _slot(row), f"message {row['qpool']}",
                           int(row["qpool"]), int(row["last"]), source))
    return out


def _slot(row: Any) -> Slot:
    return int(row["file"]), int(row["record"])
