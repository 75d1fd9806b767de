"""omq.aio when things end in the wrong order: connections under readers and units, cancellation."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any

import pytest

import omq
import omq.aio
from omq.aio import AsyncConnection, AsyncUnit
from omq.aio.jobs import TOGETHER_MAX
from omq.aio.waiter import Outcome, Waiter
from omq.ipc.client.connection import Client
from omq.ipc.client.unit import Unit
from tests.process.instance import Instance
from tests.process.processes import WAIT_S
from tests.process.test_aio import run


async def turn() -> None:
    """The event loop has gone round once."""
    loop = asyncio.get_running_loop()
    told = loop.create_future()
    loop.call_soon(told.set_result, None)
    await told


def test_a_close_does_not_wait_for_a_unit_that_nobody_ends(omq_instance: Instance) -> None:
    """An exception leaves the connection while another coroutine is inside its unit, which only
    the end of the event loop would cancel: that waits for the connection."""
    omq_instance.start()
    inside = asyncio.Event()

    async def hold(connection: AsyncConnection) -> None:
        async with connection.unit() as unit:
            await unit.put("A", b"never")
            inside.set()
            await asyncio.Event().wait()

    async def work(connection: AsyncConnection) -> None:
        holder = asyncio.create_task(hold(connection))
        await inside.wait()
        await connection.close()
        holder.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holder

    run(omq_instance, work)
    assert omq_instance.drain("A") == []


def test_a_unit_says_that_its_connection_was_closed(omq_instance: Instance) -> None:
    """It was backed out: its commit must not look as if it had happened."""
    omq_instance.start()

    async def work(connection: AsyncConnection) -> None:
        with pytest.raises(omq.ConnectionClosed, match=r"of omq\.aio was closed"):
            async with connection.unit() as unit:
                await unit.put("A", b"never")
                await connection.close()
        with pytest.raises(omq.ConnectionClosed):
            await connection.unit().__aenter__()

    run(omq_instance, work)
    assert omq_instance.drain("A") == []


def test_a_cancelled_handler_of_a_closed_reader_is_cancelled(omq_instance: Instance) -> None:
    """What it held was given back by the close: that is no error of its own."""
    omq_instance.start()

    async def work(connection: AsyncConnection) -> None:
        await connection.put("A", b"1")
        inside = asyncio.Event()

        async def handle() -> None:
            async with await reader._wanted():
                inside.set()
                await asyncio.Event().wait()

        async with connection.reader("A") as reader:
            handler = asyncio.create_task(handle())
            await inside.wait()
        handler.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handler

    run(omq_instance, work)
    (left,) = omq_instance.drain("A")
    assert left.attempts == 0


def test_a_unit_that_is_cancelled_anywhere_leaves_its_line_free(omq_instance: Instance) -> None:
    omq_instance.start()

    async def use(unit: AsyncUnit) -> None:
        async with unit:
            await unit.put("A", b"x")

    async def work(connection: AsyncConnection) -> None:
        for turns in range(60):
            user = asyncio.create_task(use(connection.unit()))
            for _ in range(turns % 20):
                await turn()
            user.cancel()
            await asyncio.wait([user], timeout=WAIT_S)
        await use(connection.unit())

    run(omq_instance, work, connections=1)
    assert omq_instance.drain("A")


def test_a_unit_that_is_cancelled_while_it_begins_leaves_its_line_free(
        omq_instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    omq_instance.start()
    asked, cancelled = threading.Event(), threading.Event()
    begin = Client.unit

    def late(connection: Client) -> Unit:
        asked.set()
        assert cancelled.wait(WAIT_S)
        return begin(connection)

    async def enter(connection: AsyncConnection) -> None:
        async with connection.unit():
            raise AssertionError("it was cancelled")

    async def work(connection: AsyncConnection) -> None:
        monkeypatch.setattr(Client, "unit", late)
        user = asyncio.create_task(enter(connection))
        assert await asyncio.to_thread(asked.wait, WAIT_S)
        user.cancel()
        await asyncio.wait([user])
        assert user.cancelled()
        cancelled.set()
        async with connection.unit() as unit:
            await unit.put("A", b"x")

    run(omq_instance, work, connections=1)
    assert len(omq_instance.drain("A")) == 1


def test_a_cancelled_get_of_a_unit_ends_and_loses_nothing(omq_instance: Instance) -> None:
    """With no message its wait is over; what comes too late is not finished by the commit."""
    omq_instance.start()

    seen = 0

    async def late(connection: AsyncConnection) -> None:
        nonlocal seen
        async with connection.unit() as unit:
            getting = asyncio.create_task(unit.get("A"))
            await turn()
            await connection.put("A", b"late")
            getting.cancel()
            await asyncio.wait([getting])
            seen += not getting.cancelled()
            await unit.put("B", b"committed")

    async def work(connection: AsyncConnection) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), connection.unit() as unit:
                await unit.get("A")
        async with connection.unit() as unit:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await unit.get("A")
            await unit.put("B", b"committed")
        for _ in range(10):
            await late(connection)

    run(omq_instance, work)
    assert [each.body for each in omq_instance.drain("A")] == [b"late"] * (10 - seen)
    assert [each.body for each in omq_instance.drain("B")] == [b"committed"] * 11


def test_puts_wait_while_the_manager_does_not_move(omq_instance: Instance) -> None:
    """Back-pressure: who puts waits, the event loop does not; who is cancelled meanwhile has put
    nothing, unless its request was under way, and the others lose nothing."""
    manager = omq_instance.start()
    omq_instance.ready()
    told: set[str] = set()

    async def work(connection: AsyncConnection) -> None:
        manager.signal(signal.SIGSTOP)
        manager.wait_stopped()
        try:
            puts = [asyncio.create_task(connection.put("A", b"%d" % n)) for n in range(1000)]
            for _ in range(100):
                await turn()
            assert not any(each.done() for each in puts)
            for each in puts[500:]:
                each.cancel()
            ended, _ = await asyncio.wait(puts[500:])
            assert all(each.cancelled() for each in ended)
        finally:
            manager.signal(signal.SIGCONT)
        told.update(await asyncio.gather(*puts[:500]))

    run(omq_instance, work)
    found = omq_instance.drain("A")
    assert told <= {each.message_id for each in found} and len(told) == 500
    assert {b"%d" % n for n in range(500)} <= {each.body for each in found}
    # No more than the connections had under way.
    assert len(found) <= 500 + 3 * TOGETHER_MAX


def test_a_wait_of_a_unit_is_one_request(omq_instance: Instance, monkeypatch: pytest.MonkeyPatch
                                         ) -> None:
    """However long nothing comes; a time that is over ends it, and a wake that was meant for a wait
    before is nobody's."""
    omq_instance.start()
    waits: list[float | None] = []
    waiting, take = threading.Event(), Unit.next

    def seen(unit: Unit, queue: str, n: int = 1, timeout_s: float | None = None, **more: Any
             ) -> list[omq.Message]:
        waits.append(timeout_s)
        waiting.set()
        return take(unit, queue, n, timeout_s, **more)

    async def work(connection: AsyncConnection) -> None:
        monkeypatch.setattr(Unit, "next", seen)
        async with connection.unit() as unit:
            assert await unit.get("A", timeout_s=0.01) is None
            assert waits == [0.01]
            waiting.clear()
            unit._wake()
            getting = asyncio.create_task(unit.get("A"))
            assert await asyncio.to_thread(waiting.wait, WAIT_S)
            await connection.put("A", b"x")
            found = await getting
            assert found is not None and found.body == b"x"
        assert waits == [0.01, None]

    run(omq_instance, work)


def test_readers_that_are_never_entered_leave_nothing(omq_instance: Instance) -> None:
    """Nor can one be entered when its connection has gone."""
    omq_instance.start()

    async def work(connection: AsyncConnection) -> None:
        late, *_ = [connection.reader("A") for _ in range(100)]
        assert connection._readers == []
        async with connection.reader("A") as entered:
            assert connection._readers == [entered]
        async with connection.reader("A") as second:
            assert connection._readers == [second]
        await connection.close()
        with pytest.raises(omq.ConnectionClosed):
            async with late:
                pytest.fail("it was entered")

    run(omq_instance, work)


def test_a_close_ends_the_wait_of_a_unit(omq_instance: Instance) -> None:
    omq_instance.start()

    async def work(connection: AsyncConnection) -> None:
        async with connection.unit() as unit:
            getting = asyncio.create_task(unit.get("A"))
            await turn()
            await connection.close()
            for refused in (getting, unit.commit()):
                with pytest.raises(omq.ConnectionClosed):
                    await refused
            raise KeyError("goes on")

    with pytest.raises(KeyError, match="goes on"):
        run(omq_instance, work)


def test_a_thread_says_nothing_to_an_event_loop_that_is_closed() -> None:
    """It may be closed between a look and the call: nobody would hear what a thread raises."""
    loop = asyncio.new_event_loop()

    async def made() -> Waiter:
        return Waiter()

    waiter = loop.run_until_complete(made())
    loop.close()
    waiter.tell(Outcome(1))
