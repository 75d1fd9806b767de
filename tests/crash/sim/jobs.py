"""Many lives over a few processes: each job is a workload and a seed."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

from tests.crash.sim.explore import Count, Explorer, record
from tests.crash.sim.faulted import Fault, Starts, beginning, live, sequels
from tests.crash.sim.life import SETTINGS, fixed
from tests.crash.sim.workloads import SMALL_PAGES, WORKLOADS

PROCESSES: Final = min(2, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Job:
    """One life to go through; `second`, `nested`: the share of images that go
    further; `thin`, `part`, `parts`: see Explorer."""

    workload: str
    seed: int
    second: float = 0.05
    nested: float = 0.002
    extra: int = 8
    thin: int = 1
    part: int = 0
    parts: int = 1


def explorer(job: Job) -> Explorer:
    """The life of a job, recorded. Odd seeds write pages of 512 bytes, even ones of 4096."""
    settings = SMALL_PAGES if job.seed % 2 else SETTINGS
    return Explorer(record(job.workload, WORKLOADS[job.workload], job.seed, settings),
                    second=job.second, nested=job.nested, extra=job.extra, thin=job.thin,
                    part=job.part, parts=job.parts)


def work(job: Job) -> Count:
    """Go through it."""
    return explorer(job).run()


def carry_out(jobs: Iterable[Job]) -> Iterator[Count]:
    """The counts of the jobs, as they come."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        for done in as_completed([pool.submit(work, job) for job in jobs]):
            yield done.result()


@dataclass(frozen=True, slots=True)
class FaultJob:
    """Calls fail, one in each life: in runs of `again` calls, which are neighbours and share what
    starts came to, the runs `part`, `part` + `parts`, ... Behind the last of each the manager lives
    on on the same machine."""

    fault: Fault
    part: int
    parts: int
    cuts: int = 1
    again: int = 1


@dataclass(slots=True)
class Failed:
    """What became of it. `ended`: the last life met no fault, so all calls were tried."""

    fired: int = 0
    ended: bool = False
    wrong: list[str] = field(default_factory=list)


def fail(job: FaultJob) -> Failed:
    """One life for each call, until one ends unfaulted."""
    begin, done, starts = beginning(), Failed(), Starts()
    with fixed(7):
        for number in count(1):
            if (number - 1) // job.again % job.parts != job.part:
                continue
            run = live(begin, job.fault, number)
            if not run.fired:
                done.ended = True
                return done
            done.fired += 1
            wrong = sequels(run, Random(number), job.cuts, starts,
                            again=number % job.again == 0)
            if wrong:
                done.wrong.append(f"{job.fault} at call {number}, {run.fired}: {wrong[0]}")
                return done
    raise AssertionError("a life without end")


def fail_each(jobs: Iterable[FaultJob]) -> Iterator[tuple[FaultJob, Failed]]:
    """All of them, over the processes."""
    context = multiprocessing.get_context("spawn")
    listed = list(jobs)
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        yield from zip(listed, pool.map(fail, listed), strict=True)
