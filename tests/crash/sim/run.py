"""`make crash`: the simulator with fresh seeds for as long as it is told, or one state again.

    python -m tests.crash.sim.run --minutes 10            L1 over both cores
    python -m tests.crash.sim.run --replay plain 7 120 torn:0:half
    python -m tests.crash.sim.run --mutant no-crc --replay ...

Exit code 0: nothing was found, 1: the promise was broken; the state is printed and saved.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext

from tests.crash.sim.explore import Count
from tests.crash.sim.jobs import PROCESSES, Job, carry_out, explorer
from tests.crash.sim.mutants import MUTANTS
from tests.crash.sim.report import describe
from tests.crash.sim.workloads import WORKLOADS


def main(argv: list[str] | None = None) -> int:
    """See the module."""
    options = _parser().parse_args(argv)
    if options.replay:
        return _replay(options.replay, options.mutant)
    return _explore(options.minutes * 60, options.seed or secrets.randbelow(1 << 30))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="where the seeds begin; 0: by chance")
    parser.add_argument("--replay", nargs=4, metavar=("WORKLOAD", "SEED", "CUT", "STATE"))
    parser.add_argument("--mutant", default="", help="with a historical bug switched on")
    return parser


def _replay(words: list[str], mutant: str) -> int:
    with MUTANTS[mutant].switched_on() if mutant else nullcontext():
        count = explorer(Job(words[0], int(words[1]))).run(only=(int(words[2]), words[3]))
    for violation in count.violations:
        print(describe(violation, mutant))
    print(f"{count.states} states judged, {len(count.violations)} break the promise")
    return 1 if count.violations else 0


def _jobs(seed: int, until: float) -> Iterator[Job]:
    for turn in itertools.count():
        for name in WORKLOADS:
            if time.monotonic() >= until:
                return
            yield Job(name, seed + turn, second=0.1, nested=0.005)


def _explore(seconds: float, seed: int) -> int:
    began = time.monotonic()
    total = Count()
    print(f"L1: seeds from {seed}, {seconds:.0f} s on {PROCESSES} processes", flush=True)
    jobs = _jobs(seed, began + seconds)
    while batch := list(itertools.islice(jobs, 4 * PROCESSES)):
        for count in carry_out(batch):
            total.add(count)
        print(_line(total, time.monotonic() - began), flush=True)
        if total.violations:
            break
    for violation in total.violations:
        print(describe(violation))
    return 1 if total.violations else 0


def _line(count: Count, seconds: float) -> str:
    rate = count.states / seconds * 60
    return (f"{seconds:6.0f} s: {count.lives} lives, {count.events} events, {count.states} states "
            f"judged ({rate:.0f} a minute), {count.images} different images, {count.second} second "
            f"cuts, {count.nested} cuts of a recovery")


if __name__ == "__main__":
    sys.exit(main())
