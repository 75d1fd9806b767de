"""The tombstone: what a dying queue.manager says of itself, in logs/qmgr.tomb.

Cause, stack and counters, then the text dump of the queues as omqdump's `t` `q` writes it. It is
for people and is not synced: the disk may be what killed the manager.
"""

from __future__ import annotations

import os

from omq.base import clock
from omq.base.paths import SpoolPaths
from omq.core.tables import Tables
from omq.format.index import Counter


def write_tombstone(paths: SpoolPaths, tables: Tables, cause: str, stack: str) -> None:
    """Write it as far as the system allows; the process ends in any case."""
    lines = [f"Queue Manager died at {clock.iso_time(clock.wall_ns())}, pid {os.getpid()}",
             f"Cause: {cause}", "Stack:", stack, "Counters:"]
    lines += [f"  {counter.name.lower()} = {tables.counters[counter]}" for counter in Counter]
    data = ("\n".join(lines) + "\n").encode()
    try:
        handle = os.open(paths.tombstone, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW,
                         0o640)
    except OSError:  # the log directory is on the disk that failed; the event log has the cause
        return
    try:
        os.write(handle, data)
    finally:
        os.close(handle)
