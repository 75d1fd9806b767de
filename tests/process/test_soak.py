"""Soak: many submitters and readers at once, in peace and while processes are killed at random.

The seed is new for each run and printed; OMQ_SOAK_SEED repeats one. OMQ_SOAK_MESSAGES and
OMQ_SOAK_KILLS make it longer than it is in a run of all tests.
"""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

from omqtools.omqtest.history import HistoryFile, judge, read_histories
from tests.process.clients import PRIORITIES, QUEUES, Work, left, read, submit
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import Child, start

SUBMITTERS = READERS = 8
MESSAGES = int(os.environ.get("OMQ_SOAK_MESSAGES", "960"))
KILLS = int(os.environ.get("OMQ_SOAK_KILLS", "24"))
KILL_PERIOD_S = 0.15
END_S = 300.0


class Soak:
    """Clients of one instance."""

    def __init__(self, instance: Instance, root: Path, *, gentle: bool) -> None:
        seed = int(os.environ.get("OMQ_SOAK_SEED", "0")) or random.SystemRandom().getrandbits(32)
        print(f"OMQ_SOAK_SEED={seed}")
        self.instance = instance
        self.rng = random.Random(seed)
        self.work = Work(instance.root, root / "histories", root / "stop", seed, gentle)
        self.work.histories.mkdir()
        self.output = root / "clients"
        self.submitters: list[Child] = []
        self.readers: list[Child] = []
        self._number = 0

    def _start(self, name: str, function: Callable[[], int]) -> Child:
        return start(name, function, output=self.output)

    def add_submitter(self, count: int) -> None:
        name = f"s{self._number}"
        self._number += 1
        self.submitters.append(self._start(name, lambda: submit(self.work, name, count)))

    def add_reader(self, number: int) -> None:
        name, queue = f"r{self._number}", QUEUES[number % len(QUEUES)]
        self._number += 1
        batch = (1, 7, 50)[number % 3]
        self.readers.append(self._start(name, lambda: read(
            self.work, name, queue, batch, auxiliary=number >= len(QUEUES))))

    def begin(self, messages: int) -> None:
        for _ in range(SUBMITTERS):
            self.add_submitter(messages // SUBMITTERS)
        for number in range(READERS):
            self.add_reader(number)

    def end(self) -> None:
        """Submitters finish, readers empty the queues, a last round takes what came back late."""
        for child in self.submitters:
            assert child.wait(END_S) in (0, -signal.SIGKILL), self.output.read_text()
        self.work.stop.touch()
        for child in self.readers:
            assert child.wait(END_S) in (0, -signal.SIGKILL), self.output.read_text()
        deadline = time.monotonic() + END_S
        while left(self.instance.root):
            assert time.monotonic() < deadline, "messages are left that nobody gets"
            last = [self._start(f"last{q}", lambda q=q: read(  # type: ignore[misc]
                self.work, f"last{q}", q, 100, auxiliary=False)) for q in (*QUEUES, "POISON")]
            assert [child.wait(END_S) for child in last] == [0] * len(last)

    def check(self) -> None:
        """The verdict, and that there was something to judge."""
        verdict = judge(read_histories(self.work.histories))
        assert verdict.faults == {}
        assert verdict.acknowledged and verdict.delivered >= verdict.acknowledged
        print(verdict)


def test_every_byte_arrives_once_and_in_order(omq_instance: Instance, tmp_path: Path) -> None:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    soak = Soak(omq_instance, tmp_path, gentle=True)
    soak.begin(MESSAGES)
    soak.end()
    soak.check()
    verdict = judge(read_histories(soak.work.histories))
    assert verdict.acknowledged >= MESSAGES and verdict.redelivered == 0
    assert len(PRIORITIES) > 1


def test_nothing_is_lost_while_processes_are_killed(omq_instance: Instance, tmp_path: Path
                                                    ) -> None:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    soak = Soak(omq_instance, tmp_path, gentle=False)
    deaths = HistoryFile(soak.work.histories / "deaths")
    soak.begin(MESSAGES)
    for _ in range(KILLS):
        select.select([], [], [], soak.rng.uniform(0, 2 * KILL_PERIOD_S))  # the killer's pace
        victim = soak.rng.choice((MANAGER, MANAGER, WRITER, "submitter", "reader", "reader"))
        if victim == MANAGER:
            omq_instance.kill()
            deaths.say({"op": "death"})
            omq_instance.start()
        elif victim == WRITER:
            omq_instance.kill(WRITER)
            omq_instance.start(WRITER)
        elif victim == "submitter":
            soak.rng.choice(soak.submitters).kill()
            soak.add_submitter(MESSAGES // SUBMITTERS)
        else:
            number = soak.rng.randrange(READERS)
            since = time.monotonic_ns()
            soak.readers.pop(number).kill()
            deaths.say({"op": "death", "since": since})
            soak.add_reader(number)
    deaths.close()
    soak.end()
    soak.check()
