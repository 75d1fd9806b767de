"""The histograms of the index: what each of their places counts.

There are BINS counts a histogram, u64 each. Of times: place 0 is below 65.536 us, place k from
2**(15 + k) ns on and below 2**(16 + k) ns, the last one has all that is longer (19.5 hours). Of
sizes of groups: place 0 is one frame, place k more than 2**(k - 1) and at most 2**k of them. A time
below zero, when the wall clock was set back meanwhile, counts as none.

Sums of times are whole microseconds, u64, and begin again at 0 where they have no room: a million
messages that wait all the time fill one in 213 days.
"""

from __future__ import annotations

from typing import Final

BINS: Final = 32
TIME_SHIFT: Final = 16
SUM_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
SYNCS_TIMED: Final = 16
"""One sync of so many is timed: to read the clock costs more than all other counts together."""
EDGES_NS: Final = tuple(1 << TIME_SHIFT + place for place in range(BINS - 1))
"""Where the next place begins."""
SIZES: Final = tuple(1 << place for place in range(BINS - 1))
"""The most frames that a place counts."""


def time_bin(ns: int) -> int:
    """The place of a time that is not below zero."""
    return min((ns >> TIME_SHIFT).bit_length(), BINS - 1)


def size_bin(frames: int) -> int:
    """The place of a group of so many frames, at least one."""
    return min((frames - 1).bit_length(), BINS - 1)
