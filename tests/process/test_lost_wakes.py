"""Wakes and interrupts at every step of a wait for messages: none is lost.

A wake that comes while a call is between two of its requests must end that call: a step that
forgets it leaves the call waiting until somebody wakes it a second time. Here the call runs again
and again, and each time one line later somebody ends it. Processes wait: a test that fails finds
them waiting still.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

import omq
from omq.aio.reader import AsyncReader
from omq.aio.unit import AsyncUnit, _Take
from omq.aio.waiter import Waiter
from omq.base.settings import Settings
from omq.ipc.client.connection import Client
from omq.ipc.client.ids_asked import IdAsked
from omq.ipc.client.link import Link
from omq.ipc.client.reader import Reader
from omq.ipc.wire.exchange import Answer
from omq.services.amqp.taker import TakenMessage, Taker
from omq.services.daemon.thread_pool import ThreadPool
from omq.tasks.pump import Pump
from tests.process.instance import Instance
from tests.process.processes import WAIT_S, start

OWN = frozenset(str(Path(omq.__file__).parent / each) for each in (
    "ipc/client/reader.py", "ipc/client/reader_selector.py", "ipc/client/group.py",
    "ipc/client/ids_asked.py", "ipc/client/unit_taking.py", "ipc/client/interruptible.py",
    "ipc/client/link.py", "ipc/client/registration.py", "ipc/client/reply_wait.py", "aio/unit.py",
    "aio/reader.py", "tasks/pump.py", "services/amqp/taker.py", "services/amqp/reader_turns.py"))
"""Where waits are begun and ended; between two lines of the others nothing of that changes."""
STRANGER = b"stranger"


class Steps:
    """Does `end` once, at the line number `at` of omq's that this thread executes; at the latest
    when the request number `waits` of those that may wait for ever is about to wait. `reached` says
    that this came first: there is no further line. `held`: nobody can come in between now."""

    held: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, at: int, waits: int, end: Callable[[], object] | None = None) -> None:
        self._left, self._waits = at, waits
        self.end = end  # None: it is not counted yet
        self.ended = self.reached = False

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename not in OWN:
            return None
        if event == "line" and self.end is not None and not self.ended:
            self._left -= 1
            if self._left < 0 and not self.held():
                self.now()
        return self.trace

    def now(self) -> None:
        assert self.end is not None
        self.ended = True
        self.end()

    def waiting(self) -> None:
        """A request that may wait for ever is at its wait."""
        self._waits -= 1
        if self._waits == 0:
            self.reached = not self.ended
            if not self.ended:
                self.now()


def watch_waits(monkeypatch: pytest.MonkeyPatch, told: Callable[[], None]) -> None:
    """`told` is called at the wait of each request that may wait for ever."""
    request, thread = Link.request, threading.local()

    def asked(self: Link, *args: Any, **said: Any) -> Answer:
        gate, wait_s = self._gate, said.get("wait_s", args[14] if len(args) > 14 else None)
        assert gate is not None
        thread.told = wait_s is None or wait_s >= 0
        ask, wait = gate.ask, gate.wait

        def tell() -> None:
            if not thread.told:
                thread.told = True
                told()

        def ask_told(*all_: Any) -> int:
            if gate.sends:
                tell()
            return ask(*all_)

        def wait_told() -> bool:
            tell()
            return wait()

        gate.ask, gate.wait = ask_told, wait_told  # type: ignore[method-assign, assignment]
        try:
            return request(self, *args, **said)
        finally:
            with suppress(AttributeError):
                del gate.ask, gate.wait

    monkeypatch.setattr(Link, "request", asked)


@dataclass(frozen=True)
class Way:
    """A call that waits in the end, behind so many requests that might; `before` each round."""

    call: Callable[[], object]
    waits: int = 1
    before: Callable[[], object] = lambda: None


def reader_ways(c: Client, other: Client, way: str, patch: pytest.MonkeyPatch) -> Way:
    if way == "group":
        return Way(c.group_reader("A").next)
    reader = c.reader("A")
    if way == "next":
        return Way(reader.next)
    if way == "iteration":
        return Way(lambda: next(iter(reader), None))
    if way == "id":
        patch.setattr(IdAsked, "meant", lambda self, message: message.body != STRANGER)
        return Way(lambda: reader.next(correlation="c"), 2,
                   lambda: other.put("A", STRANGER, correlation_id="c"))
    if way == "recovered":
        return Way(reader.next, before=lambda: patch.setattr(
            c._link, "request", recovered_once(c._link)))
    return selecting_ways(c, other, way, reader)


def recovered_once(link: Link) -> Callable[..., Answer]:
    """The next request was carried out by a manager that has gone, and handed nothing out."""
    def request(*_: Any, **__: Any) -> Answer:
        del link.request
        return Answer(0, 0, 0, recovered=True)

    return request


def selecting_ways(c: Client, other: Client, way: str, reader: Reader) -> Way:
    rival = other.reader("A")
    rounds = iter(range(1 << 30))
    take_under = reader._take_under

    def quicker(row: Any) -> list[omq.Message]:
        if (taken := rival.take(row)) is not None:
            taken.done()
        return take_under(row)

    reader._take_under = quicker  # type: ignore[method-assign]

    def before() -> None:
        for left in rival.next(10, timeout_s=0):
            left.done()
        other.put("A", b"x")

    if way == "where":  # the whole queue is looked at
        return Way(lambda: reader.next(where=f"size < {next(rounds) + 2}"), before=before)
    assert way == "arrivals"
    assert reader.next(timeout_s=0, where="size > 0") == []
    return Way(lambda: reader.next(where="size > 0"), 2, before)


def unit_ways(c: Client, other: Client, way: str, patch: pytest.MonkeyPatch) -> Way:
    unit = c.unit()
    if way == "unit":
        return Way(lambda: unit.next("A"))
    patch.setattr(IdAsked, "meant", lambda self, message: message.body != STRANGER)
    return Way(lambda: unit.next("A", correlation="c"), 2,
               lambda: other.put("A", STRANGER, correlation_id="c"))


def every_step(instance: Instance, made: Callable[[Client, Client, pytest.MonkeyPatch], Way],
               end: Callable[[Client], object]) -> None:
    """In a process of its own: each round one step later, until the wait is the next step."""
    def run() -> int:
        patch, now = pytest.MonkeyPatch(), Steps(0, 0)
        watch_waits(patch, lambda: now.waiting())
        with instance.connect("waits") as c, instance.connect("other") as other:
            way, at = made(c, other, patch), 0
            while True:
                way.before()
                now = Steps(at, way.waits, lambda: end(c))
                print(f"the end at step {at}", flush=True)
                sys.settrace(now.trace)
                try:
                    found = way.call()
                finally:
                    sys.settrace(None)
                assert not found, found
                if now.reached:
                    assert at > 10, "there are more lines than that"
                    return 0
                c._link.forget_ends()
                at += 1

    child = start("steps", run, output=instance.output)
    try:
        assert child.wait() == 0
    except AssertionError:
        child.kill()
        raise AssertionError("it waits on: " + instance.output.read_text()[-500:]) from None


@pytest.mark.parametrize("way", ["next", "id", "where", "arrivals", "recovered", "group"])
@pytest.mark.parametrize("end", ["wake", "interrupt"])
def test_a_reader(omq_instance: Instance, way: str, end: str) -> None:
    omq_instance.start()
    every_step(omq_instance, lambda c, other, patch: reader_ways(c, other, way, patch),
               lambda c: getattr(c._link, end)())


def test_an_iteration_is_ended_by_an_interrupt(omq_instance: Instance) -> None:
    omq_instance.start()
    every_step(omq_instance, lambda c, other, patch: reader_ways(c, other, "iteration", patch),
               lambda c: c._link.interrupt())


@pytest.mark.parametrize("way", ["unit", "unit by id"])
def test_a_unit(omq_instance: Instance, way: str) -> None:
    omq_instance.start()
    every_step(omq_instance, lambda c, other, patch: unit_ways(c, other, way, patch),
               lambda c: c._link.wake())


def test_a_unit_of_a_coroutine_that_is_cancelled(omq_instance: Instance) -> None:
    """What the thread of omq.aio does for it."""
    omq_instance.start()
    takes: list[_Take] = []

    def made(c: Client, _other: Client, _patch: pytest.MonkeyPatch) -> Way:
        unit, shared = c.unit(), AsyncUnit.__new__(AsyncUnit)
        shared._closed = False
        return Way(lambda: shared._taken(unit, takes[-1], "A", 1, None),
                   before=lambda: takes.append(_Take()))

    def cancel(c: Client) -> None:
        takes[-1].given_up = True
        c._link.wake()

    every_step(omq_instance, made, cancel)


Give = Callable[[], object]  # work for a thread
Made = Callable[[Callable[[], Client], Callable[[], None]],
                tuple[Give, Callable[[], None], threading.Condition]]


def threads_every_step(instance: Instance, made: Made) -> None:
    """As above, of a thread that waits for messages while others give it work. `made` is told how
    to connect, and what the work is; it says how to give it, how to end the thread,
    and what that holds while nobody can give it any."""
    def run() -> int:
        patch, now = pytest.MonkeyPatch(), Steps(0, 0)
        watch_waits(patch, lambda: now.waiting())
        at = 0
        while True:
            done, go = threading.Event(), threading.Event()
            now = Steps(at, 1)

            def connect(go: threading.Event = go) -> Client:
                go.wait()
                return instance.connect("thread")

            threading.settrace(now.trace)
            give, end, changed = made(connect, done.set)
            threading.settrace(None)
            now.held = changed._is_owned  # type: ignore[attr-defined]
            now.end = give
            go.set()
            if not done.wait(WAIT_S / 4):
                print(f"the work given at step {at} is not done", flush=True)
                os._exit(1)
            end()
            if now.reached:
                assert at > 10, "there are more lines than that"
                return 0
            at += 1

    child = start("threads", run, output=instance.output)
    assert child.wait() == 0, instance.output.read_text()[-500:]


def test_the_thread_of_a_task_library(omq_instance: Instance) -> None:
    omq_instance.start()

    def made(connect: Callable[[], Client], work: Callable[[], None]
             ) -> tuple[Give, Callable[[], None], threading.Condition]:
        pump = Pump(connect, "A", lambda: None)
        pump.want(1)
        return lambda: pump.say(lambda _: work()), pump.close, pump._changed

    threads_every_step(omq_instance, made)


class Ear:
    """Of a taker."""

    def began(self) -> None: ...
    def took(self, messages: list[TakenMessage], *, drained: bool) -> None: ...
    def ended_by(self, error: Exception | None) -> None: ...


def test_the_thread_of_a_link_of_amqp(omq_instance: Instance) -> None:
    """One with a selector: the turns of others have none (tests/process/test_turning.py)."""
    where = "size > 7"
    omq_instance.start()
    loops: list[asyncio.AbstractEventLoop] = []

    def made(connect: Callable[[], Client], work: Callable[[], None]
             ) -> tuple[Give, Callable[[], None], threading.Condition]:
        if not loops:
            loops.append(asyncio.new_event_loop())

        async def begin() -> Taker:
            return Taker(connect, "A", where, Settings(), Ear(), ThreadPool(1, "turns"))

        taker = loops[0].run_until_complete(begin())
        taker.want(1, 1 << 20)

        def end() -> None:
            taker.close()
            taker.join(WAIT_S)

        return lambda: taker.say(work), end, taker._changed

    threads_every_step(omq_instance, made)


def test_the_thread_of_a_reader_of_coroutines(omq_instance: Instance) -> None:
    omq_instance.start()
    loops: list[asyncio.AbstractEventLoop] = []

    def made(connect: Callable[[], Client], work: Callable[[], None]
             ) -> tuple[Give, Callable[[], None], threading.Condition]:
        if not loops:
            loops.append(asyncio.new_event_loop())
        loop = loops[0]

        async def begin() -> tuple[AsyncReader, Waiter, Waiter, Waiter, Waiter]:
            return (AsyncReader(connect, "A", {"auxiliary": False, "ack": "prompt"}, 1,
                                lambda _: None), Waiter(), Waiter(), Waiter(), Waiter())

        reader, began, ended, asks, said = loop.run_until_complete(begin())
        reader._wanting.append(asks)
        reader._thread = threading.Thread(target=reader._serve, args=(began, ended))
        thread = reader._thread
        thread.start()

        def end() -> None:
            reader._stir(closing=True)
            thread.join(WAIT_S)
            loop.run_until_complete(ended.result())

        return lambda: reader._stir(says=(said, work)), end, reader._changed

    threads_every_step(omq_instance, made)
