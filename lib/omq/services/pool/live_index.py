"""pool.writer's look at the index: how far the journal is durable, and where live bodies lie.

The index is read while the queue manager changes it. Why a live body can never be missed:

1. A live message keeps its slot, and its location changes only by a RELOCATE, which pool.writer
   alone asks for and waits for. So its row reads the same at any moment of its life.
2. A row is taken as live when its m_qpool is not 0. A slot that is being filled or emptied may be
   counted for a file that it has left, never the other way round: new messages lie in the newest
   journal file, which is not a candidate.
3. Slots above MESSAGES_HIGH were first used by the group in progress: newest journal file, again.

Why "nothing live is here" may be believed: the index is ahead of the disk inside a group. `look`
waits until the group that was in progress has committed and says which LSN was durable then: every
end of a life that it saw is at or below that. What depends on it happens when a checkpoint covers
that LSN.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding
from omq.format.index import COUNTERS_AT, TABLES_AT, Counter, IndexFlag, read_header
from omq.format.location import KIND_SHIFT
from omq.format.store import ENTRY, padded_many
from omq.storage import durable
from omq.storage.segment import AttachedIndex, read_ids

FEW_FILES: Final = 1 << 16
"""File numbers of one kind that are counted by position, besides one for each body."""
SETTLE_TURNS: Final = 100
"""Waits for a group to end: a group lasts milliseconds; after these the round is postponed."""
BODY: Final = np.dtype([("qpool", "<u8"), ("offset", "<i8"), ("length", "<i8"), ("crc", "<u4"),
                        ("record", "<u4"), ("file", "<u4"), ("slot", "<u4")])
"""Where one live message's payload lies in a file; its pool record and its slot of the index."""
_COLUMNS: Final = ("m_qpool", "m_offset", "m_length", "m_crc", "m_record", "m_file")


@dataclass(frozen=True, slots=True)
class Look:
    """Live payload bytes by location word; `lsn`: every change that it saw is durable up to
    here."""

    lsn: int
    bodies: dict[int, int]
    bytes: dict[int, int]


class LiveIndex:
    """The index of the running manager; ManagerUnavailable when there is none."""

    def __init__(self, paths: SpoolPaths) -> None:
        self._paths = paths
        self._attached = AttachedIndex(paths)
        self._layout = self._attached.header.layout()
        self._counters = self._attached.buffer[COUNTERS_AT:TABLES_AT].cast("Q")
        self.epoch = self._attached.header.epoch
        self.uuid = self._attached.header.uuid
        self.pidfd = self._watch()
        self._ids_written: tuple[int, int] | None = None  # ids.json when it named this manager

    def _watch(self) -> int:
        """A descriptor that is readable when the manager has ended; -1 when it already has. Asked
        whether it runs after the opening, for its pid might have gone to another process."""
        try:
            opened = os.pidfd_open(self._attached.ids.pid)
        except ProcessLookupError:
            return -1
        if self._attached.alive:
            return opened
        os.close(opened)
        return -1

    @property
    def running(self) -> bool:
        """Does this manager still run, and is it the one that clients find?"""
        if self.pidfd < 0 or _readable(self.pidfd):
            return False
        found = durable.status(self._paths.ids)
        written = None if found is None else (found.st_ino, found.st_mtime_ns)
        if written is None or written != self._ids_written:  # else it says what it said before
            ids = read_ids(self._paths)
            self._ids_written = written if ids is not None and ids.epoch == self.epoch else None
        return self._ids_written is not None

    @property
    def complete(self) -> bool:
        """Does the index hold every message of the pool? Not when the manager was told not to read
        them: then it says nothing about where live bodies are."""
        header = read_header(self._attached.buffer)
        return not isinstance(header, Finding) and not header.flags & IndexFlag.POOL_NOT_READ

    @property
    def pool_damaged(self) -> bool:
        """Did the manager meet pool records or files that it could not read? Nobody can say where
        the bodies of these messages lie."""
        header = read_header(self._attached.buffer)
        return isinstance(header, Finding) or bool(header.flags & IndexFlag.POOL_DAMAGED)

    def counter(self, which: Counter) -> int:
        return int(self._counters[which])

    def look(self, wait: Callable[[], None]) -> Look | None:
        """Where live bodies are now; None when a group did not end in time (`wait`: a short
        one)."""
        qpool, word, length = self._columns("m_qpool", "m_location", "m_length")
        seen = self.counter(Counter.VERSION)
        if not self._settled(seen, wait):
            return None
        lsn = self.counter(Counter.DURABLE_LSN)
        live = qpool != 0
        sizes = ENTRY.size + padded_many(length[live].astype(np.int64))
        return Look(lsn, *_by_word(word[live], sizes))

    def _settled(self, seen: int, wait: Callable[[], None]) -> bool:
        """Has the group that was in progress at version `seen` committed?"""
        if seen % 2 == 0:
            return True
        for _ in range(SETTLE_TURNS):
            if self.counter(Counter.VERSION) > seen:
                return True
            wait()
        return False

    def bodies_in(self, word: int) -> Vector:
        """Live messages whose payload lies in this file, by offset (rows of BODY). A message that
        ended while we looked is left out: its id is compared before and after its other columns are
        read."""
        before, where = self._columns("m_qpool", "m_location")
        slots = np.flatnonzero((where == word) & (before != 0))
        rows = np.zeros(len(slots), dtype=BODY)
        for name, column in zip(_COLUMNS, self._columns(*_COLUMNS), strict=True):
            rows[name.removeprefix("m_")] = column[slots]
        rows["slot"] = slots
        again, after = self._columns("m_location", "m_qpool")
        same = (rows["qpool"] == before[slots]) & (after[slots] == rows["qpool"])
        rows = rows[same & (again[slots] == word)]
        return np.asarray(rows[np.argsort(rows["offset"], kind="stable")])

    def _columns(self, *names: str) -> list[Vector]:
        """Copies, so that no view of the segment outlives the call."""
        high = min(self.counter(Counter.MESSAGES_HIGH), self._layout.messages)
        buffer = self._attached.buffer
        return [self._layout.vector(buffer, name)[:high].copy() for name in names]

    def close(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self._counters.release()
        self._attached.close()


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _by_word(words: Vector, sizes: Vector) -> tuple[dict[int, int], dict[int, int]]:
    """How many bodies lie in each file, and how many bytes they take. The files of a kind have
    numbers close together, so nothing is sorted."""
    counts: dict[int, int] = {}
    totals: dict[int, int] = {}
    kinds = words >> KIND_SHIFT
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        mine, weights = words[kinds == kind], sizes[kinds == kind]
        first, last = int(mine.min()), int(mine.max())
        if last - first > len(words) + FEW_FILES:  # never: but memory must not depend on that
            listed, mine = np.unique(mine, return_inverse=True)
        else:
            listed, mine = np.arange(first, last + 1), mine - first
        found = np.bincount(mine)
        bytes_ = np.bincount(mine, weights=weights)
        for i in np.flatnonzero(found).tolist():
            counts[int(listed[i])], totals[int(listed[i])] = int(found[i]), int(bytes_[i])
    return counts, totals
