"""Puts in the event loop: what goes at once, together, by a thread, or not this way; and the fates
that each link hears."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from omq.base.errors import ManagerHung, ManagerUnavailable, QueueFull, QueueGone
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp import quick_puts as module
from omq.services.amqp.putter import TOGETHER_BYTES, Fate, PutResult
from omq.services.amqp.quick_puts import QuickPuts
from tests.waiting import WAIT_S, pause

FULL = QueueFull(queue="A", limit=1)


class Line:
    """A native connection, of a manager that rings when the test says so."""

    def __init__(self) -> None:
        self.ear, self._bell = socket.socketpair()
        self.ear.settimeout(0)
        self.requests: list[list[bytes]] = []
        self.forgot = self.closed = False
        self.gone = False  # the manager, and its bell
        self.answers = False
        self.refusal: Exception | None = None

    def ring(self, refusal: Exception | None = None) -> None:
        self.answers, self.refusal = refusal is None, refusal
        self._bell.send(b"!")

    def asked_more_than(self, count: int, told: object) -> Callable[[], bool]:
        """Or something is told."""
        return lambda: bool(told) or len(self.requests) > count

    def end(self) -> None:
        self.gone = True
        self._bell.close()

    def forget(self) -> None:
        self.forgot = True

    def close(self) -> None:
        self.closed = True
        self.ear.close()
        self._bell.close()


class Parked:
    """In the place of ipc.client.parked_puts."""

    def __init__(self) -> None:
        self.rings, self.most, self.sends = True, 100, True
        self.waited: list[bool] = []  # finishes, and whether they were to wait

    def wanted(self, line: Line) -> bool:
        return self.rings

    def begin(self, line: Line, queue: str, messages: Any) -> int:
        if queue == "NEW":
            return 0
        some = [each.body for each in messages[: self.most]]
        line.requests.append(some)
        return len(some)

    def sent(self, line: Line) -> bool:
        return self.sends

    def descriptor(self, line: Line) -> int:
        return line.ear.fileno()

    def hear(self, line: Line) -> bool:
        return bool(line.ear.recv(100))

    def are_put(self, line: Line) -> bool:
        line.ear.recv(100)
        answers, line.answers = line.answers, False
        return answers

    def finish(self, line: Line, *, now: bool) -> bool:
        self.waited.append(now)
        if line.refusal is not None:
            error, line.refusal = line.refusal, None
            raise error
        return line.gone or now or not self.sends


class World:
    """Lines as they are opened; `threads`: what was put by threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parked, self.lines, self.mistakes = Parked(), list[Line](), list[BaseException]()
        self.threads: list[tuple[str, list[bytes]]] = []
        self.fates: dict[bytes, PutResult] = {}
        self.failure: Exception | None = None
        monkeypatch.setattr(module, "parked_puts", self.parked)
        monkeypatch.setattr(module, "put_batch", self.put_batch)
        monkeypatch.setattr(module, "refused", self.refused)

    def connect(self) -> Any:
        if self.failure is not None:
            raise self.failure
        self.lines.append(Line())
        return self.lines[-1]

    def put_batch(self, native: object, queues: tuple[str, ...], some: Any) -> list[PutResult]:
        bodies = [message.body for message, _ in some]
        self.threads.append((queues[0], bodies))
        told = []
        for body in bodies:
            told.append(self.fates.get(body, PutResult(Fate.PUT)))
            if told[-1].fate in (Fate.LATER, Fate.IN_DOUBT):
                break
        return told

    def refused(self, native: object, queues: tuple[str, ...], some: Any, error: Exception
                ) -> list[PutResult]:
        if isinstance(error, ManagerHung):
            return [PutResult(Fate.IN_DOUBT, error)] * len(some)
        return self.put_batch(native, queues, some)


class Told:
    """Links, by what they put."""

    def __init__(self, puts: QuickPuts) -> None:
        self.puts, self.fates = puts, dict[str, list[Fate]]()

    def begin(self, queue: str, *bodies: bytes) -> bool:
        name = b"".join(bodies).decode()
        return self.puts.begin((queue,), [Outgoing(body=each) for each in bodies],
                               lambda told: self._heard(name, told))

    def more_than(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.fates) > count

    def _heard(self, name: str, told: list[PutResult]) -> None:
        assert name not in self.fates, "a batch is told of once"
        self.fates[name] = [each.fate for each in told]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.to_thread(pause)


def run(world: World, work: Callable[[QuickPuts, Told], Awaitable[None]], lines: int = 1) -> None:
    """With so many lines, the first of which is open."""
    async def whole() -> None:
        puts = QuickPuts(world.connect, lines, 10, world.mistakes.append)
        told = Told(puts)
        assert not told.begin("A", b"the first goes as ever")
        await until(lambda: puts._lines or puts._never or not puts._opening)
        await work(puts, told)
        async with asyncio.timeout(WAIT_S):  # it does not wait until its own time is over
            assert await puts.calm(10 * WAIT_S) == 0
        assert not puts.busy
        await asyncio.to_thread(puts.close, WAIT_S)
        for line in puts._lines:
            puts._deafen(line)

    asyncio.run(whole())
    assert all(line.closed for line in world.lines)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(monkeypatch)
    yield made
    for line in made.lines:
        line.close()


def test_alone_at_once_and_others_together(world: World) -> None:
    async def work(puts: QuickPuts, told: Told) -> None:
        (line,) = world.lines
        assert told.begin("A", b"1") and line.requests == [[b"1"]], "nothing was under way"
        assert told.begin("A", b"2") and told.begin("B", b"3") and told.begin("A", b"4", b"5")
        assert told.begin("A", *[b"%d" % number for number in range(8)])
        await asyncio.to_thread(pause)
        assert line.requests == [[b"1"]], "one request at a time"
        for _ in range(4):
            count = len(told.fates)
            line.ring()
            await until(told.more_than(count))
        assert line.requests[1:3] == [[b"2", b"4", b"5"], [b"3"]], "by queues, in turns"
        assert len(line.requests[3]) == 8 and not world.threads
        assert told.fates["1"] == told.fates["2"] == told.fates["3"] == [Fate.PUT]
        assert told.fates["45"] == [Fate.PUT] * 2

    run(world, work)


def test_what_is_under_way_when_the_wait_is_over(world: World) -> None:
    """In requests, of which one is half done, and before them; then it goes on."""
    async def work(puts: QuickPuts, told: Told) -> None:
        (line,) = world.lines
        world.parked.most = 2
        told.begin("A", b"1", b"2", b"3")
        told.begin("A", b"4")
        told.begin("B", b"5", b"6")
        assert await puts.calm(0) == 6
        line.ring()
        await until(line.asked_more_than(1, told.fates))
        assert await puts.calm(0) == 4
        for _ in range(3):
            count = len(told.fates)
            line.ring()
            await until(told.more_than(count))
        assert await puts.calm(0) == 0

    run(world, work)


def test_a_second_line_for_what_waits(world: World) -> None:
    async def work(puts: QuickPuts, told: Told) -> None:
        told.begin("A", b"1")
        told.begin("A", b"2")
        await until(lambda: len(world.lines) == 2 and world.lines[1].requests)
        world.lines[1].ring()
        await until(lambda: "2" in told.fates)
        assert "1" not in told.fates
        world.lines[0].ring()
        await until(lambda: "1" in told.fates)
        for number in (b"3", b"4", b"5"):
            told.begin("A", number)
        await until(lambda: sum(len(line.requests) for line in world.lines) == 4)
        assert sorted(line.requests[1] for line in world.lines) == [[b"3"], [b"4", b"5"]], (
            "while a put is under way, what comes in one turn goes together")
        for line in world.lines:
            line.ring()
        await until(lambda: "3" in told.fates and "4" in told.fates and "5" in told.fates)

    run(world, work, lines=2)


def test_what_does_not_go_this_way(world: World) -> None:
    async def work(puts: QuickPuts, told: Told) -> None:
        assert not told.begin("A", bytes(TOGETHER_BYTES + 1))
        for message in (Outgoing(body=b"x", reply_to="B"), Outgoing(body=b"x", delay_s=1.0)):
            assert not puts.begin(("A",), [Outgoing(body=b"x"), message], lambda told: None)
        assert not puts.begin(("A", "B"), [Outgoing(body=b"x")], lambda told: None)
        assert not world.lines[0].requests and not puts.busy

    run(world, work)


def test_more_than_a_request_has_room_for(world: World) -> None:
    async def work(puts: QuickPuts, told: Told) -> None:
        world.parked.most = 2
        told.begin("A", b"1", b"2", b"3", b"4", b"5")
        for count in (1, 2, 3):
            assert len(world.lines[0].requests) == count and not told.fates
            world.lines[0].ring()
            await until(world.lines[0].asked_more_than(count, told.fates))
        assert world.lines[0].requests == [[b"1", b"2"], [b"3", b"4"], [b"5"]]
        assert told.fates == {"12345": [Fate.PUT] * 5}

    run(world, work)


def test_a_refusal_is_for_a_thread(world: World) -> None:
    """Each by itself; whoever comes behind one that its queue does not take now waits with it."""
    async def work(puts: QuickPuts, told: Told) -> None:
        line = world.lines[0]
        world.fates = {b"no": PutResult(Fate.REFUSED), b"later": PutResult(Fate.LATER, FULL)}
        told.begin("B", b"busy")
        told.begin("A", b"1", b"no")
        told.begin("A", b"2", b"later", b"3")
        told.begin("A", b"4")
        line.ring()
        await until(lambda: len(line.requests) == 2)
        line.ring(FULL)
        await until(lambda: len(told.fates) == 4)
        assert world.threads == [("A", [b"1", b"no", b"2", b"later", b"3", b"4"])]
        assert told.fates["1no"] == [Fate.PUT, Fate.REFUSED]
        assert told.fates["2later3"] == [Fate.PUT, Fate.LATER]
        assert told.fates["4"] == [Fate.LATER]
        told.begin("A", b"next")
        line.ring()
        await until(lambda: "next" in told.fates)
        assert line.requests[-1] == [b"next"], "it goes on as before"

    run(world, work)


def test_a_name_that_is_not_known_or_not_any_more(world: World) -> None:
    async def work(puts: QuickPuts, told: Told) -> None:
        told.begin("NEW", b"1")
        await until(lambda: told.fates)
        assert world.threads == [("NEW", [b"1"])]
        assert [each.forgot for each in world.lines] == [False]
        told.begin("A", b"2")
        world.lines[0].ring(QueueGone(queue="A"))
        await until(lambda: "2" in told.fates)
        assert world.lines[0].forgot and world.threads[1:] == [("A", [b"2"])]

    run(world, work)


def test_nobody_knows_what_became_of_it(world: World) -> None:
    async def work(puts: QuickPuts, told: Told) -> None:
        told.begin("B", b"busy")
        told.begin("A", b"1", b"2")
        told.begin("A", b"3")
        world.lines[0].ring()
        await until(lambda: len(world.lines[0].requests) == 2)
        world.lines[0].ring(ManagerHung(spool="/", pid=1, state="waits", advice="end it"))
        await until(lambda: len(told.fates) == 3)
        assert told.fates["12"] == [Fate.IN_DOUBT] * 2 and told.fates["3"] == [Fate.IN_DOUBT]
        assert not world.threads, "it is not put again"

    run(world, work)


@pytest.mark.parametrize("idle", [True, False])
def test_a_manager_that_goes(world: World, idle: bool) -> None:  # noqa: FBT001
    """Also while nothing is under way: then nobody listens any more, and the next put is for a
    thread, which meets it."""
    async def work(puts: QuickPuts, told: Told) -> None:
        line = world.lines[0]
        if idle:
            line.end()
            await until(lambda: puts._lines[0].listening < 0)
        told.begin("A", b"1")
        if not idle:
            line.end()
        await until(lambda: told.fates)
        assert told.fates == {"1": [Fate.PUT]} and world.parked.waited == [False]

    run(world, work)


def test_a_manager_that_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread waits for it, as for any request; one that is not late is left alone."""
    async def work(puts: QuickPuts, told: Told) -> None:
        told.begin("A", b"1")
        puts.stir()
        assert puts._lines[0].listening >= 0
        monkeypatch.setattr(module, "LATE_S", -1.0)
        puts.stir()
        puts.stir()  # it is a thread's now
        await until(lambda: told.fates)
        assert world.parked.waited == [True]

    run(world, work)


def test_a_request_queue_that_is_full(world: World) -> None:
    async def work(puts: QuickPuts, told: Told) -> None:
        world.parked.sends = False
        told.begin("A", b"1")
        await until(lambda: told.fates)
        assert world.parked.waited == [False] and told.fates == {"1": [Fate.PUT]}

    run(world, work)


def test_an_older_manager_is_asked_once(world: World) -> None:
    world.parked.rings = False

    async def work(puts: QuickPuts, told: Told) -> None:
        await until(lambda: puts._never)
        assert not told.begin("A", b"1")

    run(world, work)
    assert len(world.lines) == 1


def test_no_connection_yet(world: World) -> None:
    """The next one tries again; what is no refusal is a mistake of ours."""
    world.failure = ManagerUnavailable(spool="/", reason="away")

    async def work(puts: QuickPuts, told: Told) -> None:
        assert not world.mistakes
        world.failure = failure = ZeroDivisionError()
        assert not told.begin("A", b"1")
        await until(lambda: not puts._opening)
        assert world.mistakes == [failure]
        world.failure = None
        assert not told.begin("A", b"2")
        await until(lambda: puts._lines)
        assert told.begin("A", b"3")
        world.lines[0].ring()

    run(world, work)


def test_a_mistake_in_a_thread_leaves_them_in_doubt(world: World) -> None:
    async def work(puts: QuickPuts, told: Told) -> None:
        told.begin("A", b"1", b"2")
        world.lines[0].ring(ZeroDivisionError())
        await until(lambda: told.fates)
        assert told.fates == {"12": [Fate.IN_DOUBT] * 2}
        assert [type(each) for each in world.mistakes] == [ZeroDivisionError]

    run(world, work)
