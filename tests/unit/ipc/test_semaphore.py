"""Waits on a semaphore end: by a release, by the time, by its removal."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import sysv_ipc

from omq.ipc.semaphore import acquire


@pytest.fixture
def semaphore() -> Iterator[sysv_ipc.Semaphore]:
    made = sysv_ipc.Semaphore(None, sysv_ipc.IPC_CREX)
    yield made
    try:
        made.remove()
    except sysv_ipc.ExistentialError:
        return  # the test removed it


def test_taken_once(semaphore: sysv_ipc.Semaphore) -> None:
    semaphore.release()
    assert acquire(semaphore.id, 10.0)
    assert not acquire(semaphore.id, 0.0)
    assert not acquire(semaphore.id, 0.01)


def test_a_release_ends_the_wait(semaphore: sysv_ipc.Semaphore) -> None:
    timer = threading.Timer(0.05, semaphore.release)
    timer.start()
    assert acquire(semaphore.id, 60.0)
    timer.join()


def test_a_removed_one(semaphore: sysv_ipc.Semaphore) -> None:
    timer = threading.Timer(0.05, semaphore.remove)
    timer.start()
    with pytest.raises(sysv_ipc.ExistentialError):
        acquire(semaphore.id, 60.0)
    timer.join()
    with pytest.raises(sysv_ipc.ExistentialError):
        acquire(semaphore.id, 0.0)
