"""What the REST interface takes it gives back: answers that nobody waits for, budgets of a desk
that fails half-way, and what is remembered of settlements."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the package aiohttp, of the extra web")

from omq.aio.waiter import Waiter
from omq.base.errors import BadRequest, ManagerUnavailable
from omq.cli.web import queue_desk
from omq.cli.web.budget import Budget
from omq.cli.web.delivered_message import Taken
from omq.cli.web.queue_desk import Desk, Poll
from omq.cli.web.replies import _Answers
from omq.cli.web.settlements import Order, Settled


class Finishes:
    """A desk, as far as answers need one."""

    def __init__(self) -> None:
        self.finished: list[Taken] = []

    def finish(self, taken: list[Taken]) -> None:
        self.finished += taken


def answer(asked: str) -> Taken:
    made: Any = None
    return Taken(asked, "user", made, {"correlation": asked, "body": "x"}, 0, "")


def test_an_answer_is_for_who_waits_and_else_finished() -> None:
    async def life() -> None:
        desk: Any = Finishes()
        answers = _Answers(desk)
        unasked, early, late = answer("unasked"), answer("early"), answer("late")
        answers._came(unasked)
        assert desk.finished == [unasked]
        with answers.putting():
            answers._came(early)
            answers._came(late)
            waiter = Waiter(unwanted=answers.unwanted)
            answers.wait("early", waiter)
            assert await waiter.result() is early
        assert desk.finished == [unasked, late], "nobody can want it any more"
        first, second = Waiter(), Waiter()
        answers.wait("twice", first)
        answers.wait("twice", second)
        with pytest.raises(BadRequest, match="asked again"):
            await first.result()
        answers.leave("twice", first)
        answers._came(answer("twice"))
        assert (await second.result()).name == "twice" and not len(answers)
        gone = Waiter(unwanted=answers.unwanted)
        answers.wait("gone", gone)
        waits = asyncio.ensure_future(gone.result())
        await asyncio.wait([waits], timeout=0)  # it waits now
        answers._came(taken := answer("gone"))
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert desk.finished[-1] is taken

    asyncio.run(life())


def test_a_desk_that_fails_half_way_tells_all_and_gives_their_memory_back(
        monkeypatch: pytest.MonkeyPatch) -> None:
    async def life() -> None:
        budget = Budget(1000, 1000)

        def take(message: Any, queue: str, user: str, of: Budget) -> Taken:
            if message == "bad":
                raise ManagerUnavailable(reason="killed", spool="x")
            assert of.take(user, 100)
            return Taken(message, user, message, {}, 100, "")

        monkeypatch.setattr(queue_desk, "take", take)
        monkeypatch.setattr(Desk, "_serve", lambda _self: None)
        nothing: Any = None
        desk = Desk(nothing, nothing, budget)
        polls = [Poll("user", 1, now=False, waiter=Waiter()) for _ in range(2)]
        desk._polls.extend(polls)
        found: Any = deque(["good", "bad"])
        with pytest.raises(ManagerUnavailable):
            desk._hand_out(found, now=False)
        for poll in polls:
            with pytest.raises(ManagerUnavailable):
                await poll.waiter.result()
        assert len(budget) == 0

    asyncio.run(life())


def test_what_was_settled_is_remembered_within_bounds() -> None:
    def done(name: str, mark: int = 1) -> Order:
        return Order(name, lambda _message: None, mark=mark)

    known = Settled(2, 60.0)
    for name in ("a", "b", "c"):
        known.note("alice", done(name))
    assert [known.knows("alice", done(name)) for name in "abc"] == [False, True, True]
    assert not known.knows("bob", done("b")) and not known.knows("alice", done("b", 2))
    known.sweep(0.0)
    assert len(known) == 2
    known.sweep(float("inf"))
    assert len(known) == 0
