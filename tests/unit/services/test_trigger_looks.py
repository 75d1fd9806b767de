"""What the queue manager looks at for triggers: what has changed, and once a second all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omq.base.config import EVERY, FIRST
from omq.base.settings import Settings
from omq.core.engine.rules_of_queue import QueueRules
from omq.services.manager.triggers import GROUP_MAX, QUEUE, Triggers
from tests.unit.engine.world import NS, A, World, make_world

TRIGGERS, FIRSTS, EVERYS = 5, range(10, 20), 20


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    made.core.define_queue(QueueRules(TRIGGERS, QUEUE, 1000, 1 << 20))
    made.engine.queues.numbers[QUEUE] = TRIGGERS
    for number in FIRSTS:
        made.core.define_queue(QueueRules(number, f"Q{number}", 1000, 1 << 20, trigger=FIRST))
    made.core.define_queue(QueueRules(EVERYS, "E", 1000, 1 << 20, trigger=EVERY))
    yield made
    made.writer.close()


def turn(world: World, triggers: Triggers, seconds: float = 0.0) -> bool:
    world.begin(seconds)
    put = triggers.turn(world.mono, stopping=False)
    world.engine.commit()
    return put


def test_only_what_has_changed_is_looked_at(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    triggers = Triggers(world.engine, Settings(), cast(Any, SimpleNamespace()))
    real = Triggers._level

    def level(self: Triggers, rules: QueueRules, watch: Any, mono_ns: int) -> bool:
        looked.append(rules.queue)
        return real(self, rules, watch, mono_ns)

    monkeypatch.setattr(Triggers, "_level", level)
    turn(world, triggers)
    assert sorted(looked) == [*FIRSTS]
    world.put(A)
    assert not turn(world, triggers)
    assert len(looked) == 10, "nothing of theirs has changed"
    world.put(12)
    assert turn(world, triggers)
    assert looked[10:] == [12] and world.core.t.q_ready[TRIGGERS] == 1
    turn(world, triggers, seconds=1.0)
    assert len(looked) == 21, "a second is over: a reader may have gone"


def test_a_group_leaves_the_rest_to_the_next(world: World) -> None:
    triggers = Triggers(world.engine, Settings(), cast(Any, SimpleNamespace()))
    turn(world, triggers)
    for _ in range(GROUP_MAX + 5):
        world.put(EVERYS)
    assert turn(world, triggers) and triggers.due == world.mono
    assert world.core.t.q_ready[TRIGGERS] == GROUP_MAX
    assert turn(world, triggers) and triggers.due == world.mono + NS
    assert world.core.t.q_ready[TRIGGERS] == GROUP_MAX + 5
    assert not turn(world, triggers)
