"""Bodies that pool.writer has moved: the index learns where they lie now, and the journal says so.

pool.writer copies payloads out of a journal file that is to be retired (or a half-empty store
file), syncs the copies, and asks. A row is taken only if that message still lives; one RELOCATE
frame names all rows that were taken. Whoever reads the old place meanwhile finds it there until the
file is retired, which waits for the checkpoint that covers this frame.
"""

from __future__ import annotations

from omq.core.state import PERSISTENT, Core
from omq.format.journal import RELOCATION, FrameType


def relocate(core: Core, rows: memoryview) -> int:
    """Take rows of format.journal.RELOCATION; how many were taken."""
    t = core.t
    taken: list[tuple[int, int, int, bytes]] = []
    for at in range(0, len(rows) - RELOCATION.size + 1, RELOCATION.size):
        qpool, word, offset, record, file = RELOCATION.unpack_from(rows, at)
        slot = t.slot_of(qpool)
        if slot >= 0 and t.m_record[slot] == record and t.m_file[slot] == file:
            taken.append((slot, word, offset, bytes(rows[at : at + RELOCATION.size])))
    if not taken:
        return 0
    payload = b"".join(raw for _, _, _, raw in taken)
    core.block.reserve(1, len(payload))
    core.block.frame(FrameType.RELOCATE, PERSISTENT, 0, 0, parts=min(len(taken), 0xFFFF),
                     payload=payload)
    for slot, word, offset, _ in taken:
        t.m_location[slot], t.m_offset[slot] = word, offset
    return len(taken)

