"""What the engine shows of the index to those who serve clients cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.core.index.tables import Tables
from omq.format.index import Counter
from tests.unit.engine.world import A, make_world


def test_what_is_shown_is_the_index_and_refuses_every_store(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    qpool = world.put(A)
    shown, t = world.engine.index, world.core.t
    slot = shown.slot_of(qpool)
    assert slot >= 0 and shown.m_qpool[slot] == qpool
    assert shown.messages.used == 1 and shown.counters[Counter.PUTS] == 1
    with pytest.raises(TypeError):
        shown.m_qpool[slot] = 0
    with pytest.raises(TypeError):
        shown.counters[Counter.PUTS] = 9
    with pytest.raises(ValueError, match="read-only"):
        shown.v["m_qpool"][slot] = 0
    with pytest.raises(TypeError):
        shown.set_queue_name(A, "NO")
    assert t.m_qpool[slot] == qpool
    world.writer.close()
    world.core.volatile.close()  # type: ignore[attr-defined]


def test_a_given_id_is_found_through_it() -> None:
    """A message with an id of its submitter's is hashed by that id: whether there is one must be
    known to those who only look."""
    t = Tables.private(64, 64)
    shown = t.readonly()
    slot = t.messages.take()
    t.m_qpool[slot], t.m_key[slot] = 5, 1 << 40
    t.index_id(slot, 1 << 40)
    assert shown.slot_of(5) == -1
    t.given += 1
    assert shown.slot_of(5) == slot
