"""A wait for a reply ends without one as often as somebody nudges, and with one as often as there
is one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest
import sysv_ipc

from omq.ipc.client.reply_wait import GONE, Gate


@pytest.fixture
def semaphore() -> Iterator[sysv_ipc.Semaphore]:
    made = sysv_ipc.Semaphore(None, sysv_ipc.IPC_CREX)
    yield made
    try:
        made.remove()
    except sysv_ipc.ExistentialError:
        return  # the test removed it


def test_a_nudge_is_no_reply_whichever_comes_first(semaphore: sysv_ipc.Semaphore) -> None:
    gate = Gate(semaphore)
    gate.open()
    semaphore.release()
    assert [gate.wait(), gate.wait()] == [False, True]
    semaphore.release()
    gate.open()
    assert [gate.wait(), gate.wait()] == [False, True]
    assert semaphore.value == 0


def test_who_does_not_wait_is_not_nudged(semaphore: sysv_ipc.Semaphore) -> None:
    Gate(semaphore).nudge()
    assert semaphore.value == 0


def test_as_many_replies_as_releases(semaphore: sysv_ipc.Semaphore) -> None:
    """Nudges and replies from two threads at once."""
    gate, replies, nudges = Gate(semaphore), 3000, 3000

    def reply() -> None:
        for _ in range(replies):
            semaphore.release()

    def nudge() -> None:
        for _ in range(nudges):
            gate.open()

    threads = [threading.Thread(target=each) for each in (reply, nudge)]
    for thread in threads:
        thread.start()
    ends = [gate.wait() for _ in range(replies + nudges)]
    for thread in threads:
        thread.join()
    assert ends.count(True) == replies
    assert semaphore.value == 0


def test_a_signal_ends_a_wait_without_a_reply(semaphore: sysv_ipc.Semaphore) -> None:
    gate = Gate(semaphore)
    main, waits = threading.main_thread().ident or 0, threading.Event()

    def send() -> None:
        while not gate.waits:
            waits.wait(0.001)
        while gate.waits:  # it may have come before the system call
            signal.pthread_kill(main, signal.SIGUSR1)
            waits.wait(0.01)

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    thread = threading.Thread(target=send)
    try:
        thread.start()
        assert not gate.wait()
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert semaphore.value == 0


def test_a_removed_semaphore(semaphore: sysv_ipc.Semaphore) -> None:
    gate = Gate(semaphore)
    timer = threading.Timer(0.05, semaphore.remove)
    timer.start()
    with pytest.raises(GONE):
        gate.wait()
    timer.join()
    gate.open()  # nobody minds
