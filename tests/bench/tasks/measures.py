"""What is asked of each broker: tasks a second, how long a task waits, what three faults lose."""

from __future__ import annotations

import math
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.instance import BenchError
from tests.bench.peers.peer import Peer
from tests.bench.tasks.brokers import BROKERS
from tests.bench.tasks.counting import Count, count, done, sent
from tests.bench.tasks.run import BOUND_S, Program, until
from tests.crash.daemons.world import Power


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    backlog: int = 1000
    paced: int = 400
    rate: float = 40.0  # a second, of the paced ones
    faulted: int = 200


@dataclass(frozen=True)
class Trial:
    """A broker under a library: their names in brokers.BROKERS and brokers.LIBRARIES."""

    broker: str
    library: str

    @property
    def title(self) -> str:
        return BROKERS[self.broker].title


@dataclass
class Found:
    """Of one broker. Seconds, and tasks a second; NaN, and no fault: not measured, `missing` says
    why."""

    put: float = math.nan
    work: float = math.nan
    p50_s: float = math.nan
    p99_s: float = math.nan
    faults: dict[str, Count] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


@contextmanager
def served(trial: Trial, folder: Path, log: Path) -> Iterator[tuple[Peer, Program]]:
    """The broker, and programs that use it; nothing is left of either."""
    broker = BROKERS[trial.broker]
    peer = broker.make(folder)
    try:
        peer.start()
        program = Program(trial.library, broker, peer, log)
        try:
            yield peer, program
        finally:
            program.end()
    finally:
        peer.stop()


def rates(trial: Trial, place: Path, size: Size, found: Found) -> None:
    """A backlog without workers, then the workers alone; then tasks at a pace with workers idle."""
    (folder := place / "server").mkdir()
    with served(trial, folder, place) as (_, program):
        path = place / "backlog"
        if program.sender(path, size.backlog).wait(BOUND_S):
            raise BenchError(f"{trial.title}: a task was refused")
        worker = program.worker()
        until(lambda: len(done(path)) >= size.backlog, "end of the work")
        rows = done(path)
        begun, ended = sorted(row[1] for row in rows), sorted(row[2] for row in rows)
        found.put = (size.backlog - 1) / (begun[-1] - begun[0])
        found.work = (size.backlog - 1) / (ended[-1] - ended[0])
        path = place / "paced"
        program.sender(path, size.paced, size.rate)
        until(lambda: len(done(path)) >= size.paced, "end of the paced ones")
        waits = sorted(end - begin for _, begin, end in done(path))
        found.p50_s = statistics.median(waits)
        found.p99_s = waits[int(len(waits) * 0.99)]
        program.kill(worker)


def worker_dies(trial: Trial, place: Path, size: Size, found: Found) -> None:
    """kill -9 of a worker with its processes in the middle; another one has the rest."""
    (folder := place / "server").mkdir()
    with served(trial, folder, place) as (_, program):
        path = place / "worker"
        program.sender(path, size.faulted).wait(BOUND_S)
        worker = program.worker()
        until(lambda: len(done(path)) > size.faulted // 4, "quarter of the work")
        program.kill(worker)
        program.worker()
        found.faults["worker"] = count(path)


def broker_dies(trial: Trial, place: Path, size: Size, found: Found) -> None:
    """kill -9 of the broker while tasks are sent; it starts again, then a worker."""
    (folder := place / "server").mkdir()
    with served(trial, folder, place) as (peer, program):
        path = place / "broker"
        _interrupted(program, path, size, peer.kill)
        peer.start()
        program.worker()
        found.faults["broker"] = count(path)


def power_fails(trial: Trial, place: Path, size: Size, found: Found) -> None:
    """What was not synced is gone, and the broker starts on what is left. Its folder is synced
    whole behind the first task, as that of one that has run since yesterday."""
    power = Power(place)
    power.on()
    try:
        (folder := power.mount / "server").mkdir()
        with served(trial, folder, place) as (peer, program):
            _work_once(program, place / "warm")
            _sync(power.mount)

            def cut() -> None:
                power.tell("cut", fate="synced")
                peer.kill()

            path = place / "power"
            _interrupted(program, path, size, cut)
            power.off()
            power.on()
            peer.start()
            program.worker()
            found.faults["power"] = count(path)
    finally:
        power.off()


FAULTS: dict[str, Callable[[Trial, Path, Size, Found], None]] = {
    "worker": worker_dies, "broker": broker_dies, "power": power_fails}


def measure(trial: Trial, size: Size, say: Callable[[str], None]) -> Found:
    """All of it, each with a server of its own. What cannot be measured does not end the others."""
    found = Found()
    for name, work in {"rates": rates, **FAULTS}.items():
        what = f"{trial.title}, {name}"
        say(what)
        with tempfile.TemporaryDirectory(prefix="omq-bench-", dir=os.environ.get("OMQ_BENCH_DIR")
                                         ) as folder:
            try:
                work(trial, Path(folder), size, found)
            except BenchError as error:
                say(f"{what}: {error}")
                found.missing.append(f"{what}: {str(error).partition(chr(10))[0]}")
    return found


def _work_once(program: Program, path: Path) -> None:
    """Its queues are declared then."""
    worker = program.worker()
    program.sender(path, 1).wait(BOUND_S)
    until(lambda: done(path), "first task")
    program.kill(worker)


def _interrupted(program: Program, path: Path, size: Size, fault: Callable[[], None]) -> None:
    sender = program.sender(path, size.faulted)
    until(lambda: len(sent(path)) > size.faulted // 2 or sender.poll(), "half of the tasks")
    fault()
    program.kill(sender)


def _sync(folder: Path) -> None:
    for place, _, names in os.walk(folder):
        for name in (place, *(os.path.join(place, each) for each in names)):
            if os.path.isfile(name) or os.path.isdir(name):
                descriptor = os.open(name, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
