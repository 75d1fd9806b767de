"""What is beyond a peer's share of the messages in hand is put off until the peer could take it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omq.base.paths import SpoolPaths
from omq.base.settings import DEFAULTS
from omq.services.channels.mlist import Mlist
from omq.services.channels.peer_book import PeerBook
from omq.services.channels.rules import Rules
from omq.services.channels.scheduler import Give, Scheduler

RULES = Rules(maxchans=4, reserve_urgent=0, reserve_normal=0, chan_time1_s=0.0, chan_time2_s=0.0,
              chan_time3_s=0.0, peer_concurrency=4, peer_reserve_urgent=0, run_messages=1)
FREE = 2000
SHARE = FREE // 4


class World:
    """A scheduler and what is known of its peers, on a clock of the test's own."""

    def __init__(self, root: Path) -> None:
        self.scheduler = Scheduler(RULES)
        (root / "run").mkdir()
        context = SimpleNamespace(
            settings=DEFAULTS, paths=SpoolPaths(root), conf=SimpleNamespace(name="unix"),
            log=SimpleNamespace(event=lambda *_words, **_fields: None))
        self.book = PeerBook(cast("Any", context), self.scheduler)
        self.now = 100.0

    def add(self, count: int) -> None:
        for _ in range(count):
            self.scheduler.add(Mlist("smtp", "a:25", 4, ("r@x",)))

    def decide(self) -> None:
        self.scheduler.wake = self.now
        while self.scheduler.wake <= self.now:
            for action in self.scheduler.decide(self.now):
                assert not isinstance(action, Give) or len(action.run) == 1

    def serve(self, count: int, spent_s: float) -> None:
        """So many messages, by all processes side by side, each in this time."""
        for _ in range(count):
            self.decide()
            process = min(self.scheduler.processes.values(), key=lambda each: each.since)
            self.now += spent_s / RULES.peer_concurrency
            self.scheduler.reported(process, process.run[0], spent_s, self.now)
        self.decide()

    def put_off_s(self) -> float:
        wait = self.book.wait(Mlist("smtp", "a:25", 4, ("r@x",)), FREE, self.now)
        assert wait is not None
        assert "messages to take first" in wait.reason
        return wait.seconds


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield World(tmp_path)


def test_a_share_is_taken_in_and_no_more(world: World) -> None:
    world.add(SHARE - 1)
    assert world.book.wait(Mlist("smtp", "a:25", 4, ("r@x",)), FREE, world.now) is None
    world.add(1)
    assert world.put_off_s() > 0.0
    assert world.book.wait(Mlist("smtp", "a:25", 7, ("r@x",)), FREE, world.now) is None, "urgent"
    assert world.book.wait(Mlist("smtp", "b:25", 4, ("r@x",)), FREE, world.now) is None


def test_it_comes_again_when_the_peer_could_be_through(world: World) -> None:
    world.add(SHARE + 210)
    world.serve(200, 0.4)
    left = world.scheduler.channels["smtp"].peers["a:25"].count
    assert world.put_off_s() == pytest.approx(left * 0.4 / 4, rel=0.15)


def test_one_that_takes_long_does_not_put_off_the_mail_of_a_quick_peer(world: World) -> None:
    """500 that wait for a peer of 400 a second are done in little more than a second, also when the
    last one took a second; by the running mean of the times it would have been 25."""
    world.add(SHARE + 2100)
    world.serve(2000, 0.01)
    world.serve(1, 1.0)
    left = world.scheduler.channels["smtp"].peers["a:25"].count
    assert world.scheduler.channels["smtp"].peers["a:25"].mean_s > 0.2
    assert world.put_off_s() < left * 0.01 / 4 * 2


def test_a_peer_that_has_become_slow_is_known_soon(world: World) -> None:
    world.add(SHARE + 2100)
    world.serve(1000, 0.01)
    world.serve(40, 4.0)
    left = world.scheduler.channels["smtp"].peers["a:25"].count
    assert world.put_off_s() == pytest.approx(min(left * 1.0, 300.0), rel=0.15)


def test_time_in_which_nothing_was_to_do_is_no_pace(world: World) -> None:
    world.add(100)
    world.serve(100, 0.4)
    world.now += 1000.0
    world.add(SHARE + 300)
    world.serve(100, 0.4)
    left = world.scheduler.channels["smtp"].peers["a:25"].count
    assert world.put_off_s() == pytest.approx(left * 0.4 / 4, rel=0.15)
