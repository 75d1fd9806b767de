"""Loading the index from the pool: what does not fit is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from omq.base.errors import IndexFull
from omq.core.engine.state import IDEL, Core
from omq.core.index.tables import Tables
from omq.core.load.rebuild import load
from omq.format.pool import encode_message
from omq.storage.pool import PoolFiles
from omq.storage.slots import SlotAllocator
from omq.storage.spool import create_spool
from tests.unit.format.samples import pool_message


def core_of(uuid: bytes, entries: int) -> Core:
    return Core(Tables.private(10, entries), SlotAllocator(), cast(Any, None), uuid)


def test_messages_on_no_queue_count_against_the_entries(tmp_path: Path) -> None:
    """Each of them gets an entry on IDEL: the room is asked for before it is filled."""
    info = create_spool(tmp_path / "spool")
    pool = PoolFiles(info.paths, info.uuid)
    for record in range(3):
        idle = replace(pool_message(record=record), qpool=record + 1, parts=[], more=[])
        pool.write({(idle.file, number): image for number, image in encode_message(idle)})
    with pytest.raises(IndexFull):
        load(core_of(info.uuid, 2), pool, SlotAllocator())
    core = core_of(info.uuid, 3)
    assert load(core, pool, SlotAllocator()).entries == 3
    assert core.t.q_ready[IDEL] == 3
    pool.close()
