"""What the queue manager refuses to call back is asked for again, and lost to nobody."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omq.base.errors import BadRequest, OmqError, SpoolFull
from omq.base.limits import RECALL_MAX
from omq.base.paths import SpoolPaths
from omq.base.settings import DEFAULTS
from omq.services.delivery.calling_back import CallingBack
from omq.services.delivery.deferred import Aside
from omq.services.delivery.holds import Holds
from omq.services.delivery.mlist import Cause
from omq.services.delivery.peer_book import PeerBook
from omq.services.delivery.rules import Rules
from omq.services.delivery.scheduler import Scheduler

PEER = ("smtp", "a:25")
FREE = 100_000


class Manager:
    """Says no as often as the test wants, after so many calls."""

    def __init__(self) -> None:
        self.error: OmqError | None = None
        self.after = 0
        self.called: list[list[int]] = []
        self.flushed = 0
        self.gone: range = range(0)

    def flush(self) -> None:
        self.flushed += 1

    def recall(self, queue: str, qpools: list[int]) -> list[int]:
        assert queue == "UNIX"
        if self.error is not None and len(self.called) >= self.after:
            raise self.error
        self.called.append(qpools)
        return [each for each in qpools if each in self.gone]

    def recall_due(self, _queue: str, _within_s: float, before: int) -> tuple[int, int]:
        return 0, before


class World:
    def __init__(self, root: Path) -> None:
        self.free = FREE
        paths = SpoolPaths(root)
        paths.run.mkdir()
        context = cast("Any", SimpleNamespace(
            settings=DEFAULTS, paths=paths, conf=SimpleNamespace(name="unix", queue="UNIX"),
            log=SimpleNamespace(event=lambda *_words, **_fields: None)))
        self.aside, self.manager = Aside(10_000), Manager()
        book = PeerBook(context, Scheduler(Rules(window=FREE)), self.aside)
        self.holds = Holds(paths.held("unix"))
        self.calling = CallingBack(context, self.aside, book, self.holds)

    def goes_on(self) -> bool:
        return self.calling.goes_on

    def turn(self, now: float) -> None:
        self.calling.turn(self.manager, self.manager.flush, self.free, now)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for number in range(1, RECALL_MAX * 2 + 1):
        made.aside.put(number, PEER, Cause.SHARE, "it has enough", 1 << 62)
    return made


def test_what_is_refused_is_asked_for_after_a_second(world: World) -> None:
    world.manager.error, world.manager.after = SpoolFull(path="journal", detail="none"), 1
    world.turn(0.0)
    assert [len(each) for each in world.manager.called] == [RECALL_MAX]
    assert len(world.aside) == RECALL_MAX, "the others wait on"
    assert not world.aside.has_share(PEER, 0.5), "who comes now does not wait behind them"
    world.manager.error = None
    world.turn(0.5)
    assert len(world.manager.called) == 1
    world.turn(1.0)
    assert sorted(qpool for some in world.manager.called for qpool in some) == list(
        range(1, RECALL_MAX * 2 + 1))
    assert world.manager.flushed == 2


def test_a_manager_that_does_not_know_the_question_is_asked_once(world: World) -> None:
    world.manager.error = BadRequest(reason="unknown operation recall")
    world.turn(0.0)
    world.manager.error = None
    world.turn(1e9)
    assert world.manager.called == []
    assert not world.aside.has_share(PEER, 1e9)


def test_nothing_is_sent_when_nobody_is_called(world: World) -> None:
    world.holds.change(add=frozenset(("smtp",)))
    world.turn(0.0)
    world.holds.change(remove=frozenset(("smtp",)))
    assert (world.manager.called, world.manager.flushed) == ([], 0)
    world.turn(1.0)
    assert len(world.manager.called) == 2


def test_who_is_gone_takes_nobodys_place(world: World) -> None:
    """In the same turn; of very many the rest in the next ones, which nothing has to wake."""
    world.free, world.manager.gone = 10, range(1, 16)
    world.turn(0.0)
    assert [each for some in world.manager.called for each in some] == list(range(1, 26))
    assert not world.goes_on()
    world.free, world.manager.gone = 1, range(26, 150)
    turns = [1.0]
    world.turn(turns[-1])
    while world.goes_on():
        turns.append(1.0)
        world.turn(turns[-1])
    assert world.manager.called[-1] == [150]
    assert len(turns) == 2
