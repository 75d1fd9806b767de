"""What takes for links of AMQP, without a thread of its own: what is said at any moment is heard,
and an idle one has none."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.process.amqp_world import needs_proton

needs_proton()

from omq.base.settings import Settings  # noqa: E402
from omq.ipc.client import parking  # noqa: E402
from omq.ipc.client.parking_link import ParkingLink  # noqa: E402
from omq.services.amqp.taker import HERE_BYTES, TakenMessage, Taker  # noqa: E402
from omq.services.daemon.thread_pool import ThreadPool  # noqa: E402
from omq.storage import durable  # noqa: E402
from omq.storage.disk import Disk  # noqa: E402
from omq.storage.payloads import PayloadReader  # noqa: E402
from tests.process.instance import MANAGER, Instance  # noqa: E402
from tests.process.processes import start  # noqa: E402
from tests.waiting import until  # noqa: E402

MANY, WAIT_S = 40, 60


def told(loop: asyncio.AbstractEventLoop, heard: asyncio.Event) -> None:
    loop.call_soon_threadsafe(heard.set)


class Ear:
    """Of a taker: what it has heard, and who waits for that."""

    def __init__(self, news: asyncio.Event) -> None:
        self.given: list[TakenMessage] = []
        self.begun = self.drains = 0
        self.ends: list[Exception | None] = []
        self._news = news

    def began(self) -> None:
        self.begun += 1
        self._news.set()

    def took(self, messages: list[TakenMessage], *, drained: bool) -> None:
        self.given += messages
        self.drains += drained
        self._news.set()

    def ended_by(self, error: Exception | None) -> None:
        self.ends.append(error)
        self._news.set()

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(WAIT_S):
            while not true():
                self._news.clear()
                await self._news.wait()


@pytest.fixture
def world(omq_instance: Instance) -> Iterator[Instance]:
    omq_instance.settings(reconnect_grace_s=60, clients_max=200)
    omq_instance.start()
    omq_instance.ready()
    yield omq_instance


def made(world: Instance, hands: ThreadPool, queue: str = "A", news: asyncio.Event | None = None
         ) -> tuple[Taker, Ear]:
    ear = Ear(news or asyncio.Event())
    return Taker(lambda: world.connect("link"), queue, "", Settings(), ear, hands), ear


async def closed(taker: Taker, ear: Ear) -> None:
    taker.close()
    await ear.until(lambda: ear.ends)
    assert ear.ends == [None]
    taker.join(WAIT_S)


def test_idle_ones_have_no_thread(world: Instance) -> None:
    async def run() -> None:
        hands = ThreadPool(2, "turns")
        before = threading.active_count()
        news = asyncio.Event()  # of all of them
        several = [made(world, hands, news=news) for _ in range(MANY)]
        for taker, ear in several:
            await ear.until(lambda ear=ear: ear.begun)
            taker.want(10, 1 << 20)
        assert hands.threads <= 2 and threading.active_count() <= before + 3  # ipc.client.watcher
        with world.connect() as puts:
            for _ in range(MANY):
                puts.put("A", b"x")
        got: list[TakenMessage] = []
        await several[0][1].until(lambda: sum(len(ear.given) for _, ear in several) == MANY)
        for _, ear in several:
            got += ear.given
        assert len({given.native.qpool_id for given in got if given.native}) == MANY
        for taker, ear in several:
            for given in ear.given:
                assert given.native is not None
                taker.say(given.native.done)
        for taker, ear in several:
            await closed(taker, ear)
        await asyncio.to_thread(hands.close, WAIT_S)

    asyncio.run(run())
    assert world.drain("A") == []


def test_what_is_said_while_it_waits(world: Instance) -> None:
    """At each moment of a turn: it is said again and again, without a look at how far it came."""
    async def run() -> None:
        hands = ThreadPool(1, "turns")
        taker, ear = made(world, hands)
        taker.want(1, 1 << 20)
        for _ in range(200):
            heard = asyncio.Event()
            loop = asyncio.get_running_loop()
            taker.say(partial(told, loop, heard))
            async with asyncio.timeout(WAIT_S):
                await heard.wait()
        taker.want(1, 1 << 20, draining=True)
        await ear.until(lambda: ear.drains)
        taker.want(0, 0)
        taker.want(5, 1 << 20)
        assert await taker.call(lambda native, reader: reader.queue) == "A"
        await closed(taker, ear)
        with pytest.raises(Exception, match="closed"):
            await taker.call(lambda native, reader: None)
        await asyncio.to_thread(hands.close, WAIT_S)

    asyncio.run(run())


class Cached(Disk):
    """All of it is in memory."""

    def pread_now(self, fd: int, length: int, offset: int) -> bytes | None:
        return self.pread(fd, length, offset)


class Cold(Disk):
    """None of it is."""

    def pread_now(self, fd: int, length: int, offset: int) -> bytes | None:
        return None


class Counting(ThreadPool):
    """`given`: pieces of work so far."""

    given = 0

    def give(self, work: Callable[[], None]) -> None:
        self.given += 1
        super().give(work)


@pytest.fixture
def on(request: pytest.FixtureRequest) -> Iterator[None]:
    before = durable.use(request.param())
    yield
    durable.use(before)


async def at_rest(taker: Taker) -> None:
    """No thread has a turn."""
    await asyncio.to_thread(until, lambda: not taker._running)


async def next_one(taker: Taker, ear: Ear) -> Any:
    """As a client without read-ahead: the one before is done, and one more wanted."""
    count = len(ear.given)
    if count:
        native = ear.given[-1].native
        assert native is not None
        taker.say(native.done, light=1, wants=True)
    taker.want(count + 1, 1 << 20)
    await ear.until(lambda: len(ear.given) == count + 1)
    await at_rest(taker)
    return ear.given[-1]


@pytest.mark.parametrize("on", [Cached], indirect=True)
@pytest.mark.usefixtures("on")
def test_one_at_a_time_takes_no_thread(world: Instance) -> None:
    """Settle, ask, hand on: in the event loop, once the file of the bodies is open. What takes
    longer than others should wait, or has to ask, is a thread's, and the next one is not."""
    others: list[dict[str, Any]] = [
        {"body": bytes(HERE_BYTES + 1)}, {"body": b"asks", "reply_to": "B"},
        {"body": bytes(200_000)}]

    async def run() -> None:
        hands = Counting(1, "turns")
        taker, ear = made(world, hands)
        await ear.until(lambda: ear.begun)
        await at_rest(taker)
        await next_one(taker, ear)
        before = hands.given
        for _ in range(20):
            await next_one(taker, ear)
        assert hands.given == before
        for other in others:
            before = hands.given
            given = await next_one(taker, ear)
            assert given.native.body == other["body"] and hands.given > before
            before = hands.given
            await next_one(taker, ear)
            assert hands.given == before
        last = ear.given[-1].native
        assert last is not None
        taker.say(last.done, light=1)
        await closed(taker, ear)
        await asyncio.to_thread(hands.close, WAIT_S)

    with world.connect() as puts:
        for number in range(21):
            puts.put("A", b"%d" % number)
        for other in others:
            puts.put("A", **other)
            puts.put("A", b"small")
    asyncio.run(run())
    assert world.drain("A") == []


@pytest.mark.parametrize("on", [Cold], indirect=True)
@pytest.mark.usefixtures("on")
def test_the_event_loop_reads_no_disk(world: Instance) -> None:
    async def run() -> None:
        hands = Counting(1, "turns")
        taker, ear = made(world, hands)
        await ear.until(lambda: ear.begun)
        await at_rest(taker)
        for number in range(4):
            before = hands.given
            assert (await next_one(taker, ear)).native.body == b"%d" % number
            assert hands.given > before
        await closed(taker, ear)
        await asyncio.to_thread(hands.close, WAIT_S)

    with world.connect() as puts:
        for number in range(4):
            puts.put("A", b"%d" % number)
    asyncio.run(run())
    assert [each.body for each in world.drain("A")] == [b"3"]


@pytest.mark.parametrize("on", [Cached], indirect=True)
@pytest.mark.usefixtures("on")
@pytest.mark.parametrize("what", ["the queue is full", "it is damaged"])
def test_the_event_loop_does_not_wait(world: Instance, monkeypatch: pytest.MonkeyPatch, what: str
                                      ) -> None:
    """A thread meets it, as it did before."""
    home = threading.get_ident()

    def here() -> bool:
        return threading.get_ident() == home

    def slept(seconds: float) -> None:
        assert not here(), "the event loop waits"
        sleep(seconds)

    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", slept)

    async def run() -> None:
        hands = Counting(1, "turns")
        taker, ear = made(world, hands)
        await ear.until(lambda: ear.begun)
        await at_rest(taker)
        for _ in range(3):
            await next_one(taker, ear)
        before = hands.given
        with monkeypatch.context() as patch:
            if what == "the queue is full":
                patch.setattr(ParkingLink, "_sent_now", lambda link, head: False)
            else:
                patch.setattr(PayloadReader, "read_now",
                              lambda files, word, offset, length: bytes(length))
            native = (await next_one(taker, ear)).native
            assert native.body == b"3"
        assert hands.given > before
        native.done()
        await closed(taker, ear)
        await asyncio.to_thread(hands.close, WAIT_S)

    with world.connect() as puts:
        for number in range(4):
            puts.put("A", b"%d" % number)
    asyncio.run(run())
    assert world.drain("A") == []


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_the_manager_comes_again(world: Instance, tmp_path: Path, ends: str) -> None:
    """Each waits again, by the threads that all share."""
    begun = tmp_path / "begun"

    async def run() -> None:
        hands = ThreadPool(2, "turns")
        several = [made(world, hands, queue) for queue in "ABC"]
        for taker, ear in several:
            if taker.queue == "A":  # asked for by a turn in the event loop
                await ear.until(lambda ear=ear: ear.begun)
                await at_rest(taker)
            taker.want(10 if taker.queue == "C" else 1, 1 << 20)
            await ear.until(lambda ear=ear: ear.begun)
        begun.touch()
        for taker, ear in several:
            await ear.until(lambda ear=ear: ear.given)
            (given,) = ear.given
            assert given.native is not None
            assert given.native.body == taker.queue.encode()
            taker.say(given.native.done)
            await closed(taker, ear)

    def child() -> int:
        asyncio.run(run())
        return 0

    links = start("links", child, output=world.output)
    until(lambda: begun.exists() or not links.running, world.said)
    getattr(world, ends)(MANAGER)
    world.start()
    world.ready()
    with world.connect() as puts:
        for queue in "ABC":
            puts.put(queue, queue.encode())
    assert links.wait() == 0, world.output.read_text()[-2000:]
    for queue in "ABC":
        assert world.drain(queue) == []


def test_a_manager_without_bells(world: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread waits, as it did before there were any."""
    monkeypatch.setattr(parking, "wanted", lambda connection: False)

    async def run() -> None:
        hands = ThreadPool(1, "turns")
        several = [made(world, hands, queue) for queue in "AB"]
        for taker, _ in several:
            taker.want(10, 1 << 20)
        with world.connect() as puts:
            for queue in "AB":
                puts.put(queue, b"x")
        for taker, ear in several:
            await ear.until(lambda ear=ear: ear.given)
            assert ear.given[0].native is not None
            taker.say(ear.given[0].native.done)
            await closed(taker, ear)
        await asyncio.to_thread(hands.close, WAIT_S)

    asyncio.run(run())
    assert world.drain("A") == world.drain("B") == []
