"""Tasks, chains, chords and pipelines while workers and the queue manager are killed: what was sent
is done. For tests/crash/daemons/test_task_storm.py."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.process.instance import MANAGER, Instance
from tests.process.task_workers import ROOT, _environment, lines, said, until

WORKERS: Final = 2


@dataclass(frozen=True)
class Kind:
    """A library: a program that sends tasks number 0 to count - 1, its queue, that of results."""

    program: str
    queue: str
    results: str = ""


CELERY: Final = Kind("""
import sys
from tests.process.celery_app import chain, chord, collected, noted
path, count = sys.argv[1], int(sys.argv[2])
numbers = iter(range(count))
def some(n):
    return [noted.si(path, next(numbers)).set(ignore_result=False) for _ in range(n)]
for hundred in range(0, count, 100):
    left = min(100, count - hundred)
    while left > 80:
        chain(*some(3)).apply_async()
        chord(some(4), collected.s(path, next(numbers))).apply_async()
        left -= 8
    for _ in range(left):
        noted.apply_async((path, next(numbers)), ignore_result=True)
""", "CELERY", "CELERY.RESULTS")

DRAMATIQ: Final = Kind("""
import sys
import dramatiq
from tests.process.dramatiq_app import noted
path, count = sys.argv[1], int(sys.argv[2])
numbers = iter(range(count))
for hundred in range(0, count, 100):
    left = min(100, count - hundred)
    while left > 80:
        dramatiq.pipeline([noted.message_with_options(args=(path, next(numbers)), pipe_ignore=True)
                           for _ in range(3)]).run()
        left -= 3
    for _ in range(left):
        noted.send(path, next(numbers))
""", "DEFAULT")


def _has(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size >= size


Worker = Callable[[], AbstractContextManager[subprocess.Popen[bytes]]]


class Workers:
    """Some of one kind; one that is killed goes with all its processes, and another one starts."""

    def __init__(self, make: Worker, stack: ExitStack) -> None:
        self._make, self._stack = make, stack
        self._running = [stack.enter_context(make()) for _ in range(WORKERS)]

    def kill_one(self, chance: random.Random) -> None:
        self._kill(self._running.pop(chance.randrange(WORKERS)))
        self._running.append(self._stack.enter_context(self._make()))

    def kill_all(self) -> None:
        """The end: who has just begun to start cannot be stopped in order yet."""
        while self._running:
            self._kill(self._running.pop())

    def _kill(self, victim: subprocess.Popen[bytes]) -> None:
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()


def storm(instance: Instance, kind: Kind, make: Worker, path: Path, count: int, kills: int,
          seed: int) -> int:
    """The kills are spread over the work: the n-th happens when n parts of it are done. Workers and
    manager by turns. How many tasks were begun twice."""
    chance = random.Random(seed)
    size = sum(len(f"{n}\n") for n in range(count))
    with ExitStack() as stack:
        workers = Workers(make, stack)
        sender = stack.enter_context(subprocess.Popen(
            [sys.executable, "-c", kind.program, str(path), str(count)], cwd=ROOT,
            env=_environment(instance)))
        for kill in range(kills):
            mark = size * (kill + 1) // (kills + 1)
            until(partial(_has, path, mark), instance)
            if kill % 2:
                workers.kill_one(chance)
            else:
                instance.kill(MANAGER)
                instance.start(MANAGER)
                instance.ready()
        assert sender.wait() == 0, said(instance)
        while True:  # as long as something is done, however slowly
            progress = path.stat().st_size
            if len(set(lines(path))) == count:
                break
            until(partial(_has, path, progress + 1), instance)
        with instance.connect() as connection:
            until(lambda: not connection.queues.show(kind.queue).messages, instance)
            assert connection.queues.show("POISON").messages == 0
        workers.kill_all()
    done = lines(path)
    assert {int(each) for each in done} == set(range(count))
    if kind.results:
        instance.drain(kind.results)
    return len(done) - count
