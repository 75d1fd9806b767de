"""When a held reply is released: in order, never before enough standbys have it, and by nobody's
going away."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omq.base.errors import BadRequest
from omq.core.engine.engine import Engine
from omq.core.engine.waiting import FOREVER
from omq.ipc.server.doors import Door
from omq.ipc.server.held_replies import AHEAD_MAX, HeldReplies, Protection
from omq.ipc.server.sessions import Session

S = 1_000_000_000


@dataclass
class World:
    """A manager's clock and disk, and what clients were told, in order."""

    wanted: int = 1
    patience_s: int | None = None
    told: list[str] = field(default_factory=list)
    changes: list[tuple[str, list[str]]] = field(default_factory=list)
    room: bool = True
    lines: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = SimpleNamespace(mono_ns=S, durable_lsn=10)
        patience = None if self.patience_s is None else self.patience_s * S
        self.held = HeldReplies(cast(Engine, self.engine), self.wanted, patience, self.changed)
        self.clients = 0

    def changed(self, state: Protection, standbys: list[str]) -> bool:
        if self.room:
            self.changes.append((state.value, standbys))
        return self.room

    def session(self, name: str, *, trusted: bool = True) -> Session:
        here, there = socket.socketpair()
        self.lines += [here, there]
        there.setblocking(False)  # noqa: FBT003
        self.clients += 1
        made = SimpleNamespace(gone=False, unheld=False, trusted=trusted, there=there, name=name,
                               last=(0, 0, 0, 0),
                               door=Door(here), party=SimpleNamespace(client=self.clients),
                               announce=lambda: self.told.append(name))
        return cast(Session, made)

    def group(self, lsn: int, *sessions: Session, ms: int = 1) -> None:
        """A commit up to there, and whose replies it has."""
        self.engine.mono_ns += ms * 1_000_000
        self.held.look()
        self.engine.durable_lsn = lsn
        self.held.add(list(sessions))

    def heard(self, session: Session, member: str, synced: int) -> None:
        self.held.heard(session, {"member": member, "synced": synced})
        self.held.add([])

    @staticmethod
    def lines_to(session: Session) -> list[Any]:
        there = cast(Any, session).there
        try:
            return [json.loads(each) for each in there.recv(65536).splitlines()]
        except BlockingIOError:
            return []


@pytest.fixture
def made() -> Iterator[Any]:
    worlds = []

    def make(wanted: int = 1, patience_s: int | None = None) -> World:
        worlds.append(World(wanted, patience_s))
        return worlds[-1]

    yield make
    for world in worlds:
        for line in world.lines:
            line.close()


def test_replies_wait_for_the_standbys_disk_in_order(made: Any) -> None:
    w = made()
    a, b, standby = w.session("a"), w.session("b"), w.session("standby")
    w.group(20, a)
    w.heard(standby, "b", 5)
    w.group(30, b)
    assert w.told == [] and w.held.waiting and w.held.is_held(a)
    w.heard(standby, "b", 19)
    assert w.told == [], "one LSN early"
    w.heard(standby, "b", 20)
    assert w.told == ["a"] and w.held.is_held(b) and not w.held.is_held(a)
    w.heard(standby, "b", 30)
    assert w.told == ["a", "b"] and not w.held.waiting
    w.group(30, a)
    assert w.told == ["a", "b", "a"], "nothing new was promised"
    assert w.changes == [("synced", ["b"])]


def test_so_many_as_are_wanted_and_each_disk_once(made: Any) -> None:
    w = made(wanted=2)
    a, one, two, again = (w.session(each) for each in ("a", "one", "two", "again"))
    w.group(20, a)
    w.heard(one, "b", 20)
    w.heard(again, "b", 20)  # the same standby over a new connection
    assert w.told == [] and w.held.protection.name == "WAITING"
    w.heard(two, "c", 19)
    assert w.told == [] and w.held.protection.name == "SYNCED"
    w.heard(two, "c", 20)
    assert w.told == ["a"]
    w.held.lost(one)
    assert w.held.protection.name == "SYNCED", "that connection had ended before"
    w.held.lost(again)
    w.group(30, a)
    w.heard(two, "c", 30)
    assert w.told == ["a"] and w.held.protection.name == "WAITING"


def test_a_put_whose_client_waits_for_more_is_not_told_either(made: Any) -> None:
    """At a stop: it was put, the reply is not due yet, and the standby does not have it."""
    w = made()
    a, standby = w.session("a"), w.session("standby")
    w.heard(standby, "b", 19)
    a.last = (1, 1, 77, 20)
    assert w.held.is_held(a)
    w.heard(standby, "b", 20)
    assert not w.held.is_held(a)


def test_a_mark_that_goes_down_counts_as_it_is(made: Any) -> None:
    w = made()
    a, standby = w.session("a"), w.session("standby")
    w.heard(standby, "b", 50)
    w.heard(standby, "b", 15)
    w.group(20, a)
    assert w.told == []


def test_who_waits_waits_for_ever(made: Any) -> None:
    w = made()
    a = w.session("a")
    w.group(20, a)
    w.group(21, ms=10_000_000)
    assert w.told == [] and w.held.due == FOREVER and w.changes == []


def test_it_goes_on_alone_after_a_time_and_not_before_it_is_noted(made: Any) -> None:
    w = made(patience_s=3)
    a, standby = w.session("a"), w.session("standby")
    w.heard(standby, "b", 10)
    assert w.held.due == FOREVER, "there is a standby, and nobody waits"
    w.group(20, a)
    due = w.held.due
    assert due == w.engine.mono_ns + 3 * S
    w.group(20, ms=2_999)
    assert w.told == []
    w.room = False
    w.group(20, ms=2)
    assert w.told == [] and w.held.due > w.engine.mono_ns, "the journal has no room to say it"
    w.room = True
    w.group(20, ms=1_001)
    assert w.told == ["a"] and w.changes == [("synced", ["b"]), ("alone", ["b"])]
    w.group(30, a)
    assert w.told == ["a", "a"]
    w.heard(standby, "b", 10)
    assert w.held.protection.name == "ALONE", "it lacks what it was told of"
    w.heard(standby, "b", 30)
    assert w.held.protection.name == "SYNCED"
    w.group(40, a)
    assert w.told == ["a", "a"] and w.changes[2:] == [("synced", ["b"])]


def test_nobody_there_from_the_start_is_the_same(made: Any) -> None:
    w = made(patience_s=3)
    assert w.held.due == S + 3 * S
    w.group(20, ms=3_001)
    assert w.changes == [("alone", [])]
    standby = w.session("standby")
    w.heard(standby, "b", 0)
    assert w.held.protection.name == "ALONE", "a standby that has nothing yet"


def test_senders_are_told_what_is_new_once_for_each_word(made: Any) -> None:
    w = made()
    standby = w.session("standby")
    w.heard(standby, "b", 5)
    w.group(20)
    w.group(30)
    assert w.lines_to(standby) == [{"durable": 10}]
    w.heard(standby, "b", 10)
    assert w.lines_to(standby) == [{"durable": 30}]
    w.heard(standby, "b", 30)
    assert w.lines_to(standby) == []


def test_who_has_all_is_told_of_a_block_before_its_sync(made: Any) -> None:
    """AHEAD_MAX lines at most in advance; the answer may come before the sync here is over, and
    releases nothing before it is."""
    w = made()
    a, standby = w.session("a"), w.session("standby")
    w.heard(standby, "b", 5)
    w.held.written(20, 7)
    assert w.lines_to(standby) == [{"durable": 10}], "it lacks what is durable: no more at once"
    w.heard(standby, "b", 10)
    for lsn in range(20, 26):
        w.held.written(lsn, 7)
    assert w.lines_to(standby) == [{"written": lsn, "file": 7}
                                   for lsn in range(20, 20 + AHEAD_MAX)]
    w.held.heard(standby, {"member": "b", "synced": 25})
    assert w.told == [], "the standby has it; the disk here may not"
    w.group(25, a)
    assert w.told == ["a"]
    assert w.lines_to(standby) == [], "it has all that is durable, and says so by itself"
    w.held.written(30, 8)
    assert w.lines_to(standby) == [{"written": 30, "file": 8}]


def test_an_answer_over_the_request_queue_releases_before_the_next_sync(made: Any) -> None:
    w = made(patience_s=1)
    a, b, standby = w.session("a"), w.session("b"), w.session("standby")
    with pytest.raises(BadRequest, match="named its standby"):
        w.held.synced(standby, 20)
    w.heard(standby, "b", 10)
    w.group(20, a)
    w.group(30, b)
    assert w.held.unanswered
    w.held.synced(standby, 19)
    assert w.told == [], "one LSN early"
    w.held.synced(standby, 20)
    assert w.told == ["a"], "not behind the commit of the group that brought it"
    w.engine.mono_ns += 2 * S
    w.held.look()
    assert w.held.protection.name == "ALONE" and w.told == ["a"] and not w.held.unanswered
    w.held.synced(standby, 30)
    assert w.held.protection.name == "SYNCED" and w.told == ["a"], "the journal says it first"
    w.held.add([])
    assert w.told == ["a", "b"] and not w.held.unanswered
    with pytest.raises(BadRequest):
        w.held.synced(standby, 1 << 63)


def test_the_connection_that_speaks_last_counts_by_either_way(made: Any) -> None:
    w = made()
    a, first, second = (w.session(each) for each in ("a", "first", "second"))
    w.heard(first, "b", 10)
    w.heard(second, "b", 10)
    w.held.lost(second)
    assert w.held.protection.name == "WAITING"
    w.group(20, a)
    w.held.synced(first, 20)
    assert w.held.protection.name == "SYNCED"
    w.held.add([])
    assert w.told == ["a"]
    w.held.lost(first)
    with pytest.raises(BadRequest):
        w.held.synced(first, 30)


def test_a_deadline_is_in_time_for_replies_that_come_later(made: Any) -> None:
    """Behind groups of plain requests nobody asks for it again."""
    w = made(patience_s=3)
    w.heard(w.session("standby"), "b", 10)
    assert w.held.due == FOREVER and w.held.due_at_least(5 * S) == 8 * S
    assert made().held.due_at_least(5 * S) == FOREVER


def test_who_goes_on_alone_tells_of_what_is_durable_only(made: Any) -> None:
    """Under load there is always something newer; a standby that catches up is to be seen."""
    w = made(patience_s=1)
    standby = w.session("standby")
    w.heard(standby, "b", 10)
    w.group(20, w.session("a"))
    w.group(20, ms=1_001)
    assert w.held.protection.name == "ALONE"
    w.lines_to(standby)
    w.held.written(30, 7)
    assert w.lines_to(standby) == []
    w.heard(standby, "b", 20)
    assert w.held.protection.name == "SYNCED"


def test_answers_over_the_control_connection_wait_too(made: Any) -> None:
    w = made()
    a, standby = w.session("a"), w.session("standby")
    w.held.answer(a.door, {"status": 0, "answered": {"sequence": 1}})
    w.group(20)
    assert w.lines_to(a) == []
    w.heard(standby, "b", 20)
    assert w.lines_to(a) == [{"status": 0, "answered": {"sequence": 1}}]


def test_who_is_gone_is_told_nothing_and_pool_writer_waits_for_nobody(made: Any) -> None:
    w = made()
    a, writer, standby = w.session("a"), w.session("writer"), w.session("standby")
    writer.unheld = True
    w.group(20, a, writer)
    assert w.told == ["writer"]
    a.gone = True
    w.heard(standby, "b", 20)
    assert w.told == ["writer"]


@pytest.mark.parametrize("question", [
    {"member": "b"}, {"member": "a/b", "synced": 1}, {"member": "b", "synced": -1},
    {"member": "b", "synced": 1 << 64}, {"member": "b", "synced": "x"}, {"synced": 1}])
def test_nonsense_counts_for_nothing(made: Any, question: dict[str, Any]) -> None:
    w = made()
    with pytest.raises((BadRequest, KeyError, ValueError)):
        w.held.heard(w.session("x"), question)
    with pytest.raises(BadRequest, match="the spool's own user"):
        w.held.heard(w.session("x", trusted=False), {"member": "b", "synced": 1})
    assert w.held.protection.name == "WAITING"
