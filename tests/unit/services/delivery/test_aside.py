"""What was put off is known by peer and cause, and called back when there is room."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omq.services.delivery.deferred import ASKED_S, WAITS, Aside
from omq.services.delivery.mlist import Cause

A, B = ("smtp", "a:25"), ("lmtp", "b:24")
S = 1_000_000_000


def nobody(_where: object) -> bool:
    return False


def only(name: tuple[str, str]) -> Callable[[tuple[str, str]], bool]:
    return lambda where: where == name


def shown(aside: Aside) -> dict[tuple[tuple[str, str], Cause], list[int]]:
    return {(each.where, each.cause): list(each.due) for each in aside.groups()}


@pytest.fixture
def aside() -> Aside:
    made = Aside(10)
    for number in range(1, 7):
        made.put(number, A, Cause.SHARE, "a:25 has 9 messages to take first", number * S)
    return made


def test_as_many_as_there_is_room_for_in_the_order_in_which_they_came(aside: Aside) -> None:
    assert aside.call(A, in_hand=3, share=4, room=9, now=0.0) == [], "it has more than half"
    assert aside.call(A, in_hand=2, share=4, room=9, now=0.0) == [(1, S), (2, 2 * S)]
    assert aside.call(A, in_hand=0, share=4, room=9, now=0.0) == [(3, 3 * S), (4, 4 * S)]
    assert aside.call(A, in_hand=0, share=4, room=9, now=0.0) == [], "four are on their way"
    assert [aside.came(each) for each in (1, 2, 6)] == [True, True, False]
    assert aside.call(A, in_hand=0, share=4, room=9, now=0.0) == [(5, 5 * S)]
    assert len(aside) == 0


def test_no_more_than_the_window_has_room_for(aside: Aside) -> None:
    assert len(aside.call(A, in_hand=0, share=100, room=2, now=0.0)) == 2
    assert aside.call(A, in_hand=0, share=100, room=2, now=0.0) == []
    assert aside.call(B, in_hand=0, share=100, room=9, now=0.0) == [], "nobody waits for it"


def test_who_was_called_and_does_not_come_is_not_waited_for(aside: Aside) -> None:
    assert len(aside.call(A, in_hand=0, share=2, room=9, now=0.0)) == 2
    aside.look(nobody, nobody, ASKED_S - 0.1, 0)
    assert aside.call(A, in_hand=0, share=2, room=9, now=0.5) == []
    aside.look(nobody, nobody, ASKED_S, 0)
    assert [qpool for qpool, _ in aside.call(A, in_hand=0, share=2, room=9, now=1.0)] == [3, 4]


def test_who_could_not_be_called_waits_on(aside: Aside) -> None:
    called = aside.call(A, in_hand=0, share=2, room=9, now=0.0)
    for qpool, due_ns in called:
        aside.again(qpool, A, due_ns)
    assert sorted(shown(aside)[A, Cause.SHARE]) == [1, 2, 3, 4, 5, 6]
    assert len(aside.call(A, in_hand=0, share=2, room=9, now=0.0)) == 2


def test_a_cause_that_is_gone_becomes_the_wait_for_room() -> None:
    aside = Aside(10)
    aside.put(1, A, Cause.HELD, "an operator holds a:25", S)
    aside.put(2, A, Cause.DOWN, "no answer", S)
    aside.put(3, B, Cause.HELD, "an operator holds lmtp", S)
    aside.put(4, B, Cause.REFUSED, "451 later", S)
    aside.look(only(B), only(A), 0.0, 0)
    assert shown(aside) == {(A, Cause.SHARE): [1], (A, Cause.DOWN): [2], (B, Cause.HELD): [3],
                            (B, Cause.REFUSED): [4]}
    aside.look(nobody, nobody, 0.0, 0)
    assert shown(aside) == {(A, Cause.SHARE): [1, 2], (B, Cause.SHARE): [3],
                            (B, Cause.REFUSED): [4]}
    assert {each.reason for each in aside.groups()} == {WAITS, "451 later"}
    assert aside.waiting() == [A, B]


def test_what_should_have_come_long_ago_is_somebody_elses(aside: Aside) -> None:
    aside.look(nobody, nobody, 0.0, 63 * S)
    assert shown(aside) == {(A, Cause.SHARE): [3, 4, 5, 6]}


def test_a_message_is_known_once_and_no_more_are_than_may_be() -> None:
    aside = Aside(2)
    for number in (1, 2, 3, 2):
        aside.put(number, A, Cause.SHARE, "a", S)
    aside.put(1, B, Cause.REFUSED, "b", S)
    assert shown(aside) == {(A, Cause.SHARE): [2], (B, Cause.REFUSED): [1]}
    assert len(aside) == 2
