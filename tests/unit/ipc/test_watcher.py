"""The watcher nudges what waits, and is in nobody's way."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator

import pytest

from omq.ipc import watcher


class Waiting:
    """Counts its nudges."""

    def __init__(self) -> None:
        self.nudged = threading.Event()

    def nudge(self) -> None:
        self.nudged.set()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(watcher, "PERIOD_S", 0.01)
    assert not threads()
    yield
    assert not threads()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == watcher.NAME]


@pytest.mark.usefixtures("soon")
def test_all_are_nudged_until_they_leave() -> None:
    one, other = Waiting(), Waiting()
    watcher.add(one)
    watcher.add(other)
    assert one.nudged.wait(60) and other.nudged.wait(60)
    watcher.discard(one)
    one.nudged.clear()
    other.nudged.clear()
    assert other.nudged.wait(60)
    assert not one.nudged.is_set()
    assert len(threads()) == 1
    watcher.discard(other)


@pytest.mark.usefixtures("soon")
def test_a_fork_has_no_second_thread_and_the_parent_goes_on() -> None:
    link = Waiting()
    watcher.add(link)
    pid = os.fork()
    if not pid:
        mine = Waiting()
        alone = threading.active_count() == 1
        watcher.add(mine)
        os._exit(0 if alone and mine.nudged.wait(60) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    link.nudged.clear()
    assert link.nudged.wait(60)
    watcher.discard(link)


@pytest.mark.usefixtures("soon")
def test_a_link_is_not_kept_alive() -> None:
    link, other = Waiting(), Waiting()
    watcher.add(link)
    watcher.add(other)
    gone = weakref.ref(link)
    del link
    assert gone() is None
    assert other.nudged.wait(60)
    watcher.discard(other)
