"""Storms: signals every 50 ms at whatever lives, then peace; and many kills leave nothing behind.

OMQ_CRASH_LONG=1 (make crash): minutes instead of seconds.
"""

from __future__ import annotations

import os
import random
import select
import signal
import time
from pathlib import Path

import pytest

from omqtools.omqtest.child import Child
from omqtools.omqtest.instance import MANAGER, WAIT_S, WRITER
from tests.crash.daemons.world import Run, ipc_objects, private_ipc, running

LONG = bool(os.environ.get("OMQ_CRASH_LONG"))
STORM_S = 180.0 if LONG else 5.0
PAUSE_S = 0.05
KILLS = 100 if LONG else 15
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP, signal.SIGCONT,
           signal.SIGCONT)


class Storm:
    """A run, and what was thrown at it."""

    def __init__(self, run: Run, seed: int) -> None:
        self._run = run
        self._chance = random.Random(seed)
        self.thrown: dict[tuple[str, str], int] = {}
        self.daemon_deaths = 0
        # A stopped process dies of SIGSEGV when it goes on; one that waits for the disk or for its
        # turn dies of SIGKILL a while later.
        self._doomed: list[Child] = []

    def blow(self, seconds: float, deaths: float) -> None:
        """Every 50 ms a signal; what has died is started again. Longer on a slow machine, until so
        many daemons have died."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or (
                self.daemon_deaths <= deaths and time.monotonic() < end + WAIT_S):
            select.select([], [], [], PAUSE_S)
            self._restart()
            name, victim = self._chance.choice(self._alive())
            number = self._chance.choice(SIGNALS)
            victim.send_signal(number)
            if number in (signal.SIGSEGV, signal.SIGKILL):
                self._doomed.append(victim)
            key = (name, number.name)
            self.thrown[key] = self.thrown.get(key, 0) + 1

    def _alive(self) -> list[tuple[str, Child]]:
        """Daemons count as much as all clients of a kind."""
        clients = self._run.load.clients
        return [*self._run.instance.running.items(),
                ("reader", self._chance.choice(clients["reader"])),
                ("putter", self._chance.choice(clients["putter"]))]

    def _restart(self) -> None:
        running = self._run.instance.running
        for name in (MANAGER, WRITER):
            if running[name].poll() is not None:
                if name == MANAGER:
                    self._run.died()
                self.daemon_deaths += 1
                self._run.instance.start(name)
        self._run.load.keep(readers=3, putters=3)

    def calm(self) -> None:
        """Everybody goes on; what has died comes back a last time."""
        clients = self._run.load.clients
        for child in (*self._run.instance.running.values(), *clients["reader"],
                      *clients["putter"]):
            child.send_signal(signal.SIGCONT)
        for child in self._doomed:
            assert child.wait(WAIT_S) is not None, "a process outlives its death"
        # A manager that starts may still wait for the pool lock of a writer that was stopped.
        self._run.instance.running[MANAGER].wait(1.0)
        self._restart()
        self._run.instance.ready()


@pytest.mark.parametrize("seed", [1, 2] if not LONG else [int(time.time())])
def test_storm(tmp_path: Path, seed: int) -> None:
    """Nothing lost, resurrected or doubled; all is served once it is calm (I9)."""
    with running(tmp_path / "spool", tmp_path) as run:
        run.start()
        run.load.keep(readers=3, putters=3)
        run.more(20)
        storm = Storm(run, seed)
        storm.blow(STORM_S, STORM_S / 5)
        storm.calm()
        assert storm.daemon_deaths > STORM_S / 5, storm.thrown
        run.more(20)
        found = run.verdict()
        print(f"seed {seed}: {sum(storm.thrown.values())} signals, {storm.daemon_deaths} deaths of "
              f"daemons, {found.acknowledged} acknowledged, {found.redelivered} redelivered")


def test_many_kills_leave_no_object(tmp_path: Path) -> None:
    """After each start there is one manager's worth of System V objects, however many died."""
    with running(tmp_path / "spool", tmp_path) as run:
        counts = set()
        for _ in range(KILLS):
            run.instance.start(MANAGER)
            run.instance.ready()
            with run.instance.connect() as c:
                c.put("A", b"x")
                counts.add(ipc_objects())
            run.instance.kill(MANAGER)
        assert max(counts) - min(counts) <= 1  # the channel of the one before (ADR 0035)
        run.start()
        run.instance.stop()
        assert ipc_objects() == 0


def test_private_namespace_is_private() -> None:
    """The harness itself: objects of others do not show here."""
    with private_ipc():
        assert ipc_objects() == 0
