"""A request down to the kernel, compiled: how far it came, whatever the other side does. The link
goes on from there (tests/process), so each answer must be the right one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sysv_ipc

from omq.fast import FORM
from omq.fast.client_request import ANSWERED, DONE, UNSENT, WAITING, WOKEN
from omq.format.wire import REPLY, REQUEST, REQUEST_MAGIC, REQUEST_TYPE, VERSION
from omq.ipc.client.reply_wait import Gate
from tests.waiting import pause

pytestmark = pytest.mark.skipif(FORM != "compiled", reason="only compiled it sends by itself")
TOKEN, EPOCH = bytes(range(16)), 5


class World:
    """A request queue, a semaphore and a channel of their own."""

    def __init__(self) -> None:
        self.queue = sysv_ipc.MessageQueue(None, sysv_ipc.IPC_CREX)
        self.semaphore = sysv_ipc.Semaphore(None, sysv_ipc.IPC_CREX)
        self.area, self.reply = memoryview(bytearray(64)), memoryview(bytearray(64))
        self.gate = Gate(self.semaphore, self.queue.id, 77, TOKEN, EPOCH)

    def answer(self, *, magic: int = REQUEST_MAGIC, status: int = 0, sequence: int = 9,
               epoch: int = EPOCH) -> None:
        REPLY.pack_into(self.reply, 0, magic, status, 4, sequence, 3, 0, 11, 12, epoch, b"")
        self.semaphore.release()

    def ask(self, data: bytes = b"data") -> int:
        return self.gate.ask(self.area, self.reply, data, 9, 2, 7, 1, 6, 100, 4, 1 << 40, 5,
                             (1 << 64) - 1, 8, -1, 3, -2)

    def close(self) -> None:
        for each in (self.queue, self.semaphore):
            try:
                each.remove()
            except sysv_ipc.ExistentialError:
                continue


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_a_request_is_that_of_the_format(world: World) -> None:
    world.answer()
    assert world.ask() == DONE
    gate = world.gate
    assert (gate.count, gate.lost, gate.qpool, gate.lsn) == (3, 4, 11, 12)
    raw, kind = world.queue.receive(block=False)
    assert kind == REQUEST_TYPE
    assert raw == REQUEST.pack(2, 7, 1, 6, 100, 77, 4, TOKEN, 9, 1 << 40, 5, REQUEST_MAGIC, VERSION,
                               (1 << 64) - 1, 8, -1, 0, 3, 0, -2)
    assert bytes(world.area[:5]) == b"data\0"
    assert not gate.waits


@pytest.mark.parametrize("said", [{"status": 3}, {"sequence": 8}, {"epoch": 4}, {"magic": 0}])
def test_a_reply_that_is_none_is_looked_at_by_the_link(world: World, said: dict[str, int]) -> None:
    world.answer(**said)
    assert world.ask() == ANSWERED
    assert world.gate.lsn == 0, "nothing of it counts"


def test_a_mark_is_no_reply(world: World) -> None:
    world.gate.open()
    assert world.ask() == WOKEN
    assert not world.gate.marks
    world.answer()
    assert world.ask() == DONE


def test_a_full_queue_takes_nothing(world: World) -> None:
    with pytest.raises(sysv_ipc.BusyError):
        while True:
            world.queue.send(bytes(96), block=False)
    world.answer()
    assert world.ask() == UNSENT
    assert world.semaphore.value == 1, "and nothing is waited for"


def test_without_its_queue_nothing_is_sent(world: World) -> None:
    world.queue.remove()
    assert world.ask() == UNSENT


def test_without_its_semaphore_the_wait_is_the_gates(world: World) -> None:
    world.semaphore.remove()
    assert world.ask() == WAITING
    with pytest.raises(sysv_ipc.ExistentialError):
        world.gate.wait()


def _when_it_waits(world: World, act: Any) -> threading.Thread:
    def run() -> None:
        while not world.gate.waits:
            pause()
        while world.semaphore.waiting_for_nonzero == 0:  # it may not be in the system call yet
            pause()
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_its_semaphore_goes_while_it_waits(world: World) -> None:
    thread = _when_it_waits(world, world.semaphore.remove)
    assert world.ask() == WAITING
    thread.join()


def test_a_nudge_ends_the_wait(world: World) -> None:
    thread = _when_it_waits(world, world.gate.nudge)
    assert world.ask() == WOKEN
    thread.join()


def test_a_signal_ends_the_wait_and_is_handled(world: World) -> None:
    met: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: met.append(number))
    try:
        thread = _when_it_waits(world, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        assert world.ask() == WOKEN
        thread.join()
        assert met == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_number_that_no_field_holds_is_an_error(world: World) -> None:
    with pytest.raises(OverflowError):
        world.gate.ask(world.area, world.reply, b"", 9, 2, 7, 1, 6, 1 << 40, *[0] * 8)
    with pytest.raises(sysv_ipc.BusyError):
        world.queue.receive(block=False)


def test_data_longer_than_the_channel_is_an_error(world: World) -> None:
    with pytest.raises(ValueError, match=r"size|structure"):
        world.ask(bytes(65))
    with pytest.raises(sysv_ipc.BusyError):
        world.queue.receive(block=False)
