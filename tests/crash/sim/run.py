"""`make crash`: the simulator with fresh seeds for as long as it is told, or one state again.

    python -m tests.crash.sim.run --hours 1               L1, L2 and L3 in turn
    python -m tests.crash.sim.run --replay plain 7 120 torn:0:half
    python -m tests.crash.sim.run --mutant no-crc --replay ...

Exit code 0: nothing was found, 1: the promise was broken; what was found is printed, and the image
of an L1 state is saved in build/crash.
"""

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext

from tests.crash.sim.absence import LIVES as LIVES_ENDED
from tests.crash.sim.absence import Tally, try_all
from tests.crash.sim.explore import Count
from tests.crash.sim.faulted import FAULTS
from tests.crash.sim.jobs import PROCESSES, FaultJob, Job, carry_out, explorer, fail_each
from tests.crash.sim.memory import OPERATIONS, out_of_memory
from tests.crash.sim.mutants import MUTANTS
from tests.crash.sim.report import describe
from tests.crash.sim.workloads import WORKLOADS

LIVES = 300  # of Hypothesis, in one turn


def main(argv: list[str] | None = None) -> int:
    """See the module."""
    options = _parser().parse_args(argv)
    if options.replay:
        return _replay(options.replay, options.mutant)
    began, seed = time.monotonic(), options.seed or secrets.randbelow(1 << 30)
    until = began + options.hours * 3600
    print(f"seeds from {seed}, {options.hours} h on {PROCESSES} processes", flush=True)
    # Half of the time for L1; the rest is small and is done once a round.
    while True:
        half = time.monotonic() + max(60.0, (until - time.monotonic()) / 2)
        if _explore(min(half, until), seed) or _absence(seed) or _fail() or _lives(seed):
            return 1
        seed += 1_000_000
        if time.monotonic() >= until:
            print(f"nothing found in {time.monotonic() - began:.0f} s", flush=True)
            return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0, help="where the seeds begin; 0: by chance")
    parser.add_argument("--replay", nargs=4, metavar=("WORKLOAD", "SEED", "CUT", "STATE"))
    parser.add_argument("--mutant", default="", help="with a historical bug switched on")
    return parser


def _replay(words: list[str], mutant: str) -> int:
    job = Job(words[0], int(words[1]))
    with MUTANTS[mutant].switched_on() if mutant else nullcontext():
        count = explorer(job).run(only=(int(words[2]), words[3]))
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


def _explore(until: float, seed: int) -> bool:
    """L1; True: something was found."""
    began, total = time.monotonic(), Count()
    jobs = _jobs(seed, until)
    while batch := list(itertools.islice(jobs, 4 * PROCESSES)):
        for count in carry_out(batch):
            total.add(count)
        print(_line(total, time.monotonic() - began), flush=True)
        if total.violations:
            break
    for violation in total.violations:
        print(describe(violation))
    return bool(total.violations)


def _absence(seed: int) -> bool:
    """L6, one seed for each life; True: something was silent."""
    total = Tally()
    for name in LIVES_ENDED:
        for stopped in (True, False):
            total.add(try_all(name, seed, stopped=stopped))
    for silent in total.silent:
        print(f"L6: {silent}")
    print(f"L6: {total.tried} faults of {2 * len(LIVES_ENDED)} spools", flush=True)
    return bool(total.silent)


def _line(count: Count, seconds: float) -> str:
    rate = count.states / seconds * 60
    return (f"L1 {seconds:6.0f} s: {count.lives} lives, {count.events} events, {count.states} "
            f"states judged ({rate:.0f} a minute), {count.images} different images, "
            f"{count.second} second cuts, {count.nested} cuts of a recovery")


def _fail() -> bool:
    """L3, every call and every line."""
    runs = 0
    jobs = [FaultJob(fault, part, 4, cuts=4) for fault in FAULTS for part in range(4)]
    for job, done in fail_each(jobs):
        runs += done.fired
        for wrong in done.wrong:
            print(f"L3: {wrong}\n  replay: pytest tests/crash/sim/test_faulted.py ({job})")
            return True
    lines = sum(out_of_memory(name, 3) for name in OPERATIONS)
    print(f"L3: {runs} lives with a failed call, {lines} requests without memory", flush=True)
    return False


def _lives(seed: int) -> bool:
    """L2; Hypothesis shrinks and prints what it finds, with the blob that replays it."""
    command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}",
               "tests/crash/sim/test_lives.py"]
    found = subprocess.run(command, env={**os.environ, "OMQ_CRASH_EXAMPLES": str(LIVES)},
                           check=False)
    print(f"L2: {LIVES} lives, seed {seed}", flush=True)
    return found.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
