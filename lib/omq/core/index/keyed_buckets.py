"""Which chain of a hash table a key is in, where clients choose what is hashed (ADR 0217).

A key is a hash of 64 bits of what a client chose, or a QPoolId. Its upper bits, hashed again with a
secret of this process (omq.base.siphash), move its lower ones. So keys whose lower bits are alike
are in chains that nobody can foretell, and keys that follow each other, as QPoolIds do, stay
neighbours in chains of their own. Two keys are in one chain if they are equal; if only their upper
bits are equal, never; else by chance, one in as many as there are chains.

The secret is drawn at each start and is in no file and no segment: whoever reads the index sees
where keys lie, and not why.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.base.siphash import BEGIN, END, LENGTH, Secret, halves, siphash

_KNOWN_MAX: Final = 1 << 12


class KeyedBuckets:
    """Of `count` chains, a power of two. `secret`: 16 bytes."""

    def __init__(self, count: int, secret: bytes) -> None:
        self.mask = count - 1
        self.bits = self.mask.bit_length()
        self.halves = both = halves(secret)
        # A message that goes has the key with which it came, and QPoolIds have few upper bits.
        self._moved = lru_cache(_KNOWN_MAX)(lambda upper: siphash(both, upper))

    def of(self, key: int) -> int:
        """The chain of a key."""
        return (key ^ self._moved(key >> self.bits)) & self.mask

    def of_each(self, keys: Vector) -> Vector:
        """The same of many (u64), as i64."""
        upper = keys >> np.uint64(self.bits)
        starts = np.flatnonzero(np.concatenate(([True], upper[1:] != upper[:-1]))[: len(keys)])
        moved = np.repeat(siphash_each(self.halves, upper[starts]),
                          np.diff(np.append(starts, len(keys))))
        return np.asarray((keys ^ moved) & np.uint64(self.mask), np.int64)


def siphash_each(secret: Secret, numbers: Vector) -> Vector:
    """omq.base.siphash of each of these u64."""
    one, other = secret
    a, b, c, d = (np.full(len(numbers), half ^ word, "<u8") for half, word in zip(
        (one, other, one, other), BEGIN, strict=True))
    for word in (numbers, np.uint64(LENGTH)):
        d ^= word
        _rounds(a, b, c, d, 1)
        a ^= word
    c ^= np.uint64(END)
    _rounds(a, b, c, d, 3)
    return np.asarray(a ^ b ^ c ^ d)


def _rounds(a: Vector, b: Vector, c: Vector, d: Vector, count: int) -> None:
    for _ in range(count):
        for x, y, turn, half in ((a, b, 13, True), (c, d, 16, False), (a, d, 21, False),
                                 (c, b, 17, True)):
            x += y
            _turn(y, turn)
            y ^= x
            if half:
                _turn(x, 32)


def _turn(numbers: Vector, bits: int) -> None:
    """To the left, what falls out comes in on the right."""
    out = numbers >> np.uint64(64 - bits)
    numbers <<= np.uint64(bits)
    numbers |= out
