"""When a held reply is released where a lease decides who is primary: before its end alone, and
when every standby that could be promoted has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from omq.base import clock
from omq.base.errors import BadRequest
from omq.core.engine.engine import Engine
from omq.core.engine.waiting import FOREVER
from omq.ipc.server.held_replies import HeldReplies
from omq.ipc.server.leased_replies import LeasedReplies
from omq.ipc.server.sessions import Session
from tests.unit.ipc.test_held_replies import S, World

TERM = 3


class Leased(World):
    """The clock of the lease is that of the groups."""

    def __post_init__(self) -> None:
        super().__post_init__()
        patience = None if self.patience_s is None else self.patience_s * S
        self.held: HeldReplies = LeasedReplies(
            cast(Engine, self.engine), self.wanted, patience, self.changed, term=TERM)
        self.keeper = self.session("keeper")

    def says(self, in_sync: list[str] | None, until_s: float = 100, term: int = TERM) -> None:
        """The keeper."""
        cast(LeasedReplies, self.held).lease(self.keeper, {
            "until": int(until_s * S), "term": term, "in_sync": in_sync})
        self.held.add([])

    def asked(self) -> list[Any]:
        """Which sets etcd should have."""
        return [each["in_sync"] for each in self.lines_to(self.keeper) if "in_sync" in each]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    worlds: list[Leased] = []
    monkeypatch.setattr(clock, "monotonic_ns", lambda: worlds[-1].engine.mono_ns)

    def make(wanted: int = 1, patience_s: int | None = None) -> Leased:
        worlds.append(Leased.__new__(Leased))
        worlds[-1].__init__(wanted, patience_s)  # type: ignore[misc]
        return worlds[-1]

    yield make
    for world in worlds:
        for line in world.lines:
            line.close()


def joined(world: Leased, *names: str) -> dict[str, Session]:
    """All of them are in sync, and have LSN 10."""
    found = {name: world.session(name) for name in names}
    world.says([])
    for name, session in found.items():
        world.heard(session, name, 10)
    while sets := world.asked():
        world.says(sets[-1])
    return found


def test_nothing_is_released_before_there_is_a_lease(made: Any) -> None:
    world = made(wanted=0)
    world.group(11, world.session("x"))
    assert world.told == [] and world.held.due == FOREVER
    world.says([])
    assert world.asked() == [None] and world.told == [], "anybody may be next: etcd has it first"
    world.says(None)
    assert world.told == ["x"] and world.changes[-1] == ("leased", [])


def test_nothing_is_released_behind_its_end(made: Any) -> None:
    world = made(wanted=0)
    world.says(None, until_s=5)
    world.group(11, world.session("x"))
    world.group(12, world.session("y"), ms=4000)
    assert world.told == ["x"], "the lease is over at 5 s"
    assert world.changes[-1] == ("fenced", [])
    world.says(None, until_s=20)
    assert world.told == ["x", "y"], "it was renewed, and nobody else had it"


def test_a_look_at_the_clock_is_before_each_group(made: Any, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    """The lease ends while groups are released."""
    world = made()
    (b,) = joined(world, "b").values()
    world.group(11, world.session("x"))
    world.group(12, world.session("y"))
    moments = iter([0, 0, 0, 200 * S])
    monkeypatch.setattr(clock, "monotonic_ns", lambda: next(moments, 200 * S))
    world.heard(b, "b", 12)
    assert world.told == ["x"]


def test_an_end_that_is_said_counts_at_once(made: Any) -> None:
    world = made(wanted=0)
    world.says(None)
    world.says(None, until_s=0)
    world.group(11, world.session("x"))
    assert world.told == []


def test_the_manager_is_told_by_its_own_user_of_its_own_term(made: Any) -> None:
    world = made(wanted=0)
    stranger = world.session("z", trusted=False)
    good = {"until": 50 * S, "term": TERM, "in_sync": None}
    with pytest.raises(BadRequest, match="own user"):
        cast(LeasedReplies, world.held).lease(stranger, good)
    for wrong in ({"term": 2}, {"until": -1}, {"until": 9000 * S}, {"in_sync": "b"},
                  {"in_sync": ["-"]}, {"in_sync": [1]}, {"in_sync": ["b"] * 99}):
        with pytest.raises(BadRequest):
            cast(LeasedReplies, world.held).lease(world.keeper, good | wrong)
    world.group(11, world.session("x"))
    assert world.told == []


def test_a_standby_is_in_sync_when_etcd_has_it(made: Any) -> None:
    world = made()
    world.says([])
    b = world.session("b")
    world.heard(b, "b", 10)
    assert world.asked() == [["b"]]
    world.group(11, world.session("x"))
    world.heard(b, "b", 11)
    assert world.told == [], "it has it, and may not be promoted yet"
    world.says(["b"])
    assert world.told == ["x"] and world.changes[-1] == ("synced", ["b"])


def test_replies_wait_for_all_that_are_in_sync(made: Any) -> None:
    """One is enough to be protected, but each of them could be promoted."""
    world = made()
    found = joined(world, "b", "c")
    world.group(11, world.session("x"))
    world.heard(found["b"], "b", 11)
    assert world.told == []
    world.heard(found["c"], "c", 11)
    assert world.told == ["x"]


def test_one_that_leaves_is_waited_for_until_etcd_has_it(made: Any) -> None:
    world = made()
    found = joined(world, "b", "c")
    world.group(11, world.session("x"))
    world.heard(found["b"], "b", 11)
    world.held.lost(found["c"])
    world.held.add([])
    assert world.asked() == [["b"]] and world.told == []
    world.says(["b"])
    assert world.told == ["x"]


def test_the_last_one_stays_in_sync_without_go_on(made: Any) -> None:
    world = made()
    (b,) = joined(world, "b").values()
    world.held.lost(b)
    world.group(11, world.session("x"), ms=60_000)
    assert world.asked() == [] and world.told == [] and world.changes[-1] == ("waiting", [])


def test_go_on_is_in_etcd_before_the_first_reply_alone(made: Any) -> None:
    world = made(patience_s=5)
    (b,) = joined(world, "b").values()
    world.held.lost(b)
    world.group(11, world.session("x"))
    assert world.asked() == []
    world.group(12, ms=6000)
    assert world.asked() == [[]] and world.told == [], "etcd may still have b promoted"
    world.says([])
    assert world.told == ["x"] and world.changes[-1] == ("alone", [])


def test_one_that_hangs_leaves_by_go_on_and_comes_back(made: Any) -> None:
    world = made(patience_s=5)
    (b,) = joined(world, "b").values()
    world.group(11, world.session("x"))
    world.group(12, ms=6000)
    assert world.asked() == [[]]
    world.says([])
    assert world.told == ["x"] and world.changes[-1][0] == "alone"
    world.heard(b, "b", 11)
    assert world.asked() == [], "12 is not there"
    world.heard(b, "b", 12)
    assert world.asked() == [["b"]]
    world.group(13, world.session("y"))
    assert world.told == ["x"], "it joins: what is released from now on is there, too"
    world.heard(b, "b", 13)
    assert world.told == ["x", "y"]
    world.says(["b"])
    assert world.changes[-1] == ("synced", ["b"])


def test_one_joins_with_all_that_was_ever_released(made: Any) -> None:
    """Under load there is always something newer: what it was told of lately is enough to be waited
    for, and not to be promoted."""
    world = made(patience_s=1)
    world.says([])
    world.group(20, world.session("w"), ms=2000)
    assert world.told == ["w"]
    b = world.session("b")
    world.heard(b, "b", 5)  # it is told of 20
    world.group(30, world.session("x"))
    assert world.told == ["w", "x"]
    world.heard(b, "b", 20)
    assert world.asked() == [], "30 was released without it"
    world.group(31, world.session("y"))
    assert world.told == ["w", "x"], "it is waited for"
    world.heard(b, "b", 30)
    assert world.asked() == [["b"]]


def test_a_change_is_asked_of_the_next_keeper_again(made: Any) -> None:
    world = made()
    world.says([])
    b = world.session("b")
    world.heard(b, "b", 10)
    assert world.asked() == [["b"]]
    world.held.lost(world.keeper)
    world.keeper = world.session("keeper 2")
    world.says([])
    assert world.asked() == [["b"]], "nobody knows what became of the first"
    world.says(["b"])
    assert world.changes[-1] == ("synced", ["b"])


def test_the_settings_of_before_count_until_etcd_has_the_new_ones(made: Any) -> None:
    world = made()
    world.says(None)
    world.group(11, world.session("x"))
    assert world.asked() == [[]] and world.told == []
    other = made(wanted=0)
    other.says(["b"])
    other.group(11, other.session("y"))
    assert other.asked() == [None] and other.told == []


def test_what_cannot_be_changed_is_looked_at_seldom(made: Any) -> None:
    """The keeper is away when the patience ends: the loop of the manager does not spin."""
    world = made(patience_s=5)
    (b,) = joined(world, "b").values()
    world.held.lost(b)
    world.held.lost(world.keeper)
    world.group(11, world.session("x"))
    world.group(12, ms=6000)
    assert world.engine.mono_ns < world.held.due < FOREVER
