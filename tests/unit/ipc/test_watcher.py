"""The watcher nudges what waits, when there is reason to, and is in nobody's way."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Iterator

import pytest

from omq.ipc.client import watcher

WAIT_S = 60.0


class Waiting:
    """Counts its nudges; a connection of its own."""

    def __init__(self, timeout_s: float = 0.1) -> None:
        self.nudged = threading.Event()
        self.before = 0
        self.here, self.there = socket.socketpair()
        watcher.add(self, self.here.fileno(), timeout_s)

    def nudge(self) -> None:
        """`before`: nudges while the connection was there."""
        self.before += self.there.fileno() >= 0
        self.nudged.set()

    def leave(self) -> None:
        watcher.discard(self)
        self.here.close()
        self.there.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Time-outs of 0.1 s are looked at every 10 ms, long ones in an hour."""
    monkeypatch.setattr(watcher, "PERIOD_MIN_S", 0.01)
    monkeypatch.setattr(watcher, "PERIOD_MAX_S", 3600.0)
    assert not threads()
    before = os.listdir("/proc/self/fd")
    yield
    assert not threads()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == watcher.NAME]


@pytest.mark.usefixtures("soon")
def test_all_are_nudged_until_they_leave() -> None:
    one, other = Waiting(), Waiting()
    assert one.nudged.wait(WAIT_S) and other.nudged.wait(WAIT_S)
    one.leave()
    one.nudged.clear()
    other.nudged.clear()
    assert other.nudged.wait(WAIT_S)
    assert not one.nudged.is_set()
    assert len(threads()) == 1
    other.leave()


@pytest.mark.usefixtures("soon")
def test_the_end_of_a_connection_is_told_at_once() -> None:
    """To all, and again while the link has not looked; who comes later is watched from then on."""
    quiet, link = Waiting(1e6), Waiting(1e6)
    link.there.close()
    for each in (link, link, quiet):
        each.nudged.clear()
        assert each.nudged.wait(WAIT_S)
    link.leave()
    late = Waiting(1e6)
    late.there.close()
    assert late.nudged.wait(WAIT_S)
    late.leave()
    quiet.leave()


@pytest.mark.usefixtures("soon")
def test_nobody_is_woken_while_nothing_happens() -> None:
    quiet = Waiting(1e6)
    for _ in range(20):
        Waiting(1e6).leave()
    quiet.there.send(b"a line of an answer")
    Waiting(1e6).leave()
    quiet.there.close()
    assert quiet.nudged.wait(WAIT_S)
    assert quiet.before == 0, "it was nudged before its connection ended"
    quiet.leave()


@pytest.mark.parametrize("again", [True, False])
def test_a_descriptor_that_is_used_again_is_no_end(monkeypatch: pytest.MonkeyPatch, *, again: bool
                                                   ) -> None:
    """The connection that ended was given up meanwhile, and another one got its number."""
    old, new = Waiting(1e6), Waiting(1e6)
    for each in (old, new):
        each.leave()
        each.nudged.clear()
    number = 7
    one = watcher._Watcher()
    one._watched = (watcher._Watched(weakref.ref(old), number, 1e6),)

    def wait(_: float, connections: list[int]) -> list[int]:
        if again:
            one._watched = (watcher._Watched(weakref.ref(new), number, 1e6),)
        one._ending = True
        return connections

    monkeypatch.setattr(one, "_wait", wait)
    thread = threading.Thread(target=one._run)  # it blocks its signals
    thread.start()
    thread.join(WAIT_S)
    assert (old.nudged.is_set(), new.nudged.is_set()) == (not again, False)


@pytest.mark.usefixtures("soon")
def test_a_fork_has_no_second_thread_and_the_parent_goes_on() -> None:
    link = Waiting()
    pid = os.fork()
    if not pid:
        alone = threading.active_count() == 1
        mine = Waiting()
        os._exit(0 if alone and mine.nudged.wait(WAIT_S) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    link.nudged.clear()
    assert link.nudged.wait(WAIT_S)
    link.leave()


@pytest.mark.usefixtures("soon")
def test_a_link_is_not_kept_alive() -> None:
    link, other = Waiting(), Waiting()
    gone = weakref.ref(link)
    connections = link.here, link.there
    del link
    assert gone() is None
    assert other.nudged.wait(WAIT_S)
    other.leave()
    for connection in connections:
        connection.close()
