"""The three-way audit: index, Message Pool and journal must say the same of every message.

    index     the tables of the manager, copied between two groups
    pool      its records, with the journal redone over them (core.load.offline_index)
    journal   alone: the frames of one message from its PUT on, as far as files are kept

Index and pool are compared message by message. What differs is looked up in the journal. A message
that has moved on between the copy of the index and the reading of the files is not a difference,
nor is what is not written: readers, non-persistent messages, who works on IDEL, a deferral that is
over.

Who is wrong: the journal is the truth where it is whole. If all frames of the message are there,
they say it; else the last frame does: whoever has not seen it is wrong, and whoever has seen more
than the journal holds shows that the journal has lost frames.

Nothing is asked of the manager and nothing is written. Errors: those of core.load.offline_index and
core.history.frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.base.clock import NS_PER_S as _NS
from omq.base.names import IDEL_NAME
from omq.base.paths import SpoolPaths
from omq.core.engine.state import IDEL
from omq.core.history.frames import History
from omq.core.index.rows import EntryRow
from omq.core.index.view import IndexView
from omq.core.load.offline_index import OfflineIndex
from omq.core.redo.redo import Redo
from omq.core.redo.source import NoPool
from omq.format.index import EntryState
from omq.format.pool import Message, RecordFlag

_EVERY: Final = 1 << 62
Entry = tuple[str, int, int, int, int]  # state, priority, sequence, failed attempts, deferrals
_WAITING: Final = "waiting"
_ENTRY: Final = ("e_state", "e_priority", "e_sequence", "e_attempts", "e_retries", "e_until")
_MESSAGE: Final = ("m_qpool", "m_size", "m_flags")


class Wrong(StrEnum):
    """Which of the three is not to be believed."""

    INDEX = "index"
    POOL = "pool"
    JOURNAL = "journal"
    UNDECIDED = "index or pool"


@dataclass(frozen=True, slots=True)
class Side:
    """What one of the three says of a message; `lsn` 0 and no queues: it is not there."""

    lsn: int = 0
    size: int = 0
    queues: dict[str, Entry] = field(default_factory=dict)

    @property
    def there(self) -> bool:
        return bool(self.queues)


@dataclass(frozen=True, slots=True)
class Divergence:
    """One message on which they do not agree."""

    qpool: int
    index: Side
    pool: Side
    journal: Side | None  # None: its PUT is in no file any more
    last_lsn: int  # of the last frame about it in the journal, 0 = none
    wrong: Wrong
    why: str


def sides(view: IndexView, qpools: Vector) -> dict[int, Side]:
    """The persistent ones of these messages, as an index has them."""
    found: dict[int, Side] = {}
    now_ns = view.counters()["heartbeat"]
    for row in view.of_messages(qpools):
        if not row.message.persistent:
            continue
        side = found.get(row.message.qpool)
        if side is None:
            side = found[row.message.qpool] = Side(row.message.lsn, row.message.size, {})
        side.queues[row.queue] = _entry(row, now_ns)
    return found


def _entry(row: EntryRow, now_ns: int) -> Entry:
    if row.queue == IDEL_NAME and row.state is not EntryState.DEFERRED:
        return (_WAITING, 0, 0, 0, 0)
    over = row.state is EntryState.DEFERRED and row.until_ns <= now_ns + _NS
    state = EntryState.READY if over else row.state
    return (state.name.lower(), row.priority, row.sequence, row.attempts, row.retries)


def suspects(index: IndexView, pool: IndexView) -> Vector:
    """The persistent messages of which the two do not say the same, ascending; as columns, for a
    million of them must not take long."""
    names: dict[str, int] = {}
    one, other = _rows(index, names), _rows(pool, names)
    if np.array_equal(one, other):
        return np.zeros(0, dtype=np.uint64)
    width = np.dtype((np.void, one.dtype.itemsize * one.shape[1]))
    differ = np.setxor1d(one.view(width), other.view(width))
    return np.unique(differ.view(np.uint64).reshape(-1, one.shape[1])[:, 0])


def _rows(view: IndexView, names: dict[str, int]) -> Vector:
    """A row for each entry of a persistent message: QPoolId, size, queue, and what `_entry` says.
    uint64, shape (n, 8), by QPoolId and queue. `names` numbers the queues of both sides."""
    now_ns = view.counters()["heartbeat"]
    found = [np.zeros((0, 8), dtype=np.uint64)]
    for queue in view.queues():
        number = names.setdefault(queue.name, len(names))
        for state, priority, sequence, attempts, retries, until, qpool, size, flags in view.columns(
                queue.number, _ENTRY, _MESSAGE):
            kept = flags & int(RecordFlag.PERSISTENT) != 0
            deferred = state == int(EntryState.DEFERRED)
            ready = deferred & (until <= now_ns + _NS)
            failed = attempts - ((state == int(EntryState.ACTIVE)) & (attempts > 0))
            waits = (queue.name == IDEL_NAME) & ~deferred
            entry = (np.where(ready, int(EntryState.READY), state), priority, sequence, failed,
                     retries)
            found.append(np.column_stack([
                qpool, size, np.full(len(qpool), number),
                *(np.where(waits, 0, column) for column in entry)]).astype(np.uint64)[kept])
    rows = np.concatenate(found)
    return np.ascontiguousarray(rows[np.lexsort((rows[:, 2], rows[:, 0]))])


def audit(paths: SpoolPaths, view: IndexView, files: OfflineIndex) -> list[Divergence]:
    """Compare; `view` is of a copy that was made before the files were read."""
    seen_lsn = view.counters()["last_lsn"]
    with IndexView.of(files.tables, paths) as offline:
        wanted = suspects(view, offline)
        index, pool = sides(view, wanted), sides(offline, wanted)
    if not len(wanted):
        return []
    history = History(paths)
    last: dict[int, int] = {}
    born: set[int] = set()
    moved: set[int] = set()
    for each in history.read(lambda frames: np.isin(frames["qpool"], wanted)):
        if each.lsn > seen_lsn:
            moved.add(each.qpool)
        last[each.qpool] = each.lsn
        if each.rule.makes:
            born.add(each.qpool)
    found = wanted.tolist()
    truth = _replay(history, [qpool for qpool in found if qpool in born])
    return [_judge(qpool, index.get(qpool, Side()), pool.get(qpool, Side()), truth.get(qpool),
                   last.get(qpool, 0), files.lsn)
            for qpool in found if qpool not in moved]


def _replay(history: History, qpools: Iterable[int]) -> dict[int, Side]:
    """What the frames of these messages alone make of them."""
    wanted = np.array(list(qpools), dtype=np.uint64)
    redo = Redo(NoPool(), many=_EVERY)
    for block in history.blocks():
        mine = np.isin(block.frames["qpool"], wanted)
        if mine.any():
            redo.apply([block.of_frames(block.frames[mine])])
    names = history.queues
    return {qpool: _of_record(redo.dirty.get(qpool), names) for qpool in map(int, wanted)}


def _of_record(message: Message | None, names: dict[int, str]) -> Side:
    if message is None:
        return Side()
    queues: dict[str, Entry] = {}
    for part in message.parts:
        failed = part.attempts - 1 if part.state.name == "ACTIVE" and part.attempts else (
            part.attempts)
        queues[names.get(part.queue, f"#{part.queue}")] = (
            part.state.name.lower(), part.priority, part.sequence, failed, part.retries)
    if not queues:
        queues[names.get(IDEL, "IDEL")] = (_WAITING, 0, 0, 0, 0)
    return Side(message.lsn, message.size, queues)


def _agrees(side: Side, truth: Side) -> bool:
    """An index shows deferrals that are over as ready, a frame never does."""
    if side.queues.keys() != truth.queues.keys():
        return False
    return all(mine[1:] == theirs[1:] and (mine[0] == theirs[0] or {mine[0], theirs[0]} == {
        "ready", "deferred"}) for mine, theirs in (
            (side.queues[name], truth.queues[name]) for name in truth.queues))


def _judge(qpool: int, index: Side, pool: Side, truth: Side | None, last_lsn: int, end_lsn: int
           ) -> Divergence:
    wrong, why = Wrong.UNDECIDED, "both know the last frame about it and differ all the same"
    if truth is not None and _agrees(pool, truth):
        wrong, why = Wrong.INDEX, "its frames in the journal make what the pool says"
    elif truth is not None and _agrees(index, truth):
        wrong, why = Wrong.POOL, "its frames in the journal make what the index says"
    elif index.lsn > end_lsn:
        wrong, why = Wrong.JOURNAL, f"the index has carried out LSN {index.lsn}, the journal ends "\
            f"at {end_lsn}"
    elif pool.lsn > max(last_lsn, index.lsn) and pool.lsn > end_lsn:
        wrong, why = Wrong.JOURNAL, f"the pool holds LSN {pool.lsn}, the journal ends at {end_lsn}"
    elif index.there and index.lsn < last_lsn:
        wrong, why = Wrong.INDEX, f"it has not seen LSN {last_lsn}"
    elif pool.there and pool.lsn < max(last_lsn, index.lsn):
        wrong, why = Wrong.POOL, f"it has not seen LSN {max(last_lsn, index.lsn)}"
    elif index.there and not pool.there:
        wrong, why = Wrong.POOL, "no frame in the journal ends the message, and its record is lost"
    elif pool.there and not index.there:
        wrong, why = Wrong.INDEX, "no frame in the journal ends the message that the pool holds"
    return Divergence(qpool, index, pool, truth, last_lsn, wrong, why)
