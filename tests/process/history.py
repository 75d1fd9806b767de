"""What a client did and saw, one JSON line each, written so that a SIGKILL loses no line before it.

    try    {"op": "try", "key", "queue", "priority", "crc", "ns"}   before a put is asked for
    ok     {"op": "ok", "key", "id", "ns"}                          the put was acknowledged
    no     {"op": "no", "key", "error", "ns"}                       the put was refused
    got    {"op": "got", "key", "queue", "priority", "crc", "lease", "redelivered", "who", "ns"}
    ending {"op": "ending", "key", "queue", "lease", "ns"}          done was decided, not yet asked
    done   {"op": "done", "key", "queue", "lease", "ns"}            done was acknowledged
    back   {"op": "back", "key", "queue", "ns"}                     given back on purpose
    death  {"op": "death", "ns"}                                    the test killed a manager

A key is "producer:number", producers count from 0 for each queue and priority of theirs. `ns` is
CLOCK_MONOTONIC, which all processes share.

The files are those of omqtest.history.
"""

from __future__ import annotations

from omqtest.history import HistoryFile as History
from omqtest.history import Line, read_histories

__all__ = ["History", "Line", "read_histories"]
