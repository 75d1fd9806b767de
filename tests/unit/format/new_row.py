"""A frame type that is reserved gets a row: its readers, which ask the table, then know it.

Run by test_new_row.py in a process of its own, because readers take their lookups from the table
when they are imported. Nothing below may name what redo, ledger, history or Spark do with the type.
"""

from __future__ import annotations

import json
import sys

from omq.format import frame_rules
from omq.format.frame_rules import About, By, Rule
from omq.format.journal import FrameType

ROW = Rule(About.MESSAGE, "expired{it.on}{it.end}", frozenset({By.MANAGER}), leaves=True, ends=True)
"""It is off its queue; off its last one it is gone."""


def main(many: int) -> None:
    """Tell as JSON what the readers make of it."""
    frame_rules.RULES[FrameType.EXPIRE] = ROW
    rows = list(frame_rules.BY_NUMBER)
    rows[FrameType.EXPIRE] = ROW
    vars(frame_rules)["BY_NUMBER"] = tuple(rows)
    from omq.cli.look.omqlog import what
    from omq.core.history.frames import Happening
    from omq.core.redo.redo import Redo
    from omqtools.omqrecover.ledger import Ledger
    from tests.unit.core.frames import LAST, Frames, MemoryPool, P, save

    frames, pool = Frames(), MemoryPool()
    redo, ledger = Redo(pool, settled=True, many=many), Ledger()
    for qpool in range(1, 21):
        frames.put(qpool, (3, 4) if qpool > 10 else (3,), record=2 * qpool)
    for _ in range(2):  # born, and expired in a window of their own
        block = frames.block()
        redo.apply([block])
        ledger.apply([block])  # type: ignore[list-item]
        save(redo, pool)
        for qpool in range(1, 21, 2):
            last = qpool < 10
            frames.add(FrameType.EXPIRE, qpool, flags=LAST if last else P, record=2 * qpool,
                       parts=int(last))
    living = ledger.rows
    told = Happening(FrameType.EXPIRE, 7, 0, 956, "LOCAL", 4, 4, 12, 0, 0, 0, 0, 0, 0, "")
    found = {qpool: pool.message(qpool) for qpool in range(1, 21)}
    json.dump({
        "queues": {qpool: [part.queue for part in message.parts]
                   for qpool, message in found.items() if message is not None},
        "ledger": living["qpool"].tolist(),
        "changed": living["qpool"][living["last"] > living["born"]].tolist(),
        "words": what(told)}, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]))
