"""Turns of the console's users: one who asks for much waits behind himself, not before others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from omq.base.errors import ConsoleBusy
from omq.cli.web.user_turns import UserTurns


def test_who_asks_for_much_leaves_room_for_others() -> None:
    async def run() -> tuple[int, int]:
        turns, working, most, ends = UserTurns(2, 7), Counter[str](), 0, asyncio.Event()
        begun = asyncio.Queue[str]()

        async def work(user: str) -> None:
            nonlocal most
            async with turns.turn(user):
                working[user] += 1
                most = max(most, working["much"])
                begun.put_nowait(user)
                await ends.wait()
                working[user] -= 1

        async with asyncio.TaskGroup() as group:
            for _ in range(9):
                group.create_task(work("much"))
            group.create_task(work("other"))
            group.create_task(work(""))
            assert sorted([await begun.get() for _ in range(4)]) == ["", "much", "much", "other"]
            with pytest.raises(ConsoleBusy, match="7 requests of yours wait"):
                async with turns.turn("much"):
                    pass
            ends.set()
        return most, len(turns)

    assert asyncio.run(asyncio.wait_for(run(), 60)) == (2, 0)


def test_a_turn_that_failed_or_was_cancelled_is_given_back() -> None:
    async def run() -> None:
        turns, asks = UserTurns(1, 1), asyncio.Event()

        async def fails() -> None:
            async with turns.turn("me"):
                raise ValueError

        async def waits() -> None:
            asks.set()
            async with turns.turn("me"):
                pass

        with pytest.raises(ValueError):
            await fails()
        async with turns.turn("me"):
            waiting = asyncio.create_task(waits())
            await asks.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await asyncio.wait_for(waits(), 60)
        assert len(turns) == 0

    asyncio.run(asyncio.wait_for(run(), 60))
