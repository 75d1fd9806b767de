"""Behind groups of plain requests the manager asks nobody who cannot have changed; behind all
others it asks everybody, and at the latest once a second."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from omq.core.engine.waiting import FOREVER
from omq.format.index import Counter
from omq.services.manager.queue_manager import CHORES_NS, QueueManager

LATER = 100 * CHORES_NS


class Plane:
    """Somebody with a deadline, who counts how often it is asked for."""

    def __init__(self) -> None:
        self.asked, self.next = 0, FOREVER

    @property
    def due(self) -> int:
        self.asked += 1
        return self.next


class Manager:
    """A queue manager's loop with nothing but its planes; `chores`: how often they were done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.chores, self.doors, self.batch = LATER, 0, False, [b"put"]
        self.planes = {name: Plane() for name in ("rated", "events", "triggers", "ends", "held")}
        self.server = SimpleNamespace(plain=True, stopping=False, refused=[],
                                      group=self._group, due=lambda: FOREVER)
        made: Any = object.__new__(QueueManager)
        self.made = made
        index = SimpleNamespace(counters=[0] * (int(Counter.LAST_LSN) + 1))
        self.queues = SimpleNamespace(triggered=set())
        control = SimpleNamespace(
            queues=SimpleNamespace(ends=self.planes["ends"]), drain=lambda: self.doors,
            operators=SimpleNamespace(release=lambda held: None))
        made._parts = SimpleNamespace(
            engine=SimpleNamespace(index=index, queues=self.queues, poisoned=[], mono_ns=0,
                                   back=SimpleNamespace(ended=[])),
            server=self.server, control=control, rated=self.planes["rated"],
            doorkeeper=SimpleNamespace(deadline=0, arm=self._arm),
            requests=SimpleNamespace(take=lambda _: self.batch))
        self.signals = SimpleNamespace(stopping=False, reload_wanted=False)
        made._context = SimpleNamespace(signals=self.signals)
        made._clock = SimpleNamespace(low=-1 << 62, high=1 << 62)
        self.disk = SimpleNamespace(new_file=False, slow=False, ease_above=1,
                                    ease=lambda now: None)
        made._disk, made._held = self.disk, None
        made._events, made._triggers = self.planes["events"], self.planes["triggers"]
        made._events.refused = made._events.turn = lambda _: None
        made._triggers.turn = lambda now, stopping: False
        made._chores, made._watchdog_due, made._draining_until = self._chores, 0, 0
        made._quiet, made._chores_due, made._look_due = False, 0, 0
        monkeypatch.setattr("omq.base.clock.monotonic_ns", lambda: self.now)
        self.armed = 0
        self.run()

    def _group(self, batch: list[bytes], wall: int, mono: int, drain: Callable[[], bool]) -> None:
        self.made._parts.engine.mono_ns = mono
        if drain():
            self.server.plain = False

    def _arm(self, deadline: int) -> None:
        self.armed = self.made._parts.doorkeeper.deadline = deadline

    def _chores(self, now: int) -> None:
        self.chores += 1
        self.made._chores_due = now + CHORES_NS

    def run(self) -> int:
        """A group; how often the planes were asked in it, and in the one behind it."""
        before = sum(plane.asked for plane in self.planes.values())
        self.made._group()
        self.server.plain, self.doors, self.batch = True, False, [b"put"]
        self.made._group()
        return sum(plane.asked for plane in self.planes.values()) - before


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    return Manager(monkeypatch)


def test_nobody_is_asked_behind_plain_requests(manager: Manager) -> None:
    assert manager.chores == 1
    assert manager.run() == 0


def _odd(manager: Manager) -> None:
    manager.server.plain = False


def _door(manager: Manager) -> None:
    manager.doors = True


def _nothing(manager: Manager) -> None:
    manager.batch = []


def _refusal(manager: Manager) -> None:
    manager.server.refused.append(b"")


def _trigger(manager: Manager) -> None:
    manager.made._quiet = False
    manager.queues.triggered.add(5)


def _standby(manager: Manager) -> None:
    manager.made._quiet, manager.made._held = False, manager.planes["held"]
    manager.planes["held"].look = lambda: None  # type: ignore[attr-defined]
    manager.planes["held"].due_at_least = lambda now: FOREVER  # type: ignore[attr-defined]


@pytest.mark.parametrize("brings", [_odd, _door, _nothing, _refusal, _trigger, _standby])
def test_everybody_is_asked_behind_others(manager: Manager, brings: Callable[[Manager], None]
                                          ) -> None:
    brings(manager)
    assert manager.run() >= 4


@pytest.mark.parametrize("name", ["stopping", "reload_wanted", "new_file"])
def test_what_is_wanted_is_done_at_once(manager: Manager, name: str) -> None:
    setattr(manager.disk if name == "new_file" else manager.signals, name, True)
    manager.run()
    assert manager.chores == 3


def test_chores_come_each_second_all_the_same(manager: Manager) -> None:
    manager.now += CHORES_NS - 1
    manager.run()
    assert manager.chores == 1
    assert manager.armed <= manager.now + 1
    manager.now += 1
    manager.run()
    assert manager.chores == 2


def test_a_deadline_is_kept_between_plain_requests(manager: Manager) -> None:
    manager.planes["ends"].next = due = manager.now + 10
    swept: list[int] = []
    manager.planes["ends"].sweep = lambda: swept.append(manager.now)  # type: ignore[attr-defined]
    _odd(manager)
    manager.run()
    manager.now = due - 1
    manager.run()
    assert (swept, manager.armed) == ([], due)
    manager.now = due
    manager.run()
    assert swept


def test_a_manager_that_drains_looks_each_time(manager: Manager) -> None:
    manager.made._quiet, manager.made._draining_until = False, manager.now + LATER
    manager.run()
    assert manager.run() >= 4
