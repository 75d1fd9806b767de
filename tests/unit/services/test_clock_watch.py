"""The manager sees that the clock of its host was set."""

from __future__ import annotations

from typing import Any

import pytest

from omq.base import clock, events
from omq.core.index.tables import Tables
from omq.services.manager.clock_watch import STEP_NS, ClockWatch, newest_ns

NS = 1_000_000_000


class Host:
    """Its clocks, and what the watch says of them."""

    def __init__(self) -> None:
        self.wall, self.mono, self.steps = 1_700_000_000 * NS, 1000 * NS, 0
        self.said: list[tuple[object, dict[str, Any]]] = []
        itself: Any = self
        self.watch = ClockWatch(itself, itself, lambda: (self.wall, self.mono))

    def event(self, event: object, _level: object, **fields: Any) -> None:
        self.said.append((event, fields))

    def clock_set(self) -> None:
        self.steps += 1

    def turn(self, seconds: float = 1.0, step_ns: int = 0) -> bool:
        """As the manager does; whether it looked."""
        self.mono += int(seconds * NS)
        self.wall += int(seconds * NS) + step_ns
        looks = not self.watch.low < self.wall - self.mono < self.watch.high
        if looks:
            self.watch.look()
        return looks


@pytest.mark.parametrize("step_s", [-86400, -1, 1, 3600])
def test_a_step_is_seen_once(step_s: int) -> None:
    host = Host()
    assert not host.turn() and host.turn(step_ns=step_s * NS)
    assert not host.turn() and host.steps == 1
    ((event, fields),) = host.said
    assert event == events.CLOCK_SET and fields["by_s"] == step_s
    assert fields["direction"] == ("forward" if step_s > 0 else "back")
    assert fields["now"] == clock.iso_time(host.wall - NS)
    assert fields["was"] == clock.iso_time(host.wall - NS - step_s * NS)


def test_what_is_slewed_is_no_step() -> None:
    host = Host()
    for _ in range(100):
        assert not host.turn(step_ns=STEP_NS // 10)
        host.watch.look()
    assert not host.said and host.steps == 0


def test_a_step_between_a_turn_and_its_chores_is_seen() -> None:
    host = Host()
    assert not host.turn()
    host.wall += 3600 * NS
    host.watch.look()
    assert not host.turn() and host.steps == 1
    assert [event for event, _ in host.said] == [events.CLOCK_SET]


def test_a_process_that_was_stopped_between_two_readings_sees_no_step() -> None:
    """The turn has read wall time long after boot time; a second look finds nothing."""
    host = Host()
    host.watch.look()
    assert not host.said and host.steps == 0


@pytest.mark.parametrize(("behind_s", "told"), [(-5, False), (0.5, False), (86400, True)])
def test_a_start_with_a_clock_behind_the_newest_message(
        monkeypatch: pytest.MonkeyPatch, behind_s: float, told: bool) -> None:  # noqa: FBT001
    monkeypatch.setattr(clock, "wall_ns", lambda: 1_700_000_000 * NS)
    host = Host()
    host.watch.begin(1_700_000_000 * NS + int(behind_s * NS))
    assert [event for event, _ in host.said] == [events.CLOCK_BEHIND] * told
    if told:
        assert host.said[0][1]["behind_s"] == behind_s


def test_the_newest_message() -> None:
    tables = Tables.private(10, 10)
    assert newest_ns(tables) == 0
    for time_ns in (5, 9, 7):
        tables.m_time[tables.messages.take()] = time_ns
    assert newest_ns(tables) == 9
