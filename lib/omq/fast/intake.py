"""Requests off the queue. Compiled, msgrcv(2) is called without Python in between; any other
outcome is left to ipc.server.requests, which gets it once more."""

from __future__ import annotations

from omq.base import shim as cython
from omq.format.wire import REQUEST_TYPE

if cython.compiled:
    from cython.cimports.omq.fast.sysv import gather as _gather
    from cython.cimports.omq.fast.sysv import take_off as _take_off
    from cython.cimports.omq.fast.sysv import wait_for as _wait_for
else:
    from omq.base.shim import gather as _gather
    from omq.base.shim import take_off as _take_off
    from omq.base.shim import wait_for as _wait_for

_KIND = REQUEST_TYPE


def take_first(queue: int, out: list[bytes]) -> bool:
    """Wait until something lies there; a request is added to `out`. A signal ends the wait. False:
    there is something else to say."""
    return bool(_wait_for(queue, _KIND, out))


def take_all(queue: int, out: list[bytes], limit: int) -> bool:
    """Add all requests that lie there to `out`, up to `limit` in it. False: there may be more, or
    something else to say."""
    return bool(_take_off(queue, _KIND, out, limit))


def take_company(queue: int, out: list[bytes], limit: int, wanted: int, wait_ns: int) -> bool:
    """The same, as they come, for so long or until `out` has as many as are wanted."""
    return bool(_gather(queue, _KIND, out, limit, wanted, wait_ns))
