"""The rules of the scheduler with peers that take seconds, on a clock of the test's own, each with
several values: what a rule promises is seen, and is not seen any more once the rule is taken out of
the source (a mutant). So a rule that stopped working would not pass here."""

from __future__ import annotations

import heapq
import inspect
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from omq.services.delivery import mlist as mlist_module
from omq.services.delivery import rules as rules_module
from omq.services.delivery import scheduler as scheduler_module
from omq.services.delivery.mlist import Mlist

URGENT, NORMAL, LOW = 7, 4, 1
PLAIN: Final[dict[str, Any]] = {
    "maxchans": 10, "reserve_urgent": 0, "reserve_normal": 0, "chan_time1_s": 0.0,
    "chan_time2_s": 0.0, "chan_time3_s": 0.0, "chan_idle_s": 1000.0, "peer_concurrency": 50,
    "peer_reserve_urgent": 0, "affinity_s": 0.0, "run_messages": 1}
"""No rule is in force but those of a case."""
Mutant = tuple[str, str]
Send = tuple[float, float, int, str, str, int]  # begin, end, process, channel, peer, priority


@dataclass
class Host:
    """A scheduler, its processes, and peers of which each takes its seconds a message. `starts`
    and `stops`: (time, channel) of processes."""

    seconds: dict[str, float]
    rules: dict[str, Any]
    mutant: Mutant | None = None
    limits: dict[str, tuple[int, float]] = field(default_factory=dict)
    now: float = 0.0
    sends: list[Send] = field(default_factory=list)
    starts: list[tuple[float, str]] = field(default_factory=list)
    stops: list[tuple[float, str]] = field(default_factory=list)
    processes: int = 0  # the most that there were

    def __post_init__(self) -> None:
        self._rules = _with(rules_module, self.mutant)["Rules"](**PLAIN | self.rules)
        self._names = _with(scheduler_module, self.mutant)
        if self.mutant is not None:  # a module of its own
            self._names["Channel"] = _with(mlist_module, self.mutant)["Channel"]
        self._scheduler = self._names["Scheduler"](self._rules, lambda peer: (
            rules_module.PeerLimit(*self.limits[peer]) if peer in self.limits else None))
        self._ends: list[tuple[float, int, Any]] = []

    def play(self, *mails: tuple[float, str, int, int], channel: str = "smtp",
             others: tuple[tuple[float, str, int, int], ...] = ()) -> Host:
        """Mails (when, peer, priority, how many), those of `others` on another channel; until all
        are sent."""
        coming = [(when, number, peer, priority, count, each) for number, (
            (when, peer, priority, count), each) in enumerate(
                [*((mail, channel) for mail in mails), *((mail, "lmtp") for mail in others)])]
        heapq.heapify(coming)
        for _ in range(100_000):
            self._decide()
            times = [*(each[0] for each in coming[:1]), *(each[0] for each in self._ends[:1])]
            if not times and not any(peer.count for each in self._scheduler.channels.values()
                                     for peer in each.peers.values()):
                return self
            self.now = min([*times, max(self._scheduler.wake, self.now)])
            while coming and coming[0][0] <= self.now:
                _, _, peer, priority, count, each_channel = heapq.heappop(coming)
                for _ in range(count):
                    self._scheduler.add(Mlist(each_channel, peer, priority, ("a@b",)))
            while self._ends and self._ends[0][0] <= self.now:
                _, _, process = heapq.heappop(self._ends)
                mlist = process.run[0]
                self._scheduler.reported(process, mlist, self.seconds[mlist.peer], self.now)
        raise AssertionError("it does not come to an end")

    def _decide(self) -> None:
        for action in self._scheduler.decide(self.now):
            process, kind = action.process, type(action).__name__
            if kind == "Start":
                self.starts.append((self.now, process.channel))
                self.processes = max(self.processes, len(self._scheduler.processes))
            elif kind == "Give":
                (mlist,) = action.run
                ends = self.now + self.seconds[mlist.peer]
                self.sends.append((self.now, ends, process.number, process.channel, mlist.peer,
                                   mlist.priority))
                heapq.heappush(self._ends, (ends, len(self.sends), process))
            elif not process.busy:
                self.stops.append((self.now, process.channel))
                self._scheduler.ended(process, self.now)

    def most(self, which: Callable[[Send], bool] = lambda _: True) -> int:
        """How many of these sends were under way at once."""
        chosen = [each for each in self.sends if which(each)]
        return max((sum(begin <= each[0] < end for begin, end, *_ in chosen)
                    for each in chosen), default=0)

    def gaps(self) -> list[float]:
        """Between one start of a process and the next."""
        return [round(after - before, 6) for (before, _), (after, _) in pairwise(self.starts)]


def _with(module: Any, mutant: Mutant | None) -> dict[str, Any]:
    """The names of a module, of which the mutant's text, where it stands there, is another."""
    if mutant is None:
        return dict(vars(module))
    text = inspect.getsource(module)
    assert text.count(mutant[0]) <= 1, "the mutant's text stands in one place"
    with TemporaryDirectory() as folder:
        file = Path(folder) / "mutant.py"
        file.write_text(text.replace(*mutant))
        spec = spec_from_file_location(module.__name__, file)
        assert spec is not None
        assert spec.loader is not None
        made = module_from_spec(spec)
        spec.loader.exec_module(made)
    return vars(made)


# each gives whether the rule's promise is seen


def least_busy(value: int, mutant: Mutant | None) -> bool:
    """A peer that takes long does not gather the processes of one that is quick."""
    host = Host({"slow": 30.0, "quick": 1.0}, {"maxchans": value}, mutant)
    host.play((0.0, "slow", NORMAL, 20), (0.0, "quick", NORMAL, 100 * value))
    while_both = max(each[0] for each in host.sends if each[4] == "quick")
    return host.most(lambda each: each[4] == "slow" and each[0] <= while_both) <= (value + 1) // 2


def maxchans(value: int, mutant: Mutant | None) -> bool:
    """So many at once, of both channels together, and no more."""
    host = Host(defaultdict(lambda: 20.0), {"maxchans": value}, mutant)
    host.play(*((0.0, f"peer{each}", URGENT, 3) for each in range(10)),
              others=tuple((5.0, f"host{each}", NORMAL, 2) for each in range(5)))
    return host.most() == host.processes == value


def reserves(value: tuple[int, int, int], mutant: Mutant | None) -> bool:
    """What is less urgent leaves the reserves alone, what is urgent has all."""
    most, urgent, normal = value
    host = Host(defaultdict(lambda: 20.0), {
        "maxchans": most, "reserve_urgent": urgent, "reserve_normal": normal}, mutant)
    host.play((0.0, "a", LOW, 30), (5.0, "b", NORMAL, 30), (11.0, "c", URGENT, 30))
    seen = [sum(begin <= when < end for begin, end, *_ in host.sends) for when in (4.0, 10.0, 19.0)]
    return seen == [max(1, most - urgent - normal), max(1, most - urgent), most]


def chan_time1(value: float, mutant: Mutant | None) -> bool:
    """When all have stopped, nothing is started for so long; urgent mail does not wait."""
    host = Host({"a": 3.0}, {"chan_time1_s": value, "chan_idle_s": 5.0}, mutant)
    host.play((0.0, "a", NORMAL, 1), (8.5, "a", NORMAL, 1), (200.0, "a", NORMAL, 1),
              (209.0, "a", URGENT, 1))
    first, second, third, fourth = (each for each, _ in host.starts)
    return (host.stops[0][0], first, second, third, fourth) == (8.0, 0.0, 8.0 + value, 200.0, 209.0)


def chan_time2(value: float, mutant: Mutant | None) -> bool:
    """So long between two starts, also where much waits and is urgent."""
    host = Host(defaultdict(lambda: 50.0), {"chan_time2_s": value}, mutant)
    host.play((0.0, "a", URGENT, 50), *((each / 8, "b", URGENT, 1) for each in range(300)))
    return host.gaps() == [value] * 9


def chan_time3(value: float, mutant: Mutant | None) -> bool:
    """Where no more wait than there are processes, the longer time counts; else the short one."""
    host = Host(defaultdict(lambda: 100.0), {"chan_time2_s": 0.5, "chan_time3_s": value}, mutant)
    host.play((0.0, "a", NORMAL, 2), (30.0, "b", NORMAL, 5))
    return host.gaps()[:4] == [value, 30.0 - value, 0.5, value]


def balance(value: int, mutant: Mutant | None) -> bool:
    """A channel that has everything gives up, message by message, until both have their share."""
    host = Host(defaultdict(lambda: 10.0), {"maxchans": value}, mutant)
    host.play((0.0, "a", NORMAL, 20 * value), others=((1.0, "x", NORMAL, 20 * value),))
    late = [each for each in host.sends if 100.0 <= each[0] < 200.0]
    count = Counter(channel for _, _, _, channel, *_ in late)
    tolerated = 2 * value if value > 1 else 0  # a number that is odd cannot be halved
    return abs(count["smtp"] - count["lmtp"]) <= tolerated and count.total() == 10 * value


def peer_concurrency(value: tuple[int, int], mutant: Mutant | None) -> bool:
    """So many at one peer, the last of them for urgent mail."""
    most, reserve = value
    host = Host({"a": 20.0, "b": 20.0}, {
        "peer_concurrency": most, "peer_reserve_urgent": reserve}, mutant)
    host.play((0.0, "a", NORMAL, 30), (1.0, "a", URGENT, 30), (1.0, "b", NORMAL, 1))
    seen = [sum(begin <= when < end and peer == "a" for begin, end, _, _, peer, _ in host.sends)
            for when in (0.5, 1.5)]
    return seen == [max(1, most - reserve), most] and any(
        (begin, peer) == (1.0, "b") for begin, _, _, _, peer, _ in host.sends)


def own_limit(value: tuple[int, float], mutant: Mutant | None) -> bool:
    """A peer with a limit has no more processes, nor more messages in a time, also where others
    are free and its mail is urgent; the others have theirs."""
    most, pause_s = value
    host = Host({"a": 20.0, "b": 20.0}, {"peer_concurrency": 4, "peer_reserve_urgent": 1}, mutant,
                limits={"a": (most, pause_s)})
    host.play((0.0, "a", NORMAL, 20), (1.0, "a", URGENT, 20), (0.0, "b", NORMAL, 20))
    begins = sorted(each[0] for each in host.sends if each[4] == "a")
    gaps = [after - before for before, after in pairwise(begins)]
    allowed = most or 4
    return (host.most(lambda each: each[4] == "b") == 3
            and host.most(lambda each: each[4] == "a") == min(
                allowed, math.ceil(20.0 / pause_s) if pause_s else allowed)
            and (not pause_s or min(gaps) >= pause_s))


CASES: Final[dict[str, tuple[Callable[[Any, Mutant | None], bool], tuple[Any, ...],
                             tuple[Mutant, ...]]]] = {
    "least busy peer first": (least_busy, (4, 6, 11), (
        ("(-key[0], key[1], self._numbers, peer)", "(-key[0], 0, self._numbers, peer)"),)),
    "qmgr_maxchans": (maxchans, (1, 3, 7), (
        ("len(self.processes) >= most or self._busy() >= most", "False"),)),
    "qmgr_reserve": (reserves, ((7, 3, 2), (5, 1, 1), (4, 0, 3)), (
        ("allowed -= self.reserve_urgent", "pass"), ("allowed -= self.reserve_normal", "pass"))),
    "qmgr_chan_time1_ms": (chan_time1, (7.0, 12.0, 30.0), (
        ("max(earliest, channel.stopped_at + rules.chan_time1_s)", "earliest"),
        ("if not urgent and not mine", "if not mine"))),
    "qmgr_chan_time2_ms": (chan_time2, (0.25, 1.0, 4.0), (
        ("channel.started_at + self.rules.chan_time2_s", "-math.inf"),)),
    "qmgr_chan_time3_ms": (chan_time3, (2.0, 9.0, 25.0), (
        ("max(earliest, channel.started_at + rules.chan_time3_s)", "earliest"),
        ("not channel.waits_more_than(len(mine))", "True"))),
    "balance": (balance, (2, 5, 8, 1), (
        ("yield from self._make_room(channel, len(mine), now)", "pass"),
        ("not mine or counts[each.channel] > mine + 1", "False"),
        ("not mine or counts", "counts"),
        ("sorted(self.channels.values(), key=self._busy_of):\n            top",
         "self.channels.values():\n            top"),
        ("), channel.started_at", "), 0.0"))),
    "qmgr_peer_concurrency": (peer_concurrency, ((3, 1), (6, 2), (5, 4)), (
        ("may=peer.active < limit", "may=limit > 0"),
        ("reserve = self.peer_reserve_urgent if", "reserve = 0 if"))),
    "peer_limits": (own_limit, ((1, 0.0), (2, 0.0), (7, 0.0), (0, 8.0), (2, 15.0), (3, 30.0)), (
        ("own is not None and own.processes", "False"),
        ("run, peer.paced = 1, True", "pass"),
        ("peer.count and not peer.paced", "peer.count"),
        ("now + limit.pause_s, self._numbers", "now, self._numbers"))),
}
"""Rule: what sees it, values of its setting, and the rule taken out."""


@pytest.mark.parametrize(("rule", "value"), [
    (rule, value) for rule, (_, values, _) in CASES.items() for value in values])
def test_a_rule_with_other_values(rule: str, value: Any) -> None:
    assert CASES[rule][0](value, None)


@pytest.mark.parametrize(("rule", "mutant"), [
    (rule, mutant) for rule, (_, _, mutants) in CASES.items() for mutant in mutants])
def test_without_the_rule_its_promise_is_not_seen(rule: str, mutant: Mutant) -> None:
    sees, values, _ = CASES[rule]
    source = "".join(map(inspect.getsource, (scheduler_module, rules_module, mlist_module)))
    assert source.count(mutant[0]) == 1, "what is taken out is there"
    assert not all(sees(value, mutant) for value in values)
