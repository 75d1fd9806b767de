"""What is beyond a peer's share of the messages in hand is put off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omq.base.paths import SpoolPaths
from omq.base.settings import DEFAULTS
from omq.services.delivery.deferred import Aside
from omq.services.delivery.mlist import Cause, Mlist, Wait
from omq.services.delivery.peer_book import PeerBook
from omq.services.delivery.rules import Rules
from omq.services.delivery.scheduler import Scheduler

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
        self.aside = Aside(100)
        self.book = PeerBook(cast("Any", context), self.scheduler, self.aside)
        self.now = 100.0

    def add(self, count: int) -> None:
        for _ in range(count):
            self.scheduler.add(Mlist("smtp", "a:25", 4, ("r@x",)))

    def wait(self, peer: str = "a:25", priority: int = 4, *, called: bool = False) -> Wait | None:
        return self.book.wait(Mlist("smtp", peer, priority, ("r@x",)), FREE, self.now,
                              called=called)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield World(tmp_path)


def test_a_share_is_taken_in_and_no_more(world: World) -> None:
    world.add(SHARE - 1)
    assert world.wait() is None
    world.add(1)
    wait = world.wait()
    assert wait is not None
    assert (wait.cause, wait.seconds) == (Cause.SHARE, DEFAULTS.qmgr_put_off_s_max)
    assert wait.reason == f"a:25 has {SHARE} messages to take first"
    assert world.wait(priority=7) is None, "urgent"
    assert world.wait("b:25") is None
    assert world.wait(called=True) is None, "there is room for it"


def test_who_comes_waits_behind_those_that_wait_for_room(world: World) -> None:
    world.aside.put(1, ("smtp", "a:25"), Cause.SHARE, "it has enough", 1)
    wait = world.wait()
    assert wait is not None
    assert wait.cause is Cause.SHARE
    assert world.wait("b:25") is None
    world.aside.closed_until = world.now + 1.0
    assert world.wait() is None, "nobody can be called: those that are here must do"


def test_a_peer_that_was_not_reached_is_left_alone_for_its_time(world: World) -> None:
    pause, _ = world.book.failed(Mlist("smtp", "a:25", 4, ("r@x",)), "no answer", world.now)
    wait = world.wait()
    assert wait is not None
    assert (wait.cause, wait.down) == (Cause.DOWN, True)
    assert pause.seconds - 5.0 < wait.seconds <= pause.seconds
    assert "no answer" in wait.reason
    assert world.book.left_alone() == {"a:25"}
    world.book.states.forget()
    assert world.book.left_alone() == frozenset()
