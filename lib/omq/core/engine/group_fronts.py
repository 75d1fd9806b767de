"""The fronts of groups (core.engine.groups): which entry is the first of a group on its queue.

A mapping, group to entry, without an object for each: the fronts whose groups have one hash are a
chain, which nobody can make long who does not know the manager's secret (core.index.keyed_buckets).
`first` has the first entry + 1 of each chain by its hash, `following` the next one's by entry. A
group is `queue << 64 | key`; that of a front is what its entry and message say, so they do not
change while it is one.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import numpy as np

from omq.base.arrays import Vector
from omq.core.index.tables import Tables

QUEUE_BITS: Final = 64
_KEY: Final = (1 << QUEUE_BITS) - 1
SPREAD: Final = 0x9E3779B1
"""Odd: a group's queue moves it to another chain."""


class Fronts(MutableMapping[int, int]):
    """See the module. `keys_of`: of groups, by message. `count`: how many there are, in a place
    that omq.fast.groups writes, too."""

    def __init__(self, tables: Tables, keys_of: Any) -> None:
        self._t, self._keys = tables, keys_of
        self.first: Any = memoryview(b"")
        self.following: Any = self.first
        self.count = memoryview(bytearray(8)).cast("Q")
        if len(keys_of):
            self.first = np.zeros(tables.layout.buckets, "<u4").data
            self.following = np.zeros(tables.layout.entries, "<u4").data

    def _chain(self, group: int) -> int:
        t = self._t
        return int((t.bucket(group & _KEY) ^ (group >> QUEUE_BITS) * SPREAD) & t.mask)

    def _group(self, entry: int) -> int:
        t = self._t
        return int(t.e_queue[entry] << QUEUE_BITS | self._keys[t.e_message[entry]])

    def _find(self, group: int) -> tuple[int, int]:
        """Its front + 1, and the one before it in its chain, + 1, 0: none. 0, 0: it has
        none."""
        before, at = 0, self.first[self._chain(group)] if self.count[0] else 0
        while at and self._group(at - 1) != group:
            before, at = at, self.following[at - 1]
        return at, before if at else 0

    def __getitem__(self, group: int) -> int:
        at, _ = self._find(group)
        if not at:
            raise KeyError(group)
        return int(at - 1)

    def get(self, group: int, default: Any = None) -> Any:
        """As of any mapping, without an exception."""
        at, _ = self._find(group)
        return int(at - 1) if at else default

    def __setitem__(self, group: int, entry: int) -> None:
        at, before = self._find(group)
        chain = self._chain(group)
        if at:
            self.following[entry] = self.following[at - 1]
        else:
            self.following[entry] = self.first[chain]
            self.count[0] += 1
        if before:
            self.following[before - 1] = entry + 1
        else:
            self.first[chain] = entry + 1

    def __delitem__(self, group: int) -> None:
        at, before = self._find(group)
        if not at:
            raise KeyError(group)
        if before:
            self.following[before - 1] = self.following[at - 1]
        else:
            self.first[self._chain(group)] = self.following[at - 1]
        self.count[0] -= 1

    def __len__(self) -> int:
        return int(self.count[0])

    def __iter__(self) -> Iterator[int]:
        for at in np.flatnonzero(self.first).tolist():
            entry = self.first[at]
            while entry:
                yield self._group(entry - 1)
                entry = self.following[entry - 1]

    def load(self, queues: Vector, keys: Vector, entries: Vector) -> None:
        """These entries are the fronts of these groups, and there are no others."""
        chains = (self._t.buckets.of_each(keys) ^ queues.astype(np.int64) * SPREAD) & self._t.mask
        order = np.argsort(chains, kind="stable")
        chains, entries = chains[order], entries[order]
        starts = np.concatenate(([True], chains[1:] != chains[:-1]))
        following = np.zeros(len(entries), "<u4")
        following[:-1] = np.where(starts[1:], 0, entries[1:] + 1)
        np.asarray(self.following)[entries] = following
        np.asarray(self.first)[chains[starts]] = entries[starts] + 1
        self.count[0] = len(entries)
