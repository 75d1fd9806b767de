"""What omqadvise measures: by columns, and the same as frame by frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omq.core.history.frames import Happening, History
from omq.core.history.service_times import measure
from omq.format.wire import Settlement
from tests.unit.engine.world import NS, START_NS, A, B, World, make_named

FOR_EVER = 1 << 62


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_named(tmp_path / "spool")


def frame_by_frame(info: Any) -> dict[str, int]:
    """Arrivals, by the names that the history tells."""
    found: dict[str, int] = {}
    for each in History(info.paths).read(lambda frames: frames["qpool"] > 0):
        if each.kind.name in ("PUT", "MOVE"):
            for name in each.targets or (each.queue,):
                found[name] = found.get(name, 0) + 1
    return found


def test_arrivals_and_service_times(world: World) -> None:
    for _ in range(5):
        world.put(A)
    world.put(A, B)
    first, second, third = world.give(3)
    world.begin(2)
    world.settle(Settlement.DONE, first)  # 2 s
    world.begin(3)
    world.settle(Settlement.DONE, second)  # 3 s: it began when the first was done
    world.settle(Settlement.RELEASE, third)  # untouched: not counted
    world.writer.close()
    times = measure(History(world.info.paths), START_NS, FOR_EVER)
    a = times.queues["A"]
    arrived = {name: found.arrived for name, found in times.queues.items()}
    assert arrived == frame_by_frame(world.info)
    assert (a.arrived, times.queues["B"].arrived) == (6, 1)
    assert (a.finished, a.busy_ns, a.readers) == (2, 5 * NS, {102})
    assert a.service_s == 2.5
    assert times.from_ns == START_NS


def test_what_was_before_is_not_measured(world: World) -> None:
    world.put(A)
    world.begin(60)
    world.put(B)
    world.writer.close()
    times = measure(History(world.info.paths), START_NS + 30 * NS, FOR_EVER)
    assert {name: found.arrived for name, found in times.queues.items()} == {"B": 1}
    assert measure(History(world.info.paths), FOR_EVER, FOR_EVER).queues == {}


def test_plain_puts_are_counted_by_columns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million of them took ten seconds, one by one."""
    made: list[Happening] = []
    real = History._happening

    def counted(self: History, *arguments: Any) -> Happening | None:
        found = real(self, *arguments)
        assert found is not None
        made.append(found)
        return found

    monkeypatch.setattr(History, "_happening", counted)
    for _ in range(10):
        world.put(A)
    world.put(A, B)
    world.give(5)
    world.writer.close()
    assert measure(History(world.info.paths), START_NS, FOR_EVER).queues["A"].arrived == 11
    assert len(made) == 1
