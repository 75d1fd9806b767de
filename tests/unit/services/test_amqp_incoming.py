"""A link of AMQP 1.0 that puts, with what it asks for played by the test: what is under way when it
ends, is not lost from sight."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omq.amqp.delivery import Incoming as Delivery
from omq.amqp.delivery import Run
from omq.amqp.terminus import Terminus
from omq.base.errors import QueueFull
from omq.fast.amqp_message import data_section, head
from omq.format.amqp_performatives import REJECTED, RELEASED, SOURCE, TARGET
from omq.ipc.wire.alike import Alike
from omq.services.amqp.incoming import Incoming
from omq.services.amqp.link_memory import LinkMemory
from omq.services.amqp.memory import Memory
from omq.services.amqp.putter import Fate, PutResult
from tests.unit.services.amqp_fakes import Names
from tests.waiting import WAIT_S, pause

PUT, LATER = PutResult(Fate.PUT), PutResult(Fate.LATER, QueueFull(queue="A", limit=1))
MEMORY = 1 << 20


def message(body: bytes) -> bytes:
    durable = first = True
    return bytes(head(durable, 4, 0, first, 0, {}, [], {}) + data_section(body))


class Link:
    """In the place of omq.amqp.links.Receiver; it is its session of AMQP, too."""

    name, delivery_count, closed = "puts", 0, False
    remote_source, remote_target = Terminus(SOURCE, []), Terminus(TARGET, ["A"])

    def __init__(self) -> None:
        self.session, self.unread = self, deque[Delivery]()
        self.source = self.target = None
        self.max_message_size = self.credit = 0
        self.said: list[int] = []
        self.outcomes: list[tuple[int, int]] = []  # of those that were not accepted

    def open(self) -> None:
        """It is answered."""

    def flow(self, more: int) -> None:
        self.credit += more

    def settled_here(self, delivery: Delivery, *, receives: bool, state: bytes) -> None:
        assert receives
        self.outcomes.append((delivery.id, state[2]))

    def settled_run(self, deliveries: list[Delivery], state: bytes) -> None:
        assert deliveries and state
        self.said.extend(each.id for each in deliveries)


class World:
    """Session and host of one link, whose queue takes messages when the test says so. `quick`: the
    batches of the event loop, each with who is told of it; `slow`: those of threads, whose fates
    are `fates`."""

    def __init__(self) -> None:
        self.memory = Memory(MEMORY, MEMORY)
        self.quick: list[tuple[list[bytes], Callable[[list[PutResult]], None]]] = []
        self.given: list[Any] = []
        self.slow: list[list[bytes]] = []
        self.fates: list[PutResult] = []
        self.refused: list[str] = []
        self.mistakes: list[Exception] = []
        settings = SimpleNamespace(
            amqp_message_bytes_max=1 << 16, amqp_batch_messages_max=10, amqp_credit=10,
            amqp_retry_ms=0)
        host = SimpleNamespace(
            policy=SimpleNamespace(settings=settings), threshold=1 << 16,
            context=SimpleNamespace(paths=SimpleNamespace(temp=Path())),
            room=lambda user: LinkMemory(self.memory, Memory(1, 1), user),
            quick=SimpleNamespace(begin=self._begin), company=SimpleNamespace(put=self._put),
            ask=self._ask, allows=lambda *asked: True, full=lambda *told: None,
            failed=lambda session, error: self.mistakes.append(error),
            rated=SimpleNamespace(event=lambda *event, **told: self.refused.append(told["reason"])))
        self.session: Any = SimpleNamespace(
            host=host, user=SimpleNamespace(name="nobody"), gone=False, peer="here", to_put=set(),
            kick=lambda: None)
        self.link: Any = Link()
        self.came = 0

    async def _ask(self, session: Any, work: Callable[[Any], Any]) -> Any:
        return work(Names())

    def _begin(self, queues: tuple[str, ...], messages: Any,
               heard: Callable[[list[PutResult]], None]) -> bool:
        self.quick.append(([each.body for each in messages], heard))
        self.given.append(messages)
        return True

    async def _put(self, queues: tuple[str, ...], batch: Any) -> list[PutResult]:
        await asyncio.to_thread(pause)
        self.slow.append([each.body for each, _ in batch])
        told = [self.fates.pop(0) for _ in batch[: len(self.fates)]]
        later = next((at for at, each in enumerate(told) if each.fate is Fate.LATER), len(told))
        return told[: later + 1]

    def comes(self, served: Incoming, *bodies: bytes, settled: bool = False) -> None:
        """In one frame each, all at once."""
        deliveries = []
        for _ in bodies:
            self.came += 1
            deliveries.append(Delivery(self.link, self.came, b"t"))
            deliveries[-1].partial, deliveries[-1].settled = False, settled
        served.came(Run(deliveries, [*map(message, bodies)], settled))
        served.put()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.to_thread(pause)


def run(work: Callable[[World, Incoming], Awaitable[None]]) -> None:
    """With a link that is open; behind it its task is through, and nothing is held."""
    async def whole() -> None:
        world = World()
        served = Incoming(world.session, world.link)
        await until(lambda: world.link.credit)
        await work(world, served)
        async with asyncio.timeout(WAIT_S):
            with suppress(asyncio.CancelledError):  # where nothing waited when the link ended
                await served._task
        assert world.memory.free("nobody") == MEMORY and not served.busy and not world.mistakes

    asyncio.run(whole())


def test_what_is_put_without_the_task() -> None:
    async def work(world: World, served: Incoming) -> None:
        world.comes(served, b"1")
        world.comes(served, b"2", b"3")
        ((first, heard),) = world.quick
        assert first == [b"1"], "one batch at a time"
        heard([PUT])
        assert world.quick[1][0] == [b"2", b"3"] and world.link.said == [1]
        world.quick[1][1]([PUT] * 2)
        assert world.link.said == [1, 2, 3] and not world.slow
        served.ended()

    run(work)


def test_each_of_a_run_has_its_own_outcome() -> None:
    """What says the same goes as one pattern with bodies, what cannot be read is rejected, and what
    there is no room for released; credit comes again for what did not wait."""
    async def work(world: World, served: Incoming) -> None:
        world.comes(served, b"first of its kind")
        (_, heard), = world.quick
        whole = [b"1", b"2", b"3"]
        deliveries = [Delivery(world.link, number, b"t") for number in range(10, 15)]
        payloads = [*map(message, whole[:2]), b"\x00\x53\x77", message(whole[2])]
        world.memory.take("nobody", MEMORY - 3 * 2048 - 3 * 100)
        served.came(Run(deliveries, [*payloads, message(bytes(3000))], settled=False))
        world.memory.give("nobody", MEMORY - 3 * 2048 - 3 * 100)
        assert world.link.outcomes == [(12, REJECTED), (14, RELEASED)]
        assert len(world.refused) == 2
        heard([PUT])
        assert world.quick[1][0] == whole
        world.quick[1][1]([PUT, PutResult(Fate.REFUSED, QueueFull(queue="A", limit=1)), PUT])
        assert world.link.said == [1, 10, 13], "neighbours of it are accepted all the same"
        assert world.link.outcomes[2:] == [(11, REJECTED)]
        assert world.link.credit == 10 + 6, "as many again as came"
        assert isinstance(world.given[1], Alike) and not isinstance(world.given[0], Alike)
        served.ended()

    run(work)


@pytest.mark.parametrize("takes", [True, False])
def test_a_link_that_ends_while_its_batch_is_under_way(takes: bool) -> None:  # noqa: FBT001
    """What was sent settled is put all the same, by its task; what its queue does not take then
    either is given up, and an event says so. Of what waited to be accepted nothing is kept."""
    async def work(world: World, served: Incoming) -> None:
        world.comes(served, b"under way")
        world.comes(served, b"not begun")
        world.comes(served, b"settled", settled=True)
        served.ended()
        await until(lambda: not served._stirred.is_set())  # the task has looked, and waits
        world.fates = [PUT, PUT] if takes else [LATER]
        ((_, heard),) = world.quick
        heard([LATER])
        await until(lambda: not served.busy)
        assert world.slow == [[b"under way", b"settled"]] and not world.link.said
        assert len(world.refused) == (0 if takes else 1)
        assert takes or world.refused[0].startswith("2: their sender has gone")

    run(work)


def test_a_link_that_ends_while_its_batch_is_put() -> None:
    """Nobody is told; what was sent settled goes in the next one, as before."""
    async def work(world: World, served: Incoming) -> None:
        world.comes(served, b"under way")
        world.comes(served, b"settled", settled=True)
        served.ended()
        world.quick[0][1]([PUT])
        assert world.quick[1][0] == [b"settled"]
        world.quick[1][1]([PUT])
        assert not world.slow and not world.link.said

    run(work)


def test_a_queue_that_takes_nothing_now_is_asked_again() -> None:
    async def work(world: World, served: Incoming) -> None:
        world.comes(served, b"1", b"2")
        world.fates = [LATER]
        world.quick[0][1]([PUT, LATER])
        assert world.link.said == [1]
        await until(lambda: world.slow)
        assert not world.fates and served.busy
        world.comes(served, b"3")
        assert len(world.quick) == 1, "the task has the link until all of it is put"
        world.fates = [PUT, PUT]
        await until(lambda: world.link.said == [1, 2, 3])
        assert world.slow[0] == [b"2"] and len(world.quick) == 1
        world.comes(served, b"4")
        assert world.quick[1][0] == [b"4"], "and then the event loop again"
        world.quick[1][1]([PUT])
        served.ended()

    run(work)


@pytest.mark.parametrize(("size", "most"), [(100, 500), (8000, 408), (50_000, 100)])
def test_more_than_a_hundred_may_be_under_way_only_of_small_ones(size: int, most: int) -> None:
    """And no more, until it is known how large they are."""
    async def work() -> None:
        world = World()
        world.memory = Memory(1 << 30, 1 << 30)
        world.session.host.policy.settings.amqp_credit = 500
        served = Incoming(world.session, world.link)
        await until(lambda: world.link.credit)
        assert world.link.credit == 100
        for came in range(1, 11):
            world.comes(served, bytes(size))
            (_, heard) = world.quick.pop()
            heard([PUT])
            assert came < 5 or world.link.credit - came <= most
        assert most // 2 < world.link.credit - 10 <= most
        while world.came < world.link.credit:  # large ones come instead, as many as may
            world.comes(served, bytes(50_000))
            (_, heard) = world.quick.pop()
            heard([PUT])
            assert world.link.credit - world.came <= most
            if world.link.credit - world.came <= 100 < world.came:
                break
        assert 0 < world.link.credit - world.came <= 100
        served.ended()
        with suppress(asyncio.CancelledError):
            await served._task

    asyncio.run(work())
