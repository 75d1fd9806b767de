"""Groups of one queue that may be whole, by their size, so that who can take so many messages finds
the first one that fits without looking at the others (core.engine.groups).

`first` costs one look for each size that there is (WHOLE_MAX at most, mostly one or two), and
nothing for the number of groups; `add` and `drop` cost the same however many there are. An
OrderedDict, for the first key of a dict is after the places of all that were taken out before it.

Invariant: a group is in `sizes` and in the line of its size, or in neither; no line is empty.
"""

from __future__ import annotations

from collections import OrderedDict


class Candidates:
    """See the module. Groups come in the order in which they became candidates of their size."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}  # by group
        self._lines: dict[int, OrderedDict[int, int]] = {}  # by size: groups with their turns
        self._turn = 0

    def __contains__(self, group: int) -> bool:
        return group in self.sizes

    def add(self, group: int, size: int) -> None:
        """It may be whole, with so many messages. One that is there stays where it is; with
        another size it is the last of that."""
        if self.sizes.get(group) == size:
            return
        self.drop(group)
        self.sizes[group] = size
        self._turn += 1
        self._lines.setdefault(size, OrderedDict())[group] = self._turn

    def drop(self, group: int) -> None:
        """It is none, or none any more."""
        size = self.sizes.pop(group, 0)
        if size:
            line = self._lines[size]
            del line[group]
            if not line:
                del self._lines[size]

    def first(self, most: int) -> int:
        """The first one with `most` messages or fewer; -1: there is none."""
        turn, found = self._turn + 1, -1
        for size, line in self._lines.items():
            if size <= most:
                group, at = next(iter(line.items()))
                if at < turn:
                    turn, found = at, group
        return found
