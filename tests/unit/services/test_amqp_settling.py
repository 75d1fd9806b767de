"""Settlements of a link that takes: those that came together are one piece of work for a turn, in
their order."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from omq.base.errors import LeaseLost
from omq.services.amqp.taker import TakenMessage
from omq.services.amqp.transacted_deliveries import Enrolling
from omq.services.daemon.thread_pool import ThreadPool


class Link(Enrolling):
    def room_again(self) -> None: ...


def test_what_came_together_is_said_by_one_turn_and_in_its_order() -> None:
    turns: list[Callable[[], None]] = []

    def said_in_a_turn(turn: Callable[[], None], *, light: int, wants: bool) -> None:
        assert (light, wants) == (0, False), "something of it may wait, and nothing more is taken"
        turns.append(turn)

    link = Link(cast(Any, None), cast(Any, None))
    link._taker = cast(Any, SimpleNamespace(say=said_in_a_turn))
    said: list[Any] = []

    def lost(message: Any) -> None:
        raise LeaseLost(qpool_id=message)

    for number, say in enumerate((said.append, lost, said.append)):
        link._say(TakenMessage(cast(Any, number), b""), cast(Any, say))
    link._say(TakenMessage(None, b""), cast(Any, said.append))  # of one that is only looked at
    link._carry_out()
    link._carry_out()
    assert len(turns) == 1
    turns[0]()
    assert said == [0, 2], "one that the manager took back ends no other"


def test_a_thread_is_spare_while_nobody_waits_for_one() -> None:
    hands = ThreadPool(1, "turns")
    hands._threads.append(cast(Any, None))
    found = [hands.spare]
    hands._work.append(lambda: None)
    found.append(hands.spare)
    assert found == [True, False]
    hands._work.clear()
    hands._threads.clear()
