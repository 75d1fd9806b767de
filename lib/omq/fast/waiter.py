"""A reader that waits for messages. Of the fast path's types, for each wait makes one (ADR 0212);
core.engine.waiting gives it to the engine under its own name.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.fast.party import Party


class Waiter:
    """`deadline`: monotonic ns; `waiting`: it still does; `by`: wire.Key, it waits for messages
    with `key`, 0: for any; `turn`: its place among these; `put`: QPoolId of what the same request
    has put, 0: it has put nothing. Deadlines and keys are as large as a client says."""

    __slots__ = ("auxiliary", "by", "deadline", "key", "party", "put", "queue", "sequence", "turn",
                 "waiting", "want")

    def __init__(self, party: Party, queue: cython.Py_ssize_t, want: cython.Py_ssize_t,
                 sequence: cython.ulonglong, deadline: Any, auxiliary: cython.bint,
                 *, waiting: cython.bint = True, by: cython.uint = 0, key: Any = 0) -> None:
        self.party, self.queue, self.want, self.sequence = party, queue, want, sequence
        self.deadline, self.auxiliary, self.waiting = deadline, auxiliary, waiting
        self.by, self.key, self.turn, self.put = by, key, 0, 0
