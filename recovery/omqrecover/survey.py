"""The scan of a spool: every part read once, findings put together, nothing written.

Order: poolctrl, headers of the journal, pool records; then ONE pass over history, which feeds the
ledger (up to the checkpoint, then to the end) and redo after the checkpoint, as the next start
would do it; then bodies, store and containers of what is alive.

Memory: the columns of the live messages and of the ledger, about 150 bytes each, and what happened
after the checkpoint. Errors: DiskError, SpoolMissing, SpoolLocked, Damaged, NewerFormat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from omq.base.arrays import Rows, picked
from omq.base.paths import SpoolPaths
from omq.core.judge.cases import Case, Place, Source
from omq.core.judge.finding import Found
from omq.core.judge.judge import judge_names, judge_spool
from omq.core.redo.redo import Redo
from omq.core.redo.windows import Windows
from omq.format.findings import Kind
from omq.format.pool import Message, Record, decode_record
from omq.format.poolctrl import PoolControl
from omq.storage import poolctrl
from omqtools.omqrecover import body_survey, journal_survey
from omqtools.omqrecover.control_survey import ControlState, read_control, read_double_write
from omqtools.omqrecover.history import History
from omqtools.omqrecover.ledger import Ledger
from omqtools.omqrecover.pending_pool import PendingPool
from omqtools.omqrecover.pool_survey import COLUMNS, PoolState, compare, judged_files, read_pool

Progress = Callable[[str], None]
"""Journal for one step of ledger and redo: bounds memory."""
_UNKNOWN: Final = frozenset({
    Case.RECORD_DAMAGED, Case.RECORD_MISSING, Case.POOL_FILE_MISSING, Case.POOL_FILE_FOREIGN,
    Case.POOL_FILE_DIFFERS, Case.JOURNAL_NEWEST, Case.JOURNAL_NO_FOLLOWER, Case.JOURNAL_CUT,
    Case.POOL_FILE_RENAMED, Case.CONTROL_LOST, Case.CONTROL_FOREIGN, Case.NEWER,
    Case.JOURNAL_ARCHIVED, Case.JOURNAL_BEHIND, Case.JOURNAL_POSITION, Case.JOURNAL_GAP,
    Case.JOURNAL_BLOCK, Case.BODY_DAMAGED})  # fmt: skip
"""While one of these is there, a container may belong to a message that is not known."""
_OF_POOL: Final = (Case.POOL_FILE_MISSING, Case.POOL_FILE_DIFFERS, Case.CONTROL_LOST)


@dataclass(slots=True)
class Survey:
    """The result. `highest_lsn`, `next_qpool`: no number that was ever given is above them, as far
    as the spool knows."""

    paths: SpoolPaths
    uuid: bytes
    control: ControlState
    history: History
    redo: Redo
    live: Rows
    highest_lsn: int = 0
    next_qpool: int = 1
    found: list[Found] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    pool: PoolState | None = None
    ledger: Ledger | None = None


def survey(paths: SpoolPaths, uuid: bytes, progress: Progress, *, bodies: bool = True) -> Survey:
    """Scan the spool. The caller keeps every daemon out."""
    control = read_control(paths, uuid)
    pool = PendingPool(paths, uuid)
    try:
        return _survey(paths, uuid, control, pool, progress, bodies=bodies)
    finally:
        pool.close()


def _survey(paths: SpoolPaths, uuid: bytes, control: ControlState, pool: PendingPool,
            progress: Progress, *, bodies: bool) -> Survey:
    current = control.control
    state = read_pool(pool, current, progress)
    newest, slots = poolctrl.load(paths)
    judged = judge_spool(paths, uuid, newest, slots, pool, state.possible)
    found = [*read_double_write(pool), *journal_survey.read_headers(paths, uuid)]
    history = History([paths.archive, paths.journal], uuid, progress)
    history.archive, history.newest = paths.archive, journal_survey.noted(paths, uuid)
    history.needed_lsn = max(current.lsn if current else 0, int(state.rows["lsn"].max(initial=0)))
    redo = Redo(pool)
    then, now = _pass(paths, history, control, redo, state)
    if current is not None:
        _rewritten(redo, state)
    coming = {each.target for each in found if each.case is Case.JOURNAL_RENAMED
              and each.place is Place.FREE}  # to where they belong
    judged = [each for each in judged if each.file not in coming or each.case not in (
        Case.JOURNAL_POSITION, Case.JOURNAL_NEWEST)]
    found += _with_history(judged, paths, history, current)
    found += journal_survey.judge(history, current, judged)
    found += _redo_findings(redo, history)
    found += [*state.found, *judged_files(state, judged, history)]
    if current is not None:
        found += compare(state, then, now, history)
    else:
        found += compare(state, Ledger(state.rows["qpool"]), now, history)
        found += _control_lost(judged, paths, state, history, redo)
    found = _explained(found)
    made = Survey(paths, uuid, control, history, redo, _effective(state.rows, redo), found=found,
                  pool=state, ledger=now)
    made.lines = [*control.slots, *state.files, *journal_survey.counts(history)]
    _numbers(made)
    if bodies:
        _bodies(made, progress)
    return made


def _with_history(judged: list[Found], paths: SpoolPaths, history: History,
                  control: PoolControl | None) -> list[Found]:
    """What the judge has found besides the pool files, which have their own."""
    seen = (journal_survey.with_history(each, paths, history, control) for each in judged
            if each.case not in _OF_POOL)
    return [each for each in seen if each is not None]


def _rewritten(redo: Redo, state: PoolState) -> None:
    """Damaged records that the next start writes anew, from the journal after the checkpoint."""
    slots = {*redo.changes(), *((file, record) for file, record, _ in redo.images.images())}
    for slot in slots & state.damaged.keys():
        del state.damaged[slot]


def _explained(found: list[Found]) -> list[Found]:
    """Where history knows everything, the findings on the records of a file say why it differs."""
    told = {each.file for each in found if each.case is not Case.POOL_FILE_DIFFERS}
    return [each for each in found if each.case is not Case.POOL_FILE_DIFFERS
            or each.source is not Source.WHOLE or each.file not in told]


def _pass(paths: SpoolPaths, history: History, control: ControlState, redo: Redo,
          state: PoolState) -> tuple[Ledger, Ledger]:
    """Read history once; the ledger at the checkpoint and at the end."""
    now = Ledger(state.rows["qpool"])
    checkpoint = control.control.lsn if control.control else 0
    if control.control is not None:
        redo.lsn = checkpoint
        redo.queues = dict(control.control.queues)
        redo.definitions = dict(control.control.definitions)
        redo.clients = dict(control.control.clients)
        redo.next_qpool = control.control.next_qpool
    current = {file.number for file in history.files if file.path.parent == paths.journal}
    then: Ledger | None = None
    windows = Windows(history)
    for window in windows:
        if then is None and window[-1].header.last_lsn > checkpoint:
            now.apply(window, checkpoint)
            then = now.copy()
        now.apply(window)
        if control.control is not None:
            redo.apply(window, windows.durable)
        else:
            redo.apply([block for block in window if block.number in current], windows.durable)
    return then or now, now


def _redo_findings(redo: Redo, history: History) -> list[Found]:
    """Damage inside frames that redo met; what lies above all that was durable was cut."""
    return [Found.of(Case.JOURNAL_BLOCK, "journal", each, Source.PART) for each in redo.findings
            if each.record < 0 and each.kind is Kind.CORRUPT and each.lsn <= history.durable_lsn]


def _control_lost(judged: list[Found], paths: SpoolPaths, state: PoolState, history: History,
                  redo: Redo) -> list[Found]:
    """No valid slot: fine in a spool that never was used, or when the journal has it all."""
    if any(each.case is Case.CONTROL_FOREIGN for each in judged):
        return []
    said = [each for each in judged if each.case is Case.CONTROL_LOST]
    said += judge_names(None, redo.queues, int(state.rows["qpool"].max(initial=0)))
    if not said:
        return []
    kept = [file.follows for file in history.files if file.path.parent == paths.journal]
    begins = bool(state.possible) or not kept or kept[0] is None or kept[0].first_lsn == 1
    source = Source.WHOLE if redo.queues and begins else Source.NONE
    if source is Source.NONE and history.last_lsn:
        source = Source.PART  # the archive has names
    return [replace(said[-1], source=source)]


def _effective(rows: Rows, redo: Redo) -> Rows:
    """The live messages behind redo: those of the pool that it did not change, and its own."""
    changed = np.concatenate((np.array([*redo.dirty], dtype="<u8"), redo.images.qpools()))
    kept = picked(rows, ~np.isin(rows["qpool"], changed)) if len(changed) else rows
    messages = [each for each in redo.dirty.values() if each is not None]
    for file, record, image in redo.images.images():
        made = decode_record(image, 0, file, record)
        assert isinstance(made, Record)
        messages.append(made.message)
    added = np.zeros(len(messages), dtype=[(name, "<u8") for name in COLUMNS])
    for i, message in enumerate(messages):
        added[i] = _columns(message)
    return np.concatenate((kept, added))


def _columns(m: Message) -> tuple[int, ...]:
    return (m.qpool, m.lsn, m.file, m.record, m.location, m.offset, m.length, m.crc, m.size,
            m.flags, len(m.parts), 0)


def _numbers(made: Survey) -> None:
    control = made.control.control
    made.highest_lsn = max(made.history.last_lsn, control.lsn if control else 0,
                           int(made.live["lsn"].max(initial=0)))
    made.next_qpool = max(made.history.next_qpool, control.next_qpool if control else 1,
                          made.redo.next_qpool, int(made.live["qpool"].max(initial=0)) + 1)


def _bodies(made: Survey, progress: Progress) -> None:
    paths = made.paths
    state = body_survey.read_bodies(paths, made.live, progress)
    if state.damaged:
        again = History([paths.archive, paths.journal], made.uuid, progress)
        coming = {each.target for each in made.found
                  if each.case in (Case.JOURNAL_RENAMED, Case.JOURNAL_ARCHIVED)}
        state.found = body_survey.with_copies(
            state.found, body_survey.find_copies(iter(again), state), coming)
    made.found += state.found
    stores, lines = body_survey.read_stores(paths, made.uuid, made.live, progress)
    made.found += stores
    made.lines += lines
    made.lines.append({"part": "bodies", "name": "of live messages", "read": state.bodies,
                       "damaged": len(state.damaged)})
    unknown = bool(state.damaged) or any(each.case in _UNKNOWN for each in made.found)
    found, count = body_survey.orphans(paths, state.refs)
    made.lines.append({"part": "containers", "name": "data/", "files": count,
                       "named": state.containers, "orphans": None if unknown else len(found)})
    if not unknown:
        made.found += found
