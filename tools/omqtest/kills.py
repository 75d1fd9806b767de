"""Daemons killed with SIGKILL under load, again and again, on the directory under test.

Each round kills one of queue.manager, pool.writer, both, a reader, a submitter, and starts it
again; clients go on as they would in life. At the end everything is read and the histories judged.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from omqtools.omqtest.child import Child
from omqtools.omqtest.clients import OTHER, QUEUE
from omqtools.omqtest.history import HistoryFile, Verdict, judge, read_histories
from omqtools.omqtest.instance import MANAGER, WRITER, Instance, RunError, instance

VICTIMS = ((MANAGER,), (WRITER,), (MANAGER, WRITER), ("reader",), ("putter",))
LOAD = 100_000  # more messages than a putter gets done: it ends by its kill or at the end
PAUSE_S = (0.05, 0.6)
DRAIN_WAIT_S = 300.0


@dataclass(slots=True)
class Kills:
    """What came out."""

    done: int = 0
    verdict: Verdict = field(default_factory=Verdict)


class Load:
    """Clients that are always there: who dies is followed by another one."""

    def __init__(self, run: Instance, place: Path) -> None:
        self._run = run
        self.histories = place / "histories"
        self.histories.mkdir(parents=True)
        self.until = place / "until"
        self.deaths = HistoryFile(self.histories / "deaths")
        self._before_ns = self._looked_ns = time.monotonic_ns()
        self._number = 0
        self.clients: dict[str, list[Child]] = {"reader": [], "putter": []}

    def keep(self, readers: int = 2, putters: int = 2) -> None:
        """As many as wanted, alive."""
        # Who dies loses its connection, and what it had in hand, a while before it can be waited
        # for: at the last look it may have been dying.
        since = self._before_ns
        self._before_ns, self._looked_ns = self._looked_ns, time.monotonic_ns()
        if any(reader.poll() is not None for reader in self.clients["reader"]):
            self.deaths.say({"op": "death", "since": since})
        for kind, wanted in (("reader", readers), ("putter", putters)):
            alive = [client for client in self.clients[kind] if client.poll() is None]
            self.clients[kind] = alive + [self._new(kind) for _ in range(wanted - len(alive))]

    def _new(self, kind: str) -> Child:
        self._number += 1
        if kind == "reader":
            return self._run.client("read", f"r{self._number}", self.histories, until=self.until,
                                    share=90)
        return self._run.client("put", f"p{self._number}", self.histories, count=LOAD)

    def kill(self, kind: str) -> None:
        victim = self.clients[kind].pop(0)
        since = time.monotonic_ns()
        victim.kill()
        victim.wait()
        if kind == "reader":
            self.deaths.say({"op": "death", "since": since})

    def lost(self) -> None:
        """The host of all of them is gone."""
        since = self._looked_ns
        for client in [*self.clients["reader"], *self.clients["putter"]]:
            client.kill()
            client.wait()
        self.clients = {"reader": [], "putter": []}
        self.deaths.say({"op": "death", "since": since})

    def move(self, run: Instance) -> None:
        """The next ones are clients of that instance."""
        self._run = run
        self._before_ns = self._looked_ns = time.monotonic_ns()

    def finish(self) -> Verdict:
        """Submitters end, readers empty the queues; the judgement."""
        for putter in self.clients["putter"]:
            putter.kill()
            putter.wait()
        self.until.touch()
        for reader in self.clients["reader"]:
            if reader.wait(DRAIN_WAIT_S) is None:
                raise RunError("a reader does not end")
        deadline = time.monotonic() + DRAIN_WAIT_S
        while self._waiting():  # what a dead reader held comes back after a while
            last = self._run.client("read", "last", self.histories, until=self.until)
            if last.wait(DRAIN_WAIT_S) != 0 or time.monotonic() > deadline:
                raise RunError(f"the queues could not be emptied:\n{self._run.said()}")
        return judge(read_histories(self.histories))

    def _waiting(self) -> int:
        """Messages on any queue, in any state."""
        with self._run.connect() as c:
            return sum(1 for queue in (QUEUE, OTHER) for _ in c.browse(queue))

    def end(self) -> None:
        """Leave no process."""
        for client in [*self.clients["reader"], *self.clients["putter"]]:
            client.kill()
            client.wait()


def kill_loop(target: Path, scratch: Path, count: int, seed: int) -> Kills:
    """See the module."""
    chance = random.Random(seed)
    kills = Kills()
    if not count:
        return kills
    spool = target / "kill-spool"
    spool.mkdir(mode=0o750)
    with instance(spool, scratch / "kills") as run:
        load = Load(run, scratch / "kills")
        try:
            run.start()
            run.ready()
            for number in range(count):
                load.keep()
                time.sleep(chance.uniform(*PAUSE_S))
                victims = VICTIMS[number % len(VICTIMS)]
                for victim in victims:
                    if victim in load.clients:
                        load.kill(victim)
                    else:
                        run.kill(victim)
                if MANAGER in victims:
                    load.deaths.say({"op": "death"})
                missing = [name for name in (MANAGER, WRITER) if name not in run.running]
                if missing:
                    run.start(*missing)
                run.ready()
                kills.done += 1
            kills.verdict = load.finish()
            run.stop()
        finally:
            load.end()
    return kills
