"""SipHash-1-3 of one number of 64 bits: where in a hash table a key lies, for who knows the secret.

Without the 16 bytes of the secret nobody can look for numbers whose hashes are alike, not even who
sees where some of them lie. It is what Python's dictionaries have for text: with the same secret,
`siphash` of a number is `hash` of its 8 bytes, the lowest first, without a sign.

Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF", 2012; one round a word, three at the
end, as tables take them. fast/siphash.pxd has the same in C, core.index.keyed_buckets by numpy.
"""

from __future__ import annotations

import os
from typing import Final

SECRET_BYTES: Final = 16
_ALL: Final = (1 << 64) - 1
BEGIN: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
LENGTH: Final = 8 << 56  # of what is hashed, in bytes
END: Final = 0xFF
Secret = tuple[int, int]


def new_secret() -> bytes:
    """SECRET_BYTES that nobody knows."""
    return os.urandom(SECRET_BYTES)


def halves(secret: bytes) -> Secret:
    """As `siphash` takes it."""
    assert len(secret) == SECRET_BYTES
    return int.from_bytes(secret[:8], "little"), int.from_bytes(secret[8:], "little")


def siphash(secret: Secret, number: int) -> int:
    """Of a number from 0 to 2**64 - 1; another such number."""
    one, other = secret
    a, b, c, d = one ^ BEGIN[0], other ^ BEGIN[1], one ^ BEGIN[2], other ^ BEGIN[3]
    for word, end in ((number, 0), (LENGTH, END), (0, 0), (0, 0), (0, 0)):
        d ^= word
        a = a + b & _ALL
        b = (b << 13 & _ALL | b >> 51) ^ a
        c = c + d & _ALL
        d = (d << 16 & _ALL | d >> 48) ^ c
        a = (a << 32 & _ALL | a >> 32) + d & _ALL
        d = (d << 21 & _ALL | d >> 43) ^ a
        c = c + b & _ALL
        b = (b << 17 & _ALL | b >> 47) ^ c
        c = (c << 32 & _ALL | c >> 32) ^ end
        a ^= word
    return a ^ b ^ c ^ d
