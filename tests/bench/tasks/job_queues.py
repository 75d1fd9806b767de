"""omq beside job queues on PostgreSQL and Redis, the same jobs in the same run.

    python -m tests.bench.tasks.job_queues [--jobs N] [--rounds N] [--only NAME...]
        [--document FILE]

Each has its own client and its own worker with one job at a time: `omq worker`; procrastinate;
BullMQ (node, and `npm install --prefix build/peers/node bullmq ioredis`); River (Go, and a module
in build/peers/river: tests.bench.tasks.tried.river_tried), left out unless --only names it; and
jobs in a table of PostgreSQL as River has them, by plain SQL through psycopg. Jobs are put one at
a time, then 100 at a time, while the worker is stopped; then it goes on and does them all. Told
are jobs a second, and the processor time of client or worker together with the server's, a job.
Times are told, never judged; that each job was done is waited for.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.bench.document import markdown_table, marked, write_section
from tests.bench.instance import QUEUE, BenchError
from tests.bench.options import end_in_order
from tests.bench.peers import software
from tests.bench.peers.bench_peers import folder
from tests.bench.peers.peer import Peer, ServerPeer
from tests.bench.peers.processes import Server, cpu_of, freeze_all, pause, thaw_all

ROOT: Final = Path(__file__).resolve().parents[3]
JOBS: Final = Path(__file__).parent / "jobs"
NODE: Final = software.HOME / "node"
RIVER: Final = software.HOME / "river"
AT_ONCE: Final = 100
BOUND_S: Final = 600.0
WORKS: Final = ("put one at a time", f"put {AT_ONCE} at a time", "done by one worker")


@dataclass(frozen=True, slots=True)
class Figure:
    """Of one kind of work in one round."""

    rate: float
    processor_us: float


@dataclass(frozen=True, slots=True)
class System:
    """`server`: what keeps the jobs; the others are commands for the server that was started."""

    title: str
    server: Callable[[Path], Peer]
    client: Callable[[Peer], list[str]]
    worker: Callable[[Peer], list[str]]
    make: Callable[[Peer], list[str]] | None = None


def _postgres(place: Path) -> Peer:
    from tests.bench.peers.postgres import PostgresPeer

    return PostgresPeer(place)


def _redis(place: Path) -> Peer:
    from tests.bench.peers.redis_streams import RedisPeer

    return RedisPeer(place)


def _omq(place: Path) -> Peer:
    from tests.bench.peers.omq_peer import OmqPeer

    return OmqPeer(place)


def _where(peer: Peer) -> str:
    if isinstance(peer, ServerPeer):
        return f"host={peer.folder} port={peer.port} dbname=postgres user=bench"
    return str(peer.folder / "spool")


def _port(peer: Peer) -> str:
    assert isinstance(peer, ServerPeer)
    return str(peer.port)


def _python(system: str, what: str) -> Callable[[Peer], list[str]]:
    return lambda peer: [sys.executable, "-P", "-m", "tests.bench.tasks.jobs.python_jobs", system,
                         what, _where(peer)]


def _bullmq(what: str) -> Callable[[Peer], list[str]]:
    return lambda peer: ["node", str(JOBS / "bullmq.mjs"), what, _port(peer), str(NODE)]


@cache
def _river_program() -> str:
    made = folder("river-") / "river"
    atexit.register(shutil.rmtree, made.parent, ignore_errors=True)
    subprocess.run(["go", "build", "-o", made, JOBS / "river.go"], cwd=RIVER, check=True,
                   timeout=BOUND_S)
    return str(made)


def _river(what: str) -> Callable[[Peer], list[str]]:
    return lambda peer: [_river_program(), what, _where(peer)]


def _omq_worker(peer: Peer) -> list[str]:
    return [sys.executable, "-P", "-m", "omq.cli.launch", "omq", "worker",
            "tests.bench.tasks.jobs.counting_worker:job", "--queue", QUEUE, "--concurrency", "1",
            "--path", str(ROOT), "--spool", _where(peer)]


SYSTEMS: Final = {
    "omq": System("omq", _omq, _python("omq", "client"), _omq_worker),
    "procrastinate": System(
        "procrastinate (PostgreSQL)", _postgres, _python("procrastinate", "client"),
        _python("procrastinate", "worker"), _python("procrastinate", "make")),
    "sql": System("SQL as River's (PostgreSQL)", _postgres, _python("sql", "client"),
                  _python("sql", "worker"), _python("sql", "make")),
    "bullmq": System("BullMQ (Redis)", _redis, _bullmq("client"), _bullmq("worker")),
    "river": System("River (PostgreSQL)", _postgres, _river("client"), _river("worker"),
                    _river("make")),
}


def one_round(system: System, place: Path, jobs: int) -> tuple[Figure, ...]:
    """One of each of WORKS."""
    marks = (1, 1 + 2 * jobs)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMQ_BENCH_PLACE": str(place / "counted"),
               "OMQ_BENCH_MARKS": " ".join(map(str, marks))}
    peer = system.server(place)
    worker = Server("worker", place)
    try:
        peer.start()
        if system.make is not None:
            subprocess.run(system.make(peer), check=True, env=environ, timeout=BOUND_S)
        worker.start(list(system.worker(peer)), environ)
        with _client(system.client(peer), environ) as client:
            _put(client, 1, 1)
            _counted(place, marks[0], worker)
            freeze_all(worker.pids())
            found: list[Figure] = []
            for batch in (1, AT_ONCE):
                with _cost(jobs, lambda: [client.pid, *peer.pids()], found):
                    _put(client, jobs, batch)
            with _cost(2 * jobs, lambda: [*worker.pids(), *peer.pids()], found):
                thaw_all(worker.pids())
                _counted(place, marks[1], worker)
        return tuple(found)
    finally:
        worker.stop()
        peer.stop()


@contextmanager
def _client(command: list[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(BOUND_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _put(client: subprocess.Popen[str], jobs: int, batch: int) -> None:
    assert client.stdin is not None and client.stdout is not None
    client.stdin.write(f"put {jobs} {batch}\n")
    client.stdin.flush()
    if client.stdout.readline() != "put\n":
        raise BenchError("the client has ended")


def _counted(place: Path, number: int, worker: Server) -> None:
    path, deadline = Path(f"{place / 'counted'}.{number}"), time.monotonic() + BOUND_S
    while not path.exists():
        worker.check_alive()
        if time.monotonic() > deadline:
            raise BenchError(f"job {number} is not done in {BOUND_S:g} s:\n{worker.tail()}")
        pause(0.002)


@contextmanager
def _cost(jobs: int, pids: Callable[[], list[int]], found: list[Figure]) -> Iterator[None]:
    before, began = cpu_of(pids()), time.monotonic()
    yield
    took_s = time.monotonic() - began
    found.append(Figure(jobs / took_s, (cpu_of(pids()) - before) / jobs * 1e6))


def table(found: dict[str, list[tuple[Figure, ...]]]) -> str:
    def cell(rounds: list[tuple[Figure, ...]], work: int) -> str:
        rate, cost = (statistics.median(getattr(each[work], key) for each in rounds)
                      for key in ("rate", "processor_us"))
        return f"{rate:,.0f} a s, {cost:,.0f} us"

    return markdown_table(
        ("", *(SYSTEMS[name].title for name in found)),
        [(work, *(cell(rounds, number) for rounds in found.values()))
         for number, work in enumerate(WORKS)])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="job_queues")
    parser.add_argument("--jobs", type=int, default=2000, help=f"a multiple of {AT_ONCE}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=SYSTEMS,
                        default=[name for name in SYSTEMS if name != "river"])
    parser.add_argument("--document", type=marked("jobs"), help="where the table goes")
    options = parser.parse_args(argv)
    if options.jobs < AT_ONCE or options.jobs % AT_ONCE:
        parser.error(f"--jobs: a multiple of {AT_ONCE}")
    end_in_order()
    before, found = os.getloadavg()[0], dict[str, list[tuple[Figure, ...]]]()
    for number in range(options.rounds):
        for name in options.only:
            place = folder("jobs-")
            try:
                found.setdefault(name, []).append(
                    one_round(SYSTEMS[name], place, options.jobs))
            except BenchError as error:
                sys.stderr.write(f"{name}: {error}\n")
                return 1
            finally:
                shutil.rmtree(place)
            print(f"round {number + 1}: {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    text = (f"{options.jobs} jobs, medians of {options.rounds} rounds by turns. Load average "
            f"{before:.1f} before, {os.getloadavg()[0]:.1f} after; {os.cpu_count()} processors.\n\n"
            f"{table(found)}")
    print(text)
    if options.document:
        write_section(options.document, "jobs", text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
