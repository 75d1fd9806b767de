"""The frames of one made-up message, told one after the other; what stories.py tells with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from omq.base.arrays import Vector
from omq.base.clock import NS_PER_S as NS
from omq.format.archive import ROW as PART_ROW
from omq.format.frame_rules import Reason
from omq.format.journal import FRAME, FrameFlag, FrameType

POISON, SIDE, WORK, LATE, DEAD = 2, 6, 7, 8, 9
_PERSISTENT, _LAST, _FAILED = FrameFlag.PERSISTENT, FrameFlag.LAST_PART, FrameFlag.FAILED
Row = dict[str, Any]


@dataclass
class Book:
    """The frames of all stories. `lease` and `unit` of a row may be another row: its LSN."""

    rows: list[Row] = field(default_factory=list)
    parts: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # id(row): queue, until

    def frames(self, first_lsn: int) -> tuple[Vector, Vector]:
        """Frame headers and queue parts, by LSN from `first_lsn` on."""
        self.rows.sort(key=lambda row: int(row["time"]))
        lsn = {id(row): first_lsn + n for n, row in enumerate(self.rows)}
        out, parts = np.zeros(len(self.rows), FRAME.dtype), []
        for place, row in enumerate(self.rows):
            for name, value in row.items():
                out[name][place] = lsn[id(value)] if isinstance(value, dict) else value
            out["lsn"][place] = lsn[id(row)]
            for queue, until in self.parts.get(id(row), ()):
                part = np.zeros(1, PART_ROW.dtype)
                for name, value in (("lsn", lsn[id(row)]), ("qpool", row["qpool"]),
                                    ("queue", queue), ("priority", row["priority"]),
                                    ("until", until)):
                    part[name] = value
                parts.append(part)
        return out, np.concatenate(parts) if parts else np.zeros(0, PART_ROW.dtype)


class Story:
    """One message's frames, in the order in which they are told."""

    def __init__(self, book: Book, qpool: int, time_ns: int, *, persistent: bool = True) -> None:
        self.book, self.qpool, self.time_ns = book, qpool, time_ns
        self.flags = int(_PERSISTENT) if persistent else 0
        self.gave: Row = {}
        self.attempts = 0

    def frame(self, kind: FrameType, queue: int, flags: int = 0, after_s: float = 0.25,
              **fields: Any) -> Row:
        self.time_ns += int(after_s * NS)
        reader = {"client": queue * 10, "pid": 9000 + queue}
        row = {"type": int(kind), "queue": queue, "qpool": self.qpool, "priority": 4, "size": 500,
               "time": self.time_ns, "flags": self.flags | int(flags), "attempt": self.attempts,
               **reader, **fields}
        self.book.rows.append(row)
        return row

    def put(self, queues: Sequence[int] = (SIDE,), delay_s: int = 0, **fields: Any) -> Row:
        several = len(queues) > 1 or delay_s
        flags = FrameFlag.QUEUES if several and not self.flags else 0
        row = self.frame(FrameType.PUT, queues[0], flags, client=500 + self.qpool,
                         pid=20_000 + self.qpool, parts=len(queues) if several else 0, **fields)
        until = row["time"] // NS + delay_s if delay_s else 0
        if several:
            self.book.parts[id(row)] = [(queue, until) for queue in queues]
        return row

    def give(self, queue: int = SIDE, after_s: float = 0.25) -> None:
        self.attempts += 1
        self.gave = self.frame(FrameType.GIVE, queue, after_s=after_s)

    def done(self, queue: int = SIDE, *, last: bool = True, **fields: Any) -> Row:
        return self.frame(FrameType.DONE, queue, _LAST if last else 0, lease=self.gave, **fields)

    def served(self, queue: int = SIDE, *, last: bool = True) -> None:
        self.attempts = 0
        self.give(queue)
        self.done(queue, last=last)

    def move(self, queue: int, *onto: int, **fields: Any) -> None:
        row = self.frame(FrameType.MOVE, queue, parts=len(onto), **fields)
        self.book.parts[id(row)] = [(each, 0) for each in onto]
        self.attempts = 0

    def put_off(self, reason: Reason, delay_s: float = 2.0) -> None:
        failed = reason is not Reason.DEFERRED
        self.attempts -= not failed
        self.frame(FrameType.DEFER, SIDE, _FAILED if failed else 0, lease=self.gave,
                   reason=int(reason), argument=self.time_ns + int(delay_s * NS))
        self.time_ns += int(delay_s * NS)

    def poison(self, target: int, reason: Reason, queue: int = SIDE) -> None:
        if target != POISON:
            self.attempts = 0
        self.frame(FrameType.POISON, queue, _FAILED, lease=self.gave, target=target,
                   reason=int(reason))

    def expire(self, target: int = 0) -> None:
        self.frame(FrameType.EXPIRE, SIDE, 0 if target else _LAST, target=target, client=0, pid=0)

    def order(self, kind: FrameType, queue: int, flags: int = 0, **fields: Any) -> None:
        """One that an operator gave: the order, and what it changed."""
        said = self.frame(FrameType.OPERATOR, 0, qpool=0, size=0, reason=int(Reason.OPERATOR),
                          argument=1, uid=1000, pid=777, client=0)
        self.frame(kind, queue, flags, 0.001, unit=said, reason=int(Reason.OPERATOR), uid=1000,
                   pid=777, client=0, **fields)
