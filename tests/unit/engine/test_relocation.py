"""pool.writer's request: rows about messages that live are taken, all others are not believed."""

from __future__ import annotations

from pathlib import Path

from omq.core.engine.relocation import relocate
from omq.format.journal import RELOCATION, FrameType
from omq.format.location import LocationKind, location
from omq.format.wire import MOVED
from omq.storage.journal_reader import JournalScan
from tests.unit.engine.world import make_world

STORE = location(LocationKind.STORE, 4)


def test_only_what_lives_where_it_is_said_to(tmp_path: Path) -> None:
    world = make_world(tmp_path / "spool")
    core, t = world.core, world.core.t
    qpools = [world.put(body=b"%d" % n) for n in range(4)]
    slots = [t.slot_of(qpool) for qpool in qpools]
    places = [(t.m_record[slot], t.m_file[slot]) for slot in slots]
    before = [(t.m_location[slot], t.m_offset[slot]) for slot in slots]
    free = t.messages.high + 5
    rows = [
        (qpools[0], STORE, 4096, *places[0], slots[0]),
        (qpools[1], STORE, 5000, *places[1], slots[2]),  # where another message is
        (qpools[1], STORE, 5000, *places[1], free),  # a slot never used
        (0, STORE, 5000, 0, 0, free),  # no message at all
        (qpools[2], STORE, 6000, places[2][0] + 1, places[2][1], slots[2]),  # its record is not it
        (999, STORE, 7000, *places[3], slots[3]),  # one that has ended
        (qpools[3], STORE, 8192, *places[3], slots[3]),
    ]
    raw = b"".join(MOVED.pack(*row, 0) for row in rows)
    world.begin()
    assert relocate(core, memoryview(raw + b"half a row")) == 2
    assert relocate(core, memoryview(raw[MOVED.size : -MOVED.size])) == 0
    assert relocate(core, memoryview(b"")) == 0
    world.engine.commit()
    after = [(t.m_location[slot], t.m_offset[slot]) for slot in slots]
    assert after == [(STORE, 4096), before[1], before[2], (STORE, 8192)]
    (noted,) = [block.payload(frame["offset"], frame["length"])
                for block in JournalScan(world.info.paths, world.info.uuid)
                for frame in block.frames if frame["type"] == FrameType.RELOCATE]
    assert list(RELOCATION.iter_unpack(noted)) == [row[:5] for row in (rows[0], rows[6])]
