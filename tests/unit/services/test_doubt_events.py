"""A unit of work that is in doubt for long: one event and one event message."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from omq.base import events
from omq.base.settings import Settings
from omq.services.manager.units_in_doubt import say_old_doubts


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[object, dict[str, Any]]] = []

    def event(self, event: object, _level: object, **fields: Any) -> None:
        self.events.append((event, fields))

    def note(self, event: str, _queue: str, **fields: Any) -> None:
        self.events.append((event, fields))


def test_a_unit_in_doubt_is_told_once() -> None:
    second = 1_000_000_000
    unit = SimpleNamespace(since_ns=100 * second, facts=SimpleNamespace(uid=7, name="pay"))
    in_doubt = SimpleNamespace(units={5: unit}, name_of=lambda _unit: "U5")
    engine: Any = SimpleNamespace(in_doubt=in_doubt, now_ns=109 * second)
    settings, warned = replace(Settings(), unit_in_doubt_warn_s=10), set[int]()
    log: Any = Told()
    messages: Any = Told()
    say_old_doubts(log, messages, engine, settings, warned)
    assert not log.events
    engine.now_ns = 110 * second
    for _ in range(2):
        say_old_doubts(log, messages, engine, settings, warned)
    assert [event for event, _ in log.events] == [events.UNITS_IN_DOUBT]
    assert messages.events == [("in_doubt", log.events[0][1])]
    assert messages.events[0][1]["unit"] == "U5"
    in_doubt.units.clear()
    say_old_doubts(log, messages, engine, settings, warned)
    assert not warned, "its number may be another unit's"


def test_a_step_warns_early_and_changes_nothing() -> None:
    """Its age is by the wall clock: it may be older than the boot."""
    second = 1_000_000_000
    unit = SimpleNamespace(since_ns=100 * second, facts=SimpleNamespace(uid=7, name="pay"))
    in_doubt = SimpleNamespace(units={5: unit}, name_of=lambda _unit: "U5")
    engine: Any = SimpleNamespace(in_doubt=in_doubt, now_ns=101 * second)
    settings, warned = replace(Settings(), unit_in_doubt_warn_s=10), set[int]()
    log: Any = Told()
    messages: Any = Told()
    for engine.now_ns in (86400 * second, 101 * second, 0, 86400 * second):
        say_old_doubts(log, messages, engine, settings, warned)
    assert len(log.events) == len(messages.events) == 1
    assert in_doubt.units == {5: unit}
