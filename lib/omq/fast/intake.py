"""Requests off the queue. Compiled, msgrcv(2) is called without Python in between; whatever it says
but "no message" is left to ipc.serving.requests, which meets it again."""

from __future__ import annotations

from omq.base import shim as cython
from omq.format.wire import REQUEST_TYPE

if cython.compiled:
    from cython.cimports.omq.fast.sysv import take_off as _take_off
else:
    from omq.base.shim import take_off as _take_off

_KIND = REQUEST_TYPE


def take_all(queue: int, out: list[bytes], limit: int) -> bool:
    """Add all requests that lie there to `out`, up to `limit` in it. False: there may be more, or
    something else to say."""
    return bool(_take_off(queue, _KIND, out, limit))
