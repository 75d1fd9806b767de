"""What others cost the rest: a slow reader, a deep POISON, deferred messages, queues, idle clients.

Six instances, one alone and five with company, take turns under the same load on queue BENCH; the
aim is judged by the worse of the two kinds of work.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import multiprocess

import omq
from omq.core.index.view import IndexView
from tests.bench.aims.finding import Finding, Setting, at_most, said, steady
from tests.bench.instance import BenchError
from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.processes import pause
from tests.bench.peers.rounds import WORKS, measure, running

COST_MAX = 0.05
QUEUES = 500
CLIENTS = 200
DEEP, DEEP_QUICK = 100_000, 2000
SLOW_QUEUE, LATER_QUEUE, POISON = "SLOW", "LATER", "POISON"
_HOLD_S = 1.0
_HOUR_S = 3600.0
_BATCH = 1000
_BODY = bytes(200)
_fork = multiprocess.get_context("fork")


class Alone(OmqPeer):
    """Nobody else is there. `beside`: messages that wait on other queues."""

    name = "alone"
    title = "alone"

    def __init__(self, setting: Setting, queues: tuple[str, ...] = ()) -> None:
        self.deep = DEEP_QUICK if setting.quick else DEEP
        super().__init__(setting.folder(self.name), 2 * DEEP, queues)
        self.beside = 0
        self._company: Any = None

    def start(self) -> None:
        super().start()
        self.invite()
        said(f"company: {self.title} is ready\n")

    def invite(self) -> None:
        """Nobody."""

    def waiting(self) -> int:
        return super().waiting() - self.beside

    def pids(self) -> list[int]:
        company = [self._company.pid] if self._company is not None else []
        return [*super().pids(), *company]

    def stop(self) -> None:
        self.thaw()
        if self._company is not None:
            self._company.kill()
            self._company.join()
            self._company = None
        super().stop()

    def fill(self, queue: str, count: int) -> None:
        with omq.connect(spool=self.instance.paths.root, name="company") as connection:
            for start in range(0, count, _BATCH):
                connection.put_many(queue, [_BODY] * min(_BATCH, count - start))
        self.beside += count

    def settle_all(self, settle: Callable[[omq.Message], None]) -> None:
        """Take everything from LATER_QUEUE and do this with each."""
        left = self.deep
        with (
            omq.connect(spool=self.instance.paths.root, name="settler") as connection,
            connection.reader(LATER_QUEUE, batch=_BATCH) as reader,
        ):
            while left:
                messages = reader.next(_BATCH, 10.0)
                if not messages:
                    raise BenchError(f"{left} messages of {LATER_QUEUE} do not come")
                for message in messages:
                    settle(message)
                left -= len(messages)
            reader.flush()

    def run_beside(self, work: Any) -> None:
        """A process that lives as long as this peer; it says when it is there."""
        ours, theirs = _fork.Pipe()
        self._company = _fork.Process(target=work, args=(self.instance.paths.root, theirs))
        self._company.start()
        theirs.close()
        assert ours.recv() == "here"
        ours.close()


class SlowReader(Alone):
    name = "slow"
    title = "a slow reader with a backlog"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, (SLOW_QUEUE,))

    def invite(self) -> None:
        self.fill(SLOW_QUEUE, self.deep)
        self.run_beside(_slow)


class DeepPoison(Alone):
    name = "poison"
    title = "a deep POISON"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, (f"{LATER_QUEUE}\nattempts_max = 1",))

    def invite(self) -> None:
        """Only the manager puts there: what failed too often."""
        self.fill(LATER_QUEUE, self.deep)
        self.settle_all(lambda message: message.fail("on purpose"))
        with IndexView.attach(self.instance.paths) as view:
            found = sum(1 for _ in view.entries(POISON, self.deep + 1))
        if found != self.deep:
            raise BenchError(f"{found} of {self.deep} messages are on {POISON}")


class Deferred(Alone):
    name = "deferred"
    title = "deferred messages"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, (LATER_QUEUE,))

    def invite(self) -> None:
        self.fill(LATER_QUEUE, self.deep)
        self.settle_all(lambda message: message.defer(_HOUR_S))


class ManyQueues(Alone):
    name = "queues"
    title = f"{QUEUES} queues"

    def __init__(self, setting: Setting) -> None:
        self._names = tuple(f"Q{number:03d}" for number in range(QUEUES))
        super().__init__(setting, self._names)

    def invite(self) -> None:
        for queue in self._names:
            self.fill(queue, 10)


class IdleClients(Alone):
    name = "idle"
    title = f"{CLIENTS} idle clients"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, (SLOW_QUEUE,))

    def invite(self) -> None:
        self.run_beside(_idle)


def _slow(spool: Any, pipe: Any) -> None:
    with (
        omq.connect(spool=spool, name="slow") as connection,
        connection.reader(SLOW_QUEUE, batch=1) as reader,
    ):
        pipe.send("here")
        while messages := reader.next(1, _HOUR_S):
            pause(_HOLD_S)
            messages[0].release()  # the depth stays what it is


def _idle(spool: Any, pipe: Any) -> None:
    """Half of them only connected, half registered as readers of an empty queue."""
    connections = [omq.connect(spool=spool, name=f"idle{number}") for number in range(CLIENTS)]
    readers = [each.reader(SLOW_QUEUE, auxiliary=number > 0)
               for number, each in enumerate(connections[::2])]
    pipe.send("here")
    while readers:
        pause(_HOUR_S)


def bench(setting: Setting) -> list[Finding]:
    """One finding for each kind of company."""
    kinds = (Alone, SlowReader, DeepPoison, Deferred, ManyQueues, IdleClients)
    peers: list[Any] = [kind(setting) for kind in kinds]
    works = WORKS[1:2] if setting.quick else WORKS[:2]
    with running(peers):
        found = measure(peers, works, setting.probe, setting.timing, said)
    rates = {(each["peer"], each["work"]): each for each in found}
    return [_finding(peer, rates, [work.name for work in works]) for peer in peers[1:]]


def _finding(peer: Alone, rates: dict[tuple[str, str], dict[str, Any]], works: list[str]
             ) -> Finding:
    """Each round beside the same round alone: what else the machine did fell on both."""
    costs = {work: 1 - statistics.median(
        each["rate"] / max(1.0, alone["rate"]) for each, alone in zip(
            rates[peer.name, work]["rounds"], rates[Alone.name, work]["rounds"], strict=True))
        for work in works}
    spread = max((each["highest"] - each["lowest"]) / max(1.0, each["rate"])
                 for (name, _), each in rates.items() if name == Alone.name)
    cpu = {work: _server_us(rates[peer.name, work]) / _server_us(rates[Alone.name, work]) - 1
           for work in works}
    told = ", ".join(f"{cost:+.1%} of the rate and {cpu[work]:+.1%} CPU time of the daemons "
                     f"({work})" for work, cost in costs.items())
    return steady(at_most(
        f"{peer.title} costs the rest < 5 %", max(costs.values()), COST_MAX,
        f"{told}; alone, rounds differ by {spread:.0%}", costs=costs, cpu=cpu), spread)


def _server_us(found: dict[str, Any]) -> float:
    return float(statistics.median(each["cpu_us"]["server"] for each in found["rounds"]))
