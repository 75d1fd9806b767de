"""A peer with mail and a free place is never idle for more than a second: whatever the peers take,
whoever flushes, holds, releases, deletes, and however often the scheduler is killed.

The dispatcher itself, on a clock of the test's own; the queue manager, the channel processes and
the peers are models."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omq.base import clock
from omq.base.paths import SpoolPaths
from omq.base.settings import DEFAULTS
from omq.services.delivery import dispatcher, settling
from omq.services.delivery.dispatcher import Dispatcher
from omq.services.delivery.holds import Holds
from omq.services.delivery.mlist import Mlist, Wait
from omq.services.delivery.peer_states import PeerStates
from omq.services.delivery.scheduler import Process
from omq.services.delivery.service import ChannelService, Group, Plan
from omq.services.delivery.worker import Report
from omq.services.readers.service import Defer, Disposition, Done

PEERS = ("a:25", "b:25", "c:25")
RULES: dict[str, Any] = {
    "qmgr_window": 40, "qmgr_maxchans": 12, "qmgr_reserve_urgent": 0, "qmgr_reserve_normal": 0,
    "qmgr_peer_concurrency": 3, "qmgr_peer_reserve_urgent": 0, "qmgr_chan_time1_ms": 0,
    "qmgr_chan_time2_ms": 0, "qmgr_chan_time3_ms": 0, "qmgr_run_messages": 3,
    "qmgr_sends_bytes_max": 0}
IDLE_S_MAX = 1.0
_WALL_S = 1_700_000_000.0


class Killed(Exception):
    """The scheduler was."""


class Over(Exception):
    """The end of the test."""


@dataclass(eq=False)
class Mail:
    """A message of the model, which is what a service sees of it, too."""

    world: World
    qpool_id: int
    peer: str
    state: str = "ready"
    due: float = 0.0
    owed: bool = False  # put off by the scheduler, not because its peer had failed
    priority: int = 4
    message_id: str = "m"
    queue: str = "UNIX"
    attempts: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def set_aside(self) -> None:
        assert self.state == "active"

    def done(self) -> None:
        assert self.state == "active"
        self.state = "gone"

    def defer(self, seconds: float, reason: str = "") -> None:
        assert self.state == "active"
        self.state, self.due = "deferred", self.world.now + seconds
        self.owed = "not reached" not in reason


@dataclass
class Peer:
    """How long it takes for a message; until when it is not reached."""

    spent_s: float = 0.1
    sick_until: float = 0.0


class Mails(ChannelService):
    """A message is for one peer."""

    def plan(self, message: Any) -> Plan | Disposition:
        return Plan((Group("smtp", message.peer, ("r",)),), (), {})

    def untried(self, mlist: Mlist, wait: Wait) -> Sequence[Any]:
        return ()

    def ended(self, message: Any, results: Sequence[Any], wait: Wait | None
              ) -> Plan | Disposition:
        return Done() if wait is None else Defer(wait.seconds, wait.reason)

    @contextmanager
    def together(self) -> Iterator[None]:
        yield


class World:
    """The clock, the queue, the processes; `plan`: what happens when."""

    def __init__(self, root: Path, plan: Sequence[tuple[float, Any]]) -> None:
        self.now = 0.0
        self.paths = SpoolPaths(root)
        self.paths.run.mkdir(parents=True)
        self.mails: dict[int, Mail] = {}
        self.peers = {name: Peer() for name in PEERS}
        self.plan = sorted(plan, key=lambda each: each[0])
        self.ready: list[tuple[float, Process, Mlist, Report]] = []  # by processes, in order
        self.free_at: dict[int, float] = {}
        self.idle_since: dict[str, float] = {}
        self.holds = Holds(self.paths.held("unix"))
        self.killed = False
        self.turns = 0  # in a row without any time
        self.service = Mails(cast("Any", SimpleNamespace(
            settings=DEFAULTS.__class__(**RULES), paths=self.paths,
            conf=SimpleNamespace(name="unix", queue="UNIX"),
            log=SimpleNamespace(event=lambda *_words, **_fields: None))))
        self.states = PeerStates(self.paths.run / "unix.peers.json", 60, 3600, 330)
        self.one: Dispatcher

    def run(self) -> None:
        while True:
            signals = SimpleNamespace(stopping=False, take_reload=lambda: False)
            self.one = Dispatcher(self.service, cast("Any", signals), cast("Any", None))
            self.one._configure()
            self.one._crew = cast("Any", Crew(self))
            self.one._reader = self.one._connection = cast("Any", self)
            try:
                self.one._serve()
            except Killed:
                self.ready.clear()
                self.free_at.clear()
                for mail in self.mails.values():
                    if mail.state == "active":
                        mail.state = "ready"
            except Over:
                return

    # the queue manager

    def next(self, n: int, timeout_s: float) -> list[Mail]:
        if not self._ready(1):
            self.advance(timeout_s)
        found = self._ready(n)
        for mail in found:
            mail.state = "active"
        return found

    def _ready(self, n: int) -> list[Mail]:
        return [mail for mail in self.mails.values() if mail.state == "ready"][:n]

    def flush(self) -> None:
        """What was settled is settled."""

    def recall(self, queue: str, qpools: list[int]) -> list[int]:
        assert queue == "UNIX"
        passed = [each for each in qpools if self.mails[each].state != "deferred"]
        for each in set(qpools) - set(passed):
            self.mails[each].state = "ready"
        return passed

    def recall_due(self, queue: str, within_s: float, before: int) -> tuple[int, int]:
        due = [mail.qpool_id for mail in self.mails.values()
               if mail.state == "deferred" and mail.due <= self.now + within_s]
        assert self.recall(queue, due) == []
        return len(due), 1

    # time

    def advance(self, most_s: float) -> None:
        """To the next moment at which something happens."""
        self.turns = self.turns + 1 if most_s == 0.0 else 0
        assert self.turns < 1000, "it turns and turns"
        self.judge()
        moments = [self.now + most_s, *(each[0] for each in self.ready), *(
            mail.due for mail in self.mails.values() if mail.state == "deferred")]
        if self.plan:
            moments.append(self.plan[0][0])
        self.now = max(self.now, min(moments))
        for mail in self.mails.values():
            if mail.state == "deferred" and mail.due <= self.now:
                mail.state = "ready"
        while self.plan and self.plan[0][0] <= self.now:
            self.happens(self.plan.pop(0)[1])
        if self.killed:
            self.killed = False
            raise Killed

    def happens(self, what: tuple[str, str, float]) -> None:
        kind, name, amount = what
        peer = self.peers[name]
        if kind == "put":
            for _ in range(int(amount)):
                number = len(self.mails) + 1
                self.mails[number] = Mail(self, number, name)
        elif kind == "pace":
            peer.spent_s = amount / 100.0
        elif kind == "sick":
            peer.sick_until = self.now + amount
        elif kind in ("hold", "release"):
            names = frozenset((name,))
            self.holds.change(add=names if kind == "hold" else frozenset(),
                              remove=names if kind == "release" else frozenset())
        elif kind == "flush":
            self.states.forget((name,))
            for mail in self.mails.values():
                if mail.peer == name and mail.state == "deferred":
                    mail.state = "ready"
        elif kind == "delete":
            for mail in self.mails.values():
                if mail.peer == name and mail.state == "deferred" and mail.qpool_id % 2:
                    mail.state = "gone"
        elif kind == "kill":
            self.killed = True
        else:
            raise Over

    def judge(self) -> None:
        """Who could be served now, and is not."""
        limit = self.one._rules.at_peer(4)
        free = sum(each.busy for each in self.one._scheduler.processes.values()) \
            < self.one._rules.processes(4)
        channel = self.one._scheduler.channels.get("smtp")
        for name in PEERS:
            served = channel.peers[name].active if channel and name in channel.peers else 0
            has = sum(mail.peer == name and (mail.state in ("ready", "active")
                                             or (mail.state == "deferred" and mail.owed))
                      for mail in self.mails.values())
            in_work = sum(each.peer == name for process in self.one._scheduler.processes.values()
                          for each in process.run)
            away = (name in self.holds.names or name in self.states.down)
            if free and not away and served < limit and has > in_work:
                since = self.idle_since.setdefault(name, self.now)
                assert self.now - since <= IDLE_S_MAX, (
                    f"{name} has {has} mails and is idle since {since:.2f}, now {self.now:.2f}")
            else:
                self.idle_since.pop(name, None)

    @property
    def left(self) -> int:
        return sum(mail.state != "gone" for mail in self.mails.values())


class Crew:
    """Processes that take their time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self, process: Process) -> bool:
        self._world.free_at[process.number] = self._world.now
        return True

    def give(self, process: Process, mlist: Mlist, head: Any, body: bytes) -> bool:
        world, peer = self._world, self._world.peers[mlist.peer]
        begun = max(world.now, world.free_at[process.number])
        ended = world.free_at[process.number] = begun + peer.spent_s
        reached = begun >= peer.sick_until
        world.ready.append((ended, process, mlist, Report(
            [], reached, "" if reached else "it does not answer", begun, peer.spent_s)))
        world.ready.sort(key=lambda each: each[0])
        return True

    def reports(self) -> list[tuple[Process, list[tuple[Mlist, Report]], bool]]:
        world = self._world
        done = [each for each in world.ready if each[0] <= world.now]
        world.ready = world.ready[len(done):]
        return [(process, [(mlist, report)], True) for _, process, mlist, report in done]

    def wait(self, timeout_s: float) -> None:
        self._world.advance(timeout_s)

    def end(self, process: Process) -> None:
        """It ends."""


def happens(seconds: float, kind: str, name: str = PEERS[0], amount: float = 0.0
            ) -> tuple[float, tuple[str, str, float]]:
    return seconds, (kind, name, amount)


@contextmanager
def world_of(plan: Sequence[tuple[float, Any]]) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patched:
        world = World(Path(root), plan)
        mine = SimpleNamespace(monotonic=lambda: world.now)
        patched.setattr(dispatcher, "time", mine)
        patched.setattr(settling, "time", mine)
        patched.setattr(clock, "wall_ns", lambda: int((_WALL_S + world.now) * clock.NS_PER_S))
        yield world


_AMOUNTS = {"put": st.integers(1, 150), "pace": st.sampled_from([1, 5, 20, 100, 400]),
            "sick": st.sampled_from([1, 50, 200])}
EVENTS = st.tuples(
    st.floats(0.0, 120.0), st.sampled_from(["put", "put", "put", "pace", "sick", "hold", "release",
                                            "flush", "delete", "kill"]),
    st.sampled_from(PEERS)).flatmap(lambda drawn: st.tuples(
        st.just(drawn[0]), st.tuples(st.just(drawn[1]), st.just(drawn[2]),
                                     _AMOUNTS.get(drawn[1], st.just(0)))))
BACKLOG = (happens(0.0, "put", amount=300), happens(0.0, "pace", amount=10))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([*BACKLOG])
@example([*BACKLOG, *(happens(at, "flush") for at in (1.0, 3.0, 5.0, 7.0, 9.0))])
@example([*BACKLOG, happens(2.0, "kill"), happens(4.0, "kill")])
@example([*BACKLOG, happens(2.0, "hold"), happens(3.0, "kill"), happens(20.0, "release")])
@example([*BACKLOG, happens(2.0, "sick", amount=50), happens(5.0, "put", "b:25", 200),
          happens(6.0, "kill")])
@example([happens(0.0, "hold"), happens(0.0, "put", "c:25", 37), happens(0.0, "put", amount=121),
          happens(0.0, "release"), happens(0.0, "put", "c:25", 37),
          happens(0.65, "delete", "c:25")])  # those that were called next are gone
@given(st.lists(EVENTS, max_size=14))
def test_a_peer_with_mail_and_a_free_place_is_not_idle(plan: list[tuple[float, Any]]) -> None:
    with world_of([*plan, happens(700.0, "over")]) as world:
        world.run()


def test_a_backlog_goes_out_at_the_pace_of_its_peer() -> None:
    """300 mails at 0.1 s each, three at a time: 10 s. They waited for minutes when each flush made
    what came after it wait longer."""
    with world_of([*BACKLOG, *(happens(at, "flush") for at in (1.0, 3.0, 5.0)),
                   happens(12.0, "over")]) as world:
        world.run()
        assert world.left == 0
