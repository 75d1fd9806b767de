"""What a user causes as often as he likes fills SYSTEM.EVENTS not."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omq.base.errors import NoAuthority
from omq.base.settings import ALL_EVENTS, Settings
from omq.services.manager import event_messages
from omq.services.manager.event_messages import QUEUE, EventMessages

SECOND = 1_000_000_000


class Rig:
    """Event messages over an engine that only knows the time and the queue's name."""

    def __init__(self) -> None:
        rules = SimpleNamespace(name="A", priority=4, persistent=True)
        self.put: list[dict[str, Any]] = []
        self.dropped = 0
        self.engine = cast(Any, SimpleNamespace(
            mono_ns=SECOND, rules={3: rules}, put=self._put,
            queues=SimpleNamespace(numbers={QUEUE: 3}, number=lambda _name: 3),
            books=SimpleNamespace(events_dropped=self._count)))
        self.events = EventMessages(self.engine, replace(
            Settings(), event_messages="authority service_aborted", event_burst=3,
            event_period_s=60))

    def _put(self, _party: object, new: Any, _sequence: int) -> None:
        body = bytes(new.payload)
        self.put.append(json.loads(body[body.index(b"{"):]))

    def _count(self, count: int) -> None:
        self.dropped += count

    def turn(self) -> list[int]:
        """The users of what is put."""
        self.put.clear()
        self.events._put_all()
        return [each["uid"] for each in self.put]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def denied(uid: int) -> NoAuthority:
    return NoAuthority(uid=uid, action="put", queue="A")


def test_a_user_without_rights_is_told_of_so_often(rig: Rig) -> None:
    for _ in range(100):
        rig.events.denied(1000, denied(1000))
    rig.events.denied(1001, denied(1001))
    assert rig.turn() == [1000, 1000, 1000, 1001] and rig.dropped == 97
    rig.engine.mono_ns += 59 * SECOND
    rig.events.denied(1000, denied(1000))
    assert rig.turn() == []
    rig.engine.mono_ns += SECOND
    rig.events.denied(1000, denied(1000))
    assert rig.turn() == [1000]


def test_many_users_count_as_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_messages, "USERS_MAX", 2)
    for uid in range(1000, 1100):
        rig.events.denied(uid, denied(uid))
    assert rig.turn() == [1000, 1001, 1002, 1003, 1004] and rig.dropped == 95


def test_readers_that_die_are_told_of_so_often_but_for_the_owners(rig: Rig) -> None:
    for owns, uid in ((False, 1000), (True, 7), (False, 0)):
        session: Any = SimpleNamespace(queue=3, name="r", party=SimpleNamespace(
            owns=owns, uid=uid, pid=1))
        for _ in range(5):
            rig.events.aborted(session, 1)
    assert rig.turn() == [1000] * 3 + [7] * 5 + [0] * 5


def test_what_goes_to_poison_is_told_so_often_of_each_queue(rig: Rig) -> None:
    """Who fails what he puts fills SYSTEM.EVENTS not, and hides nothing of other queues."""
    rig.events.configure(replace(Settings(), event_messages="poison authority", event_burst=3,
                                 event_period_s=60))
    for number in range(50):
        rig.events.poisoned("A", "POISON", number, 1)
    rig.events.poisoned("B", "POISON", 99, 1)
    rig.events.denied(1000, denied(1000))
    rig.events._put_all()
    assert [(each["event"], each["queue"], each.get("qpool_id")) for each in rig.put] == [
        ("poison", "A", 0), ("poison", "A", 1), ("poison", "A", 2), ("poison", "B", 99),
        ("authority", "A", None)]
    assert rig.dropped == 47


@pytest.mark.parametrize("word", ALL_EVENTS)
def test_each_is_switched_by_its_word(rig: Rig, word: str) -> None:
    for chosen, expected in ((word, [word]), ("all", [*ALL_EVENTS]), ("", [])):
        rig.put.clear()
        rig.events.configure(replace(Settings(), event_messages=chosen))
        for event in ALL_EVENTS:
            rig.events.note(event, "A")
        rig.events._put_all()
        assert [each["event"] for each in rig.put] == expected
