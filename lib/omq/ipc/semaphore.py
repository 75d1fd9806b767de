"""Waiting on a System V semaphore for a limited time: semtimedop(2).

sysv_ipc has time-outs only where it was built with semtimedop. Its published wheels are not: there
`acquire(timeout)` waits for ever, and a client would never see that its manager has gone. So the
call is made here, on the semaphore that sysv_ipc has opened.

Errors: sysv_ipc.ExistentialError when the semaphore was removed, as of sysv_ipc itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from typing import Any, Final

import sysv_ipc

_GONE: Final = (errno.EIDRM, errno.EINVAL)
_NS: Final = 1_000_000_000


class _Operation(ctypes.Structure):
    """struct sembuf."""

    _fields_ = (("number", ctypes.c_ushort), ("change", ctypes.c_short), ("flags", ctypes.c_short))


class _Time(ctypes.Structure):
    """struct timespec."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_DOWN: Final = _Operation(0, -1, 0)


@cache
def _call() -> Any:
    function = ctypes.CDLL(None, use_errno=True).semtimedop
    function.argtypes = (ctypes.c_int, ctypes.POINTER(_Operation), ctypes.c_size_t,
                         ctypes.POINTER(_Time))
    return function


def acquire(identifier: int, timeout_s: float) -> bool:
    """Take one from the semaphore with this id; False when the time is over, or a signal came (its
    handler has run). The wait is not longer than `timeout_s`."""
    left = int(timeout_s * _NS)
    if _call()(identifier, _DOWN, 1, _Time(left // _NS, left % _NS)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EAGAIN, errno.EINTR):
        return False
    if number in _GONE:
        raise sysv_ipc.ExistentialError("the semaphore is gone")
    raise OSError(number, os.strerror(number))
