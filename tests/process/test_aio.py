"""omq.aio on a real instance: many coroutines, one connection; cancellation, deaths, errors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

import omq
import omq.aio
from omq.aio import AsyncConnection, AsyncMessage
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S

Work = Callable[[AsyncConnection], Awaitable[None]]


def run(instance: Instance, work: Work, *, connections: int = 3) -> None:
    """The work with a connection; no thread of it is left then."""
    async def whole() -> None:
        async with asyncio.timeout(WAIT_S), omq.aio.connect(
                instance.root, name="aio", connections=connections) as connection:
            await work(connection)

    before = threading.active_count()
    asyncio.run(whole())
    left = [each.name for each in threading.enumerate() if each.name.startswith("omq ")]
    assert not left and threading.active_count() <= before + 1, threading.enumerate()


def test_many_coroutines_put_at_once(omq_instance: Instance) -> None:
    """Each gets its own id; those that wait together share requests."""
    omq_instance.start()
    ids: dict[str, bytes] = {}

    async def work(connection: AsyncConnection) -> None:
        async def put(number: int) -> None:
            body = b"%d" % number
            ids[await connection.put("A", body)] = body

        await asyncio.gather(*(put(number) for number in range(500)))

    run(omq_instance, work)
    assert len(ids) == 500
    assert {each.message_id: each.body for each in omq_instance.drain("A")} == ids


ON_UVLOOP = """
import asyncio, sys
import omq.aio
import uvloop

async def main():
    async with omq.aio.connect(sys.argv[1]) as connection:
        await asyncio.gather(*(connection.put("A", b"%d" % number) for number in range(20)))
        async with connection.reader("A") as reader:
            for _ in range(20):
                await (await reader.get()).done()

uvloop.run(main())
"""


def test_it_runs_on_uvloop(omq_instance: Instance) -> None:
    """In a process of its own: uvloop keeps pipes."""
    omq_instance.start()
    done = subprocess.run([sys.executable, "-c", ON_UVLOOP, str(omq_instance.root)], text=True,
                          capture_output=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert omq_instance.drain("A") == []


def test_a_refusal_of_one_is_not_the_others(omq_instance: Instance) -> None:
    omq_instance.start()

    async def work(connection: AsyncConnection) -> None:
        said = await asyncio.gather(
            connection.put("A", b"1"), connection.put("NOWHERE", b"2"), connection.put("A", b"3"),
            connection.put("A", b"4", priority=77),
            connection.put("A", b"5", properties={"a": "b"}),
            return_exceptions=True)
        assert [type(each) for each in said] == [str, omq.UnknownQueue, str, omq.BadPriority, str]

    run(omq_instance, work)
    assert sorted(each.body for each in omq_instance.drain("A")) == [b"1", b"3", b"5"]


def test_what_is_refused_in_the_middle_is_put_once(omq_instance: Instance) -> None:
    """Small channels: puts that wait together take several requests, and the queue is full before
    the last. Who was told an id has one message, who was refused none."""
    omq_instance.settings(container_threshold_bytes=4096, channel_bytes=73728)
    omq_instance.start()
    with omq_instance.connect() as native:
        native.queues.define("X", max_depth=30)
    bodies = [b"%04d" % number + bytes(4000) for number in range(40)]
    said: list[object] = []

    async def work(connection: AsyncConnection) -> None:
        said.extend(await asyncio.gather(*(connection.put("X", body) for body in bodies),
                                         return_exceptions=True))

    run(omq_instance, work, connections=1)
    told = {each for each in said if isinstance(each, str)}
    assert len(told) == 30 and sum(isinstance(each, omq.QueueFull) for each in said) == 10
    found = omq_instance.drain("X")
    assert {each.message_id for each in found} == told and len(found) == 30
    assert sorted(each.body for each in found) == sorted(
        body for body, each in zip(bodies, said, strict=True) if isinstance(each, str))


def test_readers_of_many_coroutines(omq_instance: Instance) -> None:
    """Each message comes to one coroutine; how its block ends is how it ends."""
    omq_instance.start()
    with omq_instance.connect() as native:
        native.put_many("A", [b"%d" % number for number in range(60)])
    seen: list[bytes] = []

    async def work(connection: AsyncConnection) -> None:
        async with connection.reader("A", batch=10) as reader:
            async def take() -> None:
                async for message in reader:
                    async with message:
                        if message.body == b"7":
                            await message.move("B")
                    seen.append(message.body)
                    if len(seen) == 60:
                        await reader.close()

            await asyncio.gather(*(take() for _ in range(8)))

    run(omq_instance, work)
    assert sorted(seen, key=int) == [b"%d" % number for number in range(60)]
    assert omq_instance.drain("A") == []
    assert [each.body for each in omq_instance.drain("B")] == [b"7"]


def test_an_exception_fails_and_a_cancellation_gives_back(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as native:
        native.put_many("A", [b"fails", b"is given back"])
    rows: list[tuple[bytes, int]] = []

    async def work(connection: AsyncConnection) -> None:
        begun = asyncio.Event()

        async def take() -> None:
            async with connection.reader("A") as reader:
                first = await reader.get()
                assert first is not None
                with pytest.raises(KeyError):
                    async with first:
                        raise KeyError(first.body)
                second = await reader.get()
                assert second is not None
                async with second:
                    begun.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(take())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(omq_instance, work)
    with omq_instance.connect() as native:
        rows += [(row.body, row.attempts) for row in native.browse("A")]
    assert sorted(rows) == [(b"fails", 1), (b"is given back", 0)]


def test_a_cancelled_wait_loses_no_message(omq_instance: Instance) -> None:
    """Whatever overtakes what: the message goes to the next coroutine, or back."""
    omq_instance.start()

    async def work(connection: AsyncConnection) -> None:
        got: list[AsyncMessage] = []
        async with connection.reader("A") as reader:
            for number in range(30):
                task = asyncio.create_task(reader.get())
                if number % 3 == 0:
                    begun = asyncio.Event()
                    asyncio.get_running_loop().call_soon(begun.set)
                    await begun.wait()
                await connection.put("A", b"%d" % number)
                task.cancel()
                try:
                    message = await task
                except asyncio.CancelledError:
                    message = await reader.get()
                assert message is not None
                got.append(message)
                await message.done()
            assert await reader.get(timeout_s=0) is None
        assert [each.body for each in got] == [b"%d" % number for number in range(30)]
        assert {each.attempts for each in got} == {0}

    run(omq_instance, work)
    assert omq_instance.drain("A") == []


def test_a_unit_commits_or_backs_out(omq_instance: Instance) -> None:
    omq_instance.start()

    async def work(connection: AsyncConnection) -> None:
        await connection.put("A", b"order")
        async with connection.unit() as unit:
            order = await unit.get("A", timeout_s=WAIT_S)
            assert order is not None and order.body == b"order"
            await unit.put(["B", "C"], b"billed", priority=9)
            with pytest.raises(omq.MessageInUnit):
                await order.done()
        assert len(unit.ids) == 1
        with pytest.raises(KeyError):
            async with connection.unit() as second:
                await second.put("A", b"never")
                raise KeyError
        begun = asyncio.Event()

        async def cancelled() -> None:
            async with connection.unit() as third:
                assert await third.get("B", timeout_s=WAIT_S) is not None
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(cancelled())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(omq.UnitEnded):
            await unit.put("A", b"late")

    run(omq_instance, work)
    assert [each.body for each in omq_instance.drain("A")] == []
    with omq_instance.connect() as native:
        assert [(row.body, row.attempts) for row in native.browse("B")] == [(b"billed", 1)]
        assert [row.body for row in native.browse("C")] == [b"billed"]


def test_more_units_than_native_connections_take_turns(omq_instance: Instance) -> None:
    omq_instance.start()

    async def work(connection: AsyncConnection) -> None:
        async def one(number: int) -> None:
            async with connection.unit() as unit:
                await unit.put("A", b"%d" % number)
                await connection.put("B", b"beside")  # no line of a unit is wanted for it

        await asyncio.gather(*(one(number) for number in range(12)))

    run(omq_instance, work, connections=1)
    assert len(omq_instance.drain("A")) == len(omq_instance.drain("B")) == 12


def test_requests_and_replies(omq_instance: Instance) -> None:
    omq_instance.start()

    async def work(connection: AsyncConnection) -> None:
        async def serve() -> None:
            async with connection.reader("A") as reader:
                for _ in range(9):
                    request = await reader.get()
                    assert request is not None and request.reply_to == "B"
                    assert await request.reply(b"re: " + request.body)

        server = asyncio.create_task(serve())
        replies = await asyncio.gather(*(
            connection.request("A", b"%d" % number, WAIT_S, reply_to="B") for number in range(9)))
        assert [each.body for each in replies] == [b"re: %d" % number for number in range(9)]
        await server

    run(omq_instance, work)


OVER_A_DEATH = """
import asyncio, sys
import omq.aio

async def main():
    acknowledged, got = set(), []

    async def put(connection, number):
        body = b"%d" % number
        await connection.put("A", body)
        acknowledged.add(body)

    async def read(connection):
        async with connection.reader("A", batch=5) as reader:
            async for message in reader:
                async with message:
                    got.append(message.body)
                if len(set(got)) == 200:
                    return

    async with omq.aio.connect(sys.argv[1]) as connection:
        reading = asyncio.create_task(read(connection))
        await asyncio.gather(*(put(connection, number) for number in range(100)))
        putting = asyncio.gather(*(put(connection, number) for number in range(100, 200)))
        print("half", flush=True)
        await putting
        await reading
    assert acknowledged == set(got) and len(acknowledged) == 200

asyncio.run(main())
"""


def test_the_manager_dies_under_it(omq_instance: Instance) -> None:
    """Puts and reads go on over kill -9 and a restart; nothing is lost."""
    omq_instance.start()
    omq_instance.ready()
    with subprocess.Popen([sys.executable, "-c", OVER_A_DEATH, str(omq_instance.root)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "half\n"
        omq_instance.kill(MANAGER)
        omq_instance.start()
        _, said = program.communicate(timeout=WAIT_S)
    assert program.returncode == 0, said
    assert omq_instance.drain("A") == []


def test_wrong_uses(omq_instance: Instance) -> None:
    omq_instance.start()

    async def nowhere() -> None:
        with pytest.raises(omq.SpoolMissing):
            await omq.aio.connect(omq_instance.root / "nowhere")
        with pytest.raises(omq.BadArgument, match="connections"):
            omq.aio.connect(omq_instance.root, connections=0)

    asyncio.run(nowhere())

    async def work(connection: AsyncConnection) -> None:
        with pytest.raises(omq.BadArgument):
            await connection.put("A", "text")  # type: ignore[arg-type]
        with pytest.raises(omq.UnknownQueue):
            async with connection.reader("NOWHERE"):
                pytest.fail("it was entered")
        async with connection.reader("A") as reader:
            assert await reader.get(timeout_s=0) is None
            await connection.put("A", b"1")
            message = await reader.get()
            assert message is not None
            await message.done()
            with pytest.raises(omq.LeaseLost):
                await message.fail("a second time")
        with pytest.raises(omq.ReaderClosed):
            await message.touch()
        with pytest.raises(omq.ReaderClosed):
            await reader.get()
        await connection.close()
        with pytest.raises(omq.ConnectionClosed):
            await connection.put("A", b"late")

    run(omq_instance, work)
