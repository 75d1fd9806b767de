"""One key of a limited queue (core.engine.key_turns). omq.fast.limited_keys has the same for C."""

from __future__ import annotations

from typing import Any, Final

NEVER: Final = 1 << 62
Item = tuple[int, int, int]  # -priority, sequence, entry


class Key:
    """What is known of one key."""

    __slots__ = ("at", "count", "full", "in_work", "line", "name", "owner", "paused", "turned",
                 "wakes")

    def __init__(self, name: int, full: int, owner: Any) -> None:
        self.name, self.owner = name, owner  # the Turns that it is of
        self.line: list[Item] = []
        self.count = self.in_work = 0  # READY entries; ACTIVE ones
        self.full = full  # when its bucket is full (core.engine.buckets)
        self.paused = self.turned = False  # turned: it is in the ring
        self.at: tuple[int, int] | None = None  # by what it is in the heap
        self.wakes = NEVER  # the earliest item in `due` that is its own

    def __lt__(self, other: Key) -> bool:
        """Only for heaps, where all else is the same."""
        return self.name < other.name
