"""Bodies that pool.writer has moved: the index learns where they lie now, and the journal says so.

pool.writer copies payloads out of a journal file that is to be retired (or a half-empty store
file), syncs the copies, and asks. A row is taken only if that message still lives; one RELOCATE
frame names all rows that were taken. Whoever reads the old place meanwhile finds it there until the
file is retired, which waits for the checkpoint that covers this frame.
"""

from __future__ import annotations

import numpy as np

from omq.core.engine.state import PERSISTENT, Core
from omq.format.journal import RELOCATION, FrameType
from omq.format.wire import MOVED


def relocate(core: Core, rows: memoryview) -> int:
    """Take rows of format.wire.MOVED; how many were taken. `slot` is where the message was seen in
    the index: there it is as long as it lives."""
    t, v = core.t, core.t.v
    asked = MOVED.array(rows, len(rows) // MOVED.size)
    asked = asked[(asked["slot"] < t.messages.high) & (asked["qpool"] != 0)]
    slots = asked["slot"]
    lives = ((v["m_qpool"][slots] == asked["qpool"]) & (v["m_record"][slots] == asked["record"])
             & (v["m_file"][slots] == asked["file"]))
    taken, slots = asked[lives], slots[lives]
    if not len(taken):
        return 0
    noted = np.zeros(len(taken), dtype=RELOCATION.dtype)
    for name in RELOCATION.names:
        noted[name] = taken[name]
    payload = noted.tobytes()
    core.block.reserve(1, len(payload))
    core.block.frame(FrameType.RELOCATE, PERSISTENT, 0, 0, parts=min(len(taken), 0xFFFF),
                     payload=payload)
    v["m_location"][slots], v["m_offset"][slots] = taken["location"], taken["offset"]
    return len(taken)
