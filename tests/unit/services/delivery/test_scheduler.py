"""Each rule of the second seed's queue manager, decided on a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from omq.services.delivery.mlist import Mlist
from omq.services.delivery.rules import Rules
from omq.services.delivery.scheduler import Give, Process, Scheduler, Start, Stop

AT_ONCE = Rules(maxchans=10, reserve_urgent=0, reserve_normal=0, chan_time1_s=0.0,
                chan_time2_s=0.0, chan_time3_s=0.0, chan_idle_s=100.0, peer_concurrency=10,
                peer_reserve_urgent=0, affinity_s=0.0, run_messages=1)
URGENT, NORMAL, LOW = 7, 4, 1


class World:
    """A scheduler whose decisions are carried out at once."""

    def __init__(self, **rules: Any) -> None:
        self.scheduler = Scheduler(replace(AT_ONCE, **rules))
        self.started: list[str] = []
        self.stopped: list[int] = []

    def add(self, peer: str, priority: int = NORMAL, channel: str = "smtp", count: int = 1) -> None:
        for _ in range(count):
            self.scheduler.add(Mlist(channel, peer, priority, ("a@b",)))

    def decide(self, now: float = 0.0) -> list[tuple[int, str]]:
        """Who got what: (process, peer). As long as there is more to do at this time."""
        given: list[tuple[int, str]] = []
        while True:
            self._turn(now, given)
            if self.scheduler.wake > now:
                return given

    def _turn(self, now: float, given: list[tuple[int, str]]) -> None:
        for action in self.scheduler.decide(now):
            match action:
                case Start(process):
                    self.started.append(process.channel)
                case Give(process, run):
                    given += [(process.number, each.peer) for each in run]
                case Stop(process):
                    self.stopped.append(process.number)
                    if not process.busy:
                        self.scheduler.ended(process, now)

    def done(self, number: int, now: float = 0.0, spent_s: float = 1.0) -> None:
        process = self.process(number)
        self.scheduler.reported(process, process.run[0], spent_s, now)

    def process(self, number: int) -> Process:
        return self.scheduler.processes[number]

    def busy(self) -> int:
        return sum(each.busy for each in self.scheduler.processes.values())


def test_qmgr_maxchans_bounds_the_processes_of_all_channels() -> None:
    world = World(maxchans=3)
    for number in range(9):
        world.add(f"peer{number}", channel=("smtp", "lmtp")[number % 2])
    world.decide()
    assert len(world.scheduler.processes) == 3



def test_the_place_of_an_idle_process_of_another_channel_is_free_at_once() -> None:
    world = World(maxchans=1)
    world.add("a")
    world.decide()
    world.done(1)
    world.decide()
    world.add("b", channel="lmtp")
    assert world.decide() == [(2, "b")]
    assert world.stopped == [1]

def test_qmgr_reserve_urgent_and_normal() -> None:
    world = World(maxchans=6, reserve_urgent=2, reserve_normal=1)
    for priority, most in ((LOW, 3), (NORMAL, 4), (URGENT, 6)):
        for number in range(9):
            world.add(f"peer{number}", priority)
        world.decide()
        assert world.busy() == most
    world.done(1)
    assert [number for number, _ in world.decide()] == [1], "an urgent one takes the place"
    assert world.process(1).run[0].priority == URGENT


def test_the_reserve_is_kept_of_processes_that_urgent_mail_had_started() -> None:
    world = World(maxchans=2, reserve_urgent=1)
    world.add("a", URGENT)
    world.add("b", URGENT)
    world.decide()
    world.done(1)
    world.add("c", NORMAL, count=5)
    assert world.decide() == [], "one is busy: the other waits for urgent mail"
    world.done(2)
    assert len(world.decide()) == 1


def test_qmgr_chan_time1_after_the_last_process_stopped() -> None:
    world = World(chan_time1_s=10.0, chan_idle_s=1.0, maxchans=1)
    world.add("a")
    world.decide(now=0.0)
    world.done(1, now=1.0)
    world.decide(now=2.0)
    assert world.stopped == [1]
    world.add("a")
    assert (world.decide(now=11.9), world.scheduler.wake) == ([], 12.0)
    world.add("b", URGENT)
    assert world.decide(now=11.9) == [(2, "b")], "urgent mail does not wait for it"
    world.done(2, now=12.0)
    assert world.decide(now=12.0) == [(2, "a")]


def test_qmgr_chan_time2_between_two_starts() -> None:
    world = World(chan_time2_s=5.0)
    world.add("a", URGENT)
    world.add("b", URGENT, count=50)
    world.decide(now=0.0)
    assert (len(world.started), world.scheduler.wake) == (1, 5.0)
    world.decide(now=4.9)
    assert len(world.started) == 1
    world.decide(now=5.0)
    assert (len(world.started), world.scheduler.wake) == (2, 10.0)


def test_qmgr_chan_time3_while_the_load_is_not_great() -> None:
    world = World(chan_time2_s=1.0, chan_time3_s=9.0)
    world.add("a", count=2)
    world.decide(now=0.0)
    world.decide(now=2.0)
    assert (len(world.started), world.scheduler.wake) == (1, 9.0), "one waits, one process runs"
    world.add("b")
    world.decide(now=2.0)
    assert len(world.started) == 2, "two wait for one process: the load is great"
    world.add("c", URGENT)
    world.decide(now=3.0)
    assert len(world.started) == 3, "urgent mail waits for chan_time2 alone"


def test_the_peer_with_the_fewest_processes_is_first_among_equals() -> None:
    world = World(maxchans=3)
    world.add("a", count=5)
    assert world.decide() == [(1, "a"), (2, "a"), (3, "a")]
    world.add("b")
    world.add("c", LOW)
    world.done(1)
    assert world.decide() == [(1, "b")]
    world.done(1)
    assert world.decide() == [(1, "a")], "c is less urgent"


def test_peers_take_turns() -> None:
    world = World(maxchans=1)
    for peer in "abc":
        world.add(peer, count=3)
    order = []
    for _ in range(9):
        order += [peer for _, peer in world.decide()]
        world.done(1)
    assert "".join(order) == "abcabcabc"


def test_a_process_stays_with_its_peer_for_a_while() -> None:
    world = World(maxchans=1, affinity_s=2.5)
    for peer in "ab":
        world.add(peer, count=4)
    order = []
    for second in range(8):
        order += [peer for _, peer in world.decide(now=float(second))]
        world.done(1, now=float(second))
    assert "".join(order) == "aaabbbab"


def test_a_channel_with_the_most_processes_gives_one_up_after_its_message() -> None:
    world = World(maxchans=4)
    world.add("a", count=9)
    world.decide()
    world.add("x", channel="lmtp", count=2)
    world.decide()
    (given_up,) = world.stopped
    assert world.process(given_up).busy, "it has its message still"
    world.decide()
    assert world.stopped == [given_up], "one at a time"
    world.done(given_up)
    assert [peer for _, peer in world.decide()] == ["x"]
    assert world.started.count("lmtp") == 1
    assert world.scheduler.processes.keys() == {1, 2, 3, 4, 5} - {given_up}


def test_an_idle_process_of_another_channel_makes_room_at_once() -> None:
    world = World(maxchans=1)
    world.add("a")
    world.decide()
    world.done(1)
    world.add("x", channel="lmtp")
    world.decide()
    world.decide()
    assert world.started == ["smtp", "lmtp"]


def test_concurrency_of_one_peer_and_what_is_kept_for_urgent_mail() -> None:
    world = World(peer_concurrency=3, peer_reserve_urgent=1)
    world.add("a", count=9)
    world.decide()
    assert world.busy() == 2
    world.add("a", URGENT, count=2)
    world.decide()
    assert world.busy() == 3
    world.add("b")
    assert world.decide() == [(4, "b")], "a busy peer stops nobody else"


def test_one_process_tries_a_peer_that_was_down() -> None:
    world = World()
    world.add("a", count=5)
    world.decide()
    world.scheduler.leave_alone("smtp", "a", 60.0)
    for number in range(1, 6):
        world.done(number)
    world.add("a", count=3)
    assert len(world.decide(now=60.0)) == 1
    world.scheduler.is_up("a")
    assert len(world.decide(now=61.0)) == 2


def test_what_waits_for_a_peer_that_went_down_is_handed_back() -> None:
    world = World(maxchans=1)
    world.add("a", count=3)
    world.decide()
    assert len(world.scheduler.leave_alone("smtp", "a", 60.0)) == 2
    world.done(1)
    assert world.decide() == []


def test_a_fast_peer_gets_several_at_once() -> None:
    world = World(maxchans=1, run_messages=4, run_s=1.0)
    world.add("a", count=9)
    assert len(world.decide()) == 1, "nothing is known of it"
    world.done(1, spent_s=0.3)
    assert len(world.decide()) == 3
    for _ in range(3):
        world.done(1, spent_s=0.01)
    assert len(world.decide()) == 4


def test_what_a_dead_process_had_not_begun_goes_to_another() -> None:
    world = World(run_messages=3, run_s=1.0)
    world.add("a")
    world.decide()
    world.done(1, spent_s=0.1)
    world.add("a", count=3)
    world.decide()
    process = world.process(1)
    had = world.scheduler.given_back(process, 1.0)
    world.scheduler.ended(process, 1.0)
    assert len(had) == 3
    world.scheduler.again(had[1:])
    assert [peer for _, peer in world.decide(now=2.0)] == ["a", "a"]


_STEPS = st.lists(st.tuples(
    st.sampled_from(("add", "done", "down", "up", "die", "left")), st.integers(0, 5),
    st.sampled_from((LOW, NORMAL, URGENT)), st.sampled_from(("smtp", "lmtp"))), max_size=80)


@given(steps=_STEPS, most=st.integers(1, 5), reserve=st.integers(0, 3), each=st.integers(1, 3))
def test_nothing_is_lost_and_no_limit_is_broken(
        steps: list[tuple[str, int, int, str]], most: int, reserve: int, each: int) -> None:
    world = World(maxchans=most, reserve_urgent=reserve, reserve_normal=1, peer_concurrency=each,
                  run_messages=3, affinity_s=1.0, run_s=5.0)
    scheduler, inside = world.scheduler, 0
    for now, (what, number, priority, channel) in enumerate(steps):
        busy = [process for process in scheduler.processes.values() if process.busy]
        process = busy[number % len(busy)] if busy else None
        if what == "add":
            world.add(f"{channel}{number}", priority, channel)
            inside += 1
        elif what == "down":
            inside -= len(scheduler.leave_alone(channel, f"{channel}{number}", now))
        elif what == "up":
            scheduler.is_up(f"{channel}{number}")
        elif process is not None and what == "done":
            world.done(process.number, float(now), 1.0)
            inside -= 1
        elif process is not None and what == "left":
            scheduler.left_out(process, process.run[-1], float(now))
            inside -= 1
        elif process is not None and what == "die":
            had = scheduler.given_back(process, float(now))
            scheduler.ended(process, float(now))
            scheduler.again(had[1:])
            inside -= 1
        world.decide(float(now))
        peers = [peer for each_one in scheduler.channels.values()
                 for peer in each_one.peers.values()]
        runs = [process.run for process in scheduler.processes.values() if process.busy]
        assert sum(peer.count for peer in peers) + sum(map(len, runs)) == inside
        assert len(scheduler.processes) <= most
        for peer in peers:
            assert peer.active == sum(run[0].peer == peer.name for run in runs) <= each
    for peer in peers if steps else ():
        scheduler.is_up(peer.name)
    for now in range(len(steps), len(steps) + 4 * inside + 20):
        world.decide(float(now))
        for process in list(scheduler.processes.values()):
            while process.busy:
                world.done(process.number, float(now), 1.0)
                inside -= 1
    assert inside == 0, "what waits is served in the end"
