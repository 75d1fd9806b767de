"""A client as the engine sees it. Of the fast path's types, for each request reads it (ADR 0212);
core.engine.state gives it to the engine under its own name.
"""

from __future__ import annotations

from omq.base import shim as cython


class Party:
    """`client`: its id, never reused in an epoch; `slot`: row of the reader table; `token`: low
    half of the session token; `pool_file`: of its messages, -1: none yet; `active`: messages that
    it holds; `owns`: its user may write the spool."""

    __slots__ = ("active", "client", "owns", "pid", "pool_file", "slot", "token", "uid")

    def __init__(self, client: cython.ulonglong, slot: cython.Py_ssize_t, pid: cython.longlong,
                 uid: cython.longlong, token: cython.ulonglong, pool_file: cython.Py_ssize_t = -1,
                 active: cython.Py_ssize_t = 0, *, owns: cython.bint = True) -> None:
        self.client, self.slot, self.pid, self.uid, self.token = client, slot, pid, uid, token
        self.pool_file, self.active, self.owns = pool_file, active, owns
