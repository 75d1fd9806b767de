"""Many lives over a few processes: each job is a workload and a seed."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Final

from tests.crash.sim.explore import Count, Explorer, record
from tests.crash.sim.life import SETTINGS
from tests.crash.sim.workloads import SMALL_PAGES, WORKLOADS

PROCESSES: Final = min(2, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Job:
    """One life to go through; `second`, `nested`: the share of images that go further."""

    workload: str
    seed: int
    second: float = 0.05
    nested: float = 0.002
    extra: int = 8


def explorer(job: Job) -> Explorer:
    """The life of a job, recorded. Odd seeds write pages of 512 bytes, even ones of 4096."""
    settings = SMALL_PAGES if job.seed % 2 else SETTINGS
    return Explorer(record(job.workload, WORKLOADS[job.workload], job.seed, settings),
                    second=job.second, nested=job.nested, extra=job.extra)


def work(job: Job) -> Count:
    """Go through it."""
    return explorer(job).run()


def carry_out(jobs: Iterable[Job]) -> Iterator[Count]:
    """The counts of the jobs, as they come."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        for done in as_completed([pool.submit(work, job) for job in jobs]):
            yield done.result()
