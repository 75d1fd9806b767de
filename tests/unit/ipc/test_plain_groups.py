"""The manager's loop in compiled code: what it does by itself, and what ends it. A real request
queue, an engine without a disk (tests.bench.group_cost); interpreted there is no such loop."""

from __future__ import annotations

import contextlib
import signal
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sysv_ipc

from omq.base import clock, fault, form
from omq.base.errors import IpcRemoved
from omq.core.engine.waiting import FOREVER
from omq.format.index import Counter
from omq.format.wire import REQUEST_TYPE, WAKE_TYPE
from omq.ipc.server.loop_parts import LoopParts
from omq.ipc.server.requests import Requests
from omq.storage import durable
from omq.storage.disk import Disk
from tests.bench.group_cost import Client, World

LIMIT = 4
PATIENCE_S = 30


class Loop:
    """A server between its queue and two clients; `drained`: how often doors were asked for."""

    def __init__(self) -> None:
        self.queue = sysv_ipc.MessageQueue(None, sysv_ipc.IPC_CREX)
        self.world = World(2, messages=1000)
        self.server, self.drained, self.told = self.world.server, 0, False
        self.looked, self.armed = 0, list[int]()
        self.keeper = SimpleNamespace(ring=SimpleNamespace(users=deque[int]()), failure=None,
                                      deadline=0, arm=self._arm)
        self.finished, self.clock = deque[object](), SimpleNamespace(
            low=-FOREVER, high=FOREVER, look=self._look)
        self.signals = SimpleNamespace(stopping=False, reload_wanted=False)
        self.requests = Requests(self.queue, lambda: None, self.server.intake)
        self.server.go_on_with(LoopParts(self.requests, cast(Any, self.keeper),
                                         cast(Any, self.finished), self.clock, self.signals, LIMIT))
        self.group([])  # the first one of a manager asks for everything

    def _arm(self, deadline: int) -> None:
        self.armed.append(deadline)
        self.keeper.deadline = deadline

    def _look(self) -> None:
        self.looked += 1
        self.clock.low = -FOREVER

    def drain(self) -> bool:
        self.drained += 1
        return self.told

    def group(self, batch: list[bytes]) -> None:
        self.server.due()
        self.server.group(batch, clock.wall_ns(), clock.monotonic_ns(), lambda: False)
        self.server.due()

    @property
    def putter(self) -> Client:
        return self.world.clients[0]

    def put(self) -> bytes:
        return self.putter.put(b"body", 1)

    def send(self, *raws: bytes) -> None:
        for raw in raws:
            self.queue.send(raw, type=REQUEST_TYPE)

    def ring(self) -> None:
        self.queue.send(b"w", type=WAKE_TYPE)

    def run(self, look_due: int = FOREVER, ease_above: int = FOREVER) -> int:
        """Requests of the last group."""
        found = self.server.go_on(look_due, ease_above, self.drain)
        assert found is not None
        began, count = found
        assert 0 <= clock.monotonic_ns() - began < 600 * clock.NS_PER_S
        return count

    @property
    def messages(self) -> int:
        return self.world.engine.index.messages.used

    @property
    def groups(self) -> int:
        return int(self.world.engine.index.counters[Counter.GROUPS])


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    if made.server.form != form.COMPILED:
        made.queue.remove()
        durable.use(Disk())
        pytest.skip("only compiled it turns by itself")
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.alarm(PATIENCE_S)  # ends the wait of a loop that should have ended: its test fails
    try:
        yield made
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        made.server.close()
        durable.use(Disk())
        with contextlib.suppress(sysv_ipc.ExistentialError):
            made.queue.remove()


def test_plain_groups_follow_each_other_until_a_wake_up(loop: Loop) -> None:
    """Three groups, for a group has LIMIT requests; the wake-up makes one of its own."""
    before = loop.groups
    for _ in range(2 * LIMIT):
        loop.send(loop.put())
    loop.ring()
    assert loop.run() == 0
    assert (loop.messages, loop.groups - before, loop.drained) == (2 * LIMIT, 2, 1)


def test_what_is_not_plain_ends_it_behind_its_group(loop: Loop) -> None:
    for _ in range(LIMIT):
        loop.send(loop.put())
    loop.send(b"not a request", loop.put())
    assert loop.run() == 2
    assert loop.messages == LIMIT + 1
    assert not loop.server.plain


def _door(loop: Loop) -> None:
    loop.keeper.ring.users.append(7)


def _body(loop: Loop) -> None:
    loop.finished.append(object())


def _failed(loop: Loop) -> None:
    loop.keeper.failure = OSError()


@pytest.mark.parametrize("brings", [_door, _body, _failed])
def test_who_waits_is_asked_in_the_group(loop: Loop, brings: Callable[[Loop], None]) -> None:
    brings(loop)
    loop.told = True
    loop.send(loop.put())
    assert (loop.run(), loop.drained) == (1, 1)


def test_a_refusal_is_told_in_its_group(loop: Loop) -> None:
    loop.server.refused.append(cast(Any, (loop.putter.session, 1, IpcRemoved(what="x", id=1))))
    loop.told = True
    loop.send(loop.put())
    assert (loop.run(), loop.drained) == (1, 1)


def test_what_is_due_ends_it(loop: Loop) -> None:
    due = clock.monotonic_ns()
    loop.send(loop.put())
    assert (loop.run(look_due=due), loop.drained) == (1, 1)
    assert loop.armed[-1] == due


@pytest.mark.parametrize("flag", ["stopping", "reload_wanted"])
def test_a_signal_ends_it_behind_the_group(loop: Loop, flag: str) -> None:
    setattr(loop.signals, flag, True)
    loop.send(loop.put())
    assert (loop.run(), loop.messages, loop.drained) == (1, 1, 0)


def test_a_clock_that_was_set_is_looked_at(loop: Loop) -> None:
    loop.clock.low = FOREVER
    loop.send(loop.put())
    loop.signals.stopping = True
    assert (loop.run(), loop.looked) == (1, 1)


def test_another_journal_file_ends_it(loop: Loop) -> None:
    class Turning(Disk):
        def pwritev(self, fd: int, buffers: Any, offset: int) -> int:
            loop.world.writer.file_number += 1
            return sum(map(len, buffers))

        def fdatasync(self, fd: int) -> None:
            return None

    durable.use(Turning())
    loop.send(loop.put())
    assert (loop.run(), loop.messages) == (1, 1)


def test_back_pressure_ends_it(loop: Loop) -> None:
    loop.send(loop.put())
    assert (loop.run(ease_above=0), loop.messages) == (1, 1)


def test_a_queue_that_was_removed_is_said(loop: Loop) -> None:
    loop.queue.remove()
    with pytest.raises(IpcRemoved):
        loop.run()


def test_an_armed_crash_point_is_met_by_the_loop_in_python(
        loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault, "armed", lambda: True)
    assert loop.server.go_on(FOREVER, FOREVER, loop.drain) is None


def test_replies_that_wait_for_standbys_are_of_the_loop_in_python(loop: Loop) -> None:
    loop.server.held = cast(Any, object())
    assert loop.server.go_on(FOREVER, FOREVER, loop.drain) is None
    loop.server.held = None
