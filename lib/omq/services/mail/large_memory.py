"""Tells the C library to give large pieces of memory back to the system when they are freed.

glibc raises the size from which it maps a piece by itself up to 32 MiB, each time such a piece is
freed (mallopt(3), M_MMAP_THRESHOLD): a daemon that has had a few large texts then keeps them in its
heap for ever. A threshold that is set stays.

No errors: a C library without mallopt goes its own way.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

from omq.base.limits import KIB

_M_MMAP_THRESHOLD: Final = -3  # malloc.h
_THRESHOLD_BYTES: Final = 256 * KIB


def return_large_memory() -> None:
    """For this process, from now on."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
