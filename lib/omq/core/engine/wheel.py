"""A timing wheel: which messages are over at which time, without work for those that wait.

Times are ns of the clock by which `advance` is called. Buckets are as wide as their time is far
away: 1.07 s within the next 69 s, 64 times as wide each level further. A bucket is a flat array,
(time, slot, QPoolId) a message, 24 bytes; nobody looks at it until it begins. Then those of a wide
one go to narrower ones, CHUNK of them a call and LEAD before they are needed; those of a narrow one
are sorted.

A message that ends takes its item not along. An item whose slot has another QPoolId by now is
stale: it is dropped when its bucket begins, or when the bucket has doubled since it was looked at
last. So memory is at most twice that of the living ones, and LOOK_FROM items a bucket.

Invariant: behind `advance(now)` every living message with a time up to `now` has come out of it.
Source: Varghese and Lauck, Hashed and Hierarchical Timing Wheels (1987).
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.core.index.tables import Tables

BITS: Final = 30  # of the narrowest bucket's width
LEVEL_BITS: Final = 6
LEVELS: Final = 6
LEAD_NS: Final = 2 << BITS
CHUNK: Final = 1 << 16
LOOK_FROM: Final = 4096
NEVER: Final = 1 << 62
NEAR_MAX: Final = 16
_FURTHER = np.array([1 << (BITS + LEVEL_BITS * level) for level in range(1, LEVELS)], np.int64)
_NONE: Vector = np.zeros((0, 3), np.int64)


class _Bucket:
    __slots__ = ("items", "look_at")

    def __init__(self) -> None:
        self.items = array("q")
        self.look_at = 3 * LOOK_FROM


class Wheel:
    """See the module."""

    def __init__(self, tables: Tables) -> None:
        self._t = tables
        self._buckets: dict[int, _Bucket] = {}  # by start | level
        self._starts: list[tuple[int, int]] = []  # heap: when to open it, its key
        self._opening: deque[tuple[int, int, Vector]] = deque()  # start, level, rows
        self._near: list[Vector] = []  # rows of open narrow buckets, sorted
        self._soon: list[tuple[int, int, int]] = []  # heap: those added to open buckets
        self._over: list[Vector] = []
        self._opened = 0  # buckets that begin up to here are open

    def add(self, time: int, slot: int, now: int) -> int:
        """The message in this slot is over at `time`. When `advance` is to be called for it."""
        time = max(now, min(time, NEVER - 1))
        qpool = self._t.m_qpool[slot]
        level = 0
        while level < LEVELS - 1 and time - now >= _FURTHER[level]:
            level += 1
        bits = BITS + LEVEL_BITS * level
        start = time >> bits << bits
        if start <= self._opened:
            heappush(self._soon, (time, slot, qpool))
            return time
        bucket = self._bucket(start, level)
        bucket.items.extend((time, slot, qpool))
        if len(bucket.items) >= bucket.look_at:
            self._look(bucket)
        return start - LEAD_NS if level else start

    def add_many(self, times: Vector, slots: Vector, now: int) -> None:
        """The same for many."""
        rows = np.empty((len(slots), 3), np.int64)
        rows[:, 0] = np.clip(times, now, NEVER - 1)
        rows[:, 1] = slots
        rows[:, 2] = self._t.v["m_qpool"][slots].astype(np.int64)
        self._sort_in(rows, now, LEVELS - 1)

    def advance(self, now: int) -> Vector:
        """Rows (time, slot, QPoolId) of the living messages whose time has come, each once."""
        while self._starts and self._starts[0][0] <= now:
            key = heappop(self._starts)[1]
            level, bucket = key & (1 << BITS) - 1, self._buckets.pop(key)
            rows = self._living(_rows(bucket))
            if level:
                self._opening.append((key - level, level, rows))
            else:
                self._open(rows)
        self._opened = max(self._opened, now >> BITS << BITS)
        self._narrow(now)
        while self._soon and self._soon[0][0] <= now:
            self._over.append(np.array([heappop(self._soon)], np.int64))
        for at, rows in enumerate(self._near):
            end = int(np.searchsorted(rows[:, 0], now, side="right"))
            if end:
                self._over.append(rows[:end])
                self._near[at] = rows[end:]
        self._near = [rows for rows in self._near if len(rows)]
        over, self._over = self._over, []
        return self._living(np.concatenate(over)) if over else _NONE

    def next(self) -> int:
        """When `advance` is to be called; NEVER: nobody waits."""
        if self._opening:
            return 0
        best = self._starts[0][0] if self._starts else NEVER
        if self._soon:
            best = min(best, self._soon[0][0])
        for rows in self._near:
            best = min(best, int(rows[0, 0]))
        return best

    def waiting(self) -> set[tuple[int, int, int]]:
        """All living items; for checks."""
        parts = [_rows(bucket) for bucket in self._buckets.values()]
        parts += [rows for _, _, rows in self._opening] + self._near
        parts.append(np.array(self._soon, np.int64).reshape(-1, 3))
        return set(map(tuple, self._living(np.concatenate(parts)).tolist()))

    def _bucket(self, start: int, level: int) -> _Bucket:
        key = start | level
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket()
            heappush(self._starts, (start - LEAD_NS if level else start, key))
        return bucket

    def _look(self, bucket: _Bucket) -> None:
        kept = self._living(_rows(bucket))
        bucket.items = array("q", kept.tobytes())
        bucket.look_at = max(3 * LOOK_FROM, 2 * len(bucket.items))

    def _living(self, rows: Vector) -> Vector:
        alive = self._t.v["m_qpool"][rows[:, 1]].astype(np.int64) == rows[:, 2]
        return rows if alive.all() else rows[alive]

    def _open(self, rows: Vector) -> None:
        if len(rows):
            self._near.append(rows[np.argsort(rows[:, 0], kind="stable")])
        if len(self._near) > NEAR_MAX:
            near = np.concatenate(self._near)
            self._near = [near[np.argsort(near[:, 0], kind="stable")]]

    def _narrow(self, now: int) -> None:
        """Of wide buckets into narrow ones: some, but all of one that has begun."""
        room = CHUNK
        while self._opening and (room > 0 or self._opening[0][0] <= now):
            start, level, rows = self._opening.popleft()
            count = len(rows) if start <= now else min(len(rows), room)
            room -= count
            self._sort_in(rows[:count], now, level - 1)
            if count < len(rows):
                self._opening.appendleft((start, level, rows[count:]))

    def _sort_in(self, rows: Vector, now: int, level_max: int) -> None:
        if not len(rows):
            return
        levels = np.minimum(np.searchsorted(_FURTHER, rows[:, 0] - now, side="right"), level_max)
        bits = BITS + LEVEL_BITS * levels
        keys = rows[:, 0] >> bits << bits | levels
        order = np.argsort(keys, kind="stable")
        rows, keys = rows[order], keys[order]
        ends = [*(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(rows)]
        begin = 0
        for end in ends:
            level = int(keys[begin]) & (1 << BITS) - 1
            start = int(keys[begin]) - level
            if start <= self._opened:
                self._open(rows[begin:end])
            else:
                bucket = self._bucket(start, level)
                bucket.items.frombytes(rows[begin:end].tobytes())
                if len(bucket.items) >= bucket.look_at:
                    self._look(bucket)
            begin = end


def _rows(bucket: _Bucket) -> Vector:
    return np.frombuffer(bucket.items, np.int64).reshape(-1, 3)
