"""Where a message's payload lies: kind of file and file number in one 32-bit word.

The two highest bits say the kind, the rest is the file number:
    0 JOURNAL   journal/NNNNNNNNNN.jnl      1 STORE     store/NNNNNNNNNN.sto
    2 VOLATILE  volatile/NNNNNNNNNN.vol     3 reserved
A container is not a location: its payload lies in one of the above and ends in an item reference.
"""

from __future__ import annotations

from enum import IntEnum

NUMBER_MASK = 0x3FFFFFFF
KIND_SHIFT = 30


class LocationKind(IntEnum):
    """Kinds of files that hold payloads."""

    JOURNAL = 0
    STORE = 1
    VOLATILE = 2


def location(kind: LocationKind, number: int) -> int:
    """The word for a file."""
    assert 0 <= number <= NUMBER_MASK
    return int(kind) << KIND_SHIFT | number


def kind_of(word: int) -> int:
    """Kind as an int, so that an unknown one in foreign bytes does not raise."""
    return word >> KIND_SHIFT


def number_of(word: int) -> int:
    return word & NUMBER_MASK
