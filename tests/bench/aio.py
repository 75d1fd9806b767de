"""A thousand coroutines that put, beside threads and one native connection: puts a second, and
processor time of the program a put.

    python -m tests.bench.aio
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import omq
import omq.aio
from tests.process.instance import instance

PUTS = 4000
BODY = bytes(1024)


def measured(name: str, work: Callable[[], None]) -> None:
    began, used = time.perf_counter(), time.process_time()
    work()
    took, spent = time.perf_counter() - began, time.process_time() - used
    print(f"{name:32} {PUTS / took:8,.0f} puts/s {1e6 * spent / PUTS:8.1f} us of processor a put")


def alone(root: Path) -> None:
    with omq.connect(root) as connection:
        for _ in range(PUTS):
            connection.put("A", BODY)


def threads(root: Path, number: int) -> None:
    def one() -> None:
        with omq.connect(root) as connection:
            for _ in range(PUTS // number):
                connection.put("A", BODY)

    all_of_them = [threading.Thread(target=one) for _ in range(number)]
    for each in all_of_them:
        each.start()
    for each in all_of_them:
        each.join()


def coroutines(root: Path, number: int) -> None:
    async def whole() -> None:
        async with omq.aio.connect(root) as connection:
            async def one() -> None:
                for _ in range(PUTS // number):
                    await connection.put("A", BODY)

            await asyncio.gather(*(one() for _ in range(number)))

    asyncio.run(whole())


def main() -> None:
    print(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="omq-bench-", dir=os.environ.get("OMQ_BENCH_DIR")
                                     ) as folder, instance(Path(folder)) as made:
        made.start()
        made.ready()
        for _ in range(2):
            for name, work in (
                    ("1 native connection", partial(alone, made.root)),
                    ("8 threads", partial(threads, made.root, 8)),
                    ("1,000 coroutines, 4 connections", partial(coroutines, made.root, 1000))):
                measured(name, work)
                assert len(made.drain("A")) == PUTS


if __name__ == "__main__":
    main()
