"""CRASH=1: kills daemons in the middle of the feed, and proves that they died and came back.

Each victim is killed with SIGKILL through a pidfd as soon as a share of the messages is accepted:
the pidfd names one process for certain, and turning readable it proves the death. Then the run
files must show another process in its place, started. A victim that cannot be found, does not die
or is not replaced is a CrashError: the run then fails, for it would have proved nothing.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.demo.alongside import Alongside
from tests.demo.feed import Progress
from tests.demo.processes import Daemon, auxiliaries, daemon, main_reader

_FIND_WAIT_S = 30.0  # a victim may just be starting
_DEATH_WAIT_S = 10.0  # SIGKILL acts at once, but for a process in the middle of a disk write
_RETURN_WAIT_S = 60.0  # a restarted manager replays its journal; readers wait out a back-off
_POLL_S = 0.05

Finder = Callable[[Path], tuple[Daemon, ...]]


class CrashError(Exception):
    """A victim was not found, did not die, or did not come back."""


@dataclass(frozen=True, slots=True)
class Victim:
    """Whom to kill, and when: once this share of all messages is accepted."""

    name: str
    accepted_share: float
    find: Finder


VICTIMS = (
    Victim("queue.manager", 0.30, lambda run: daemon(run, "qmgr")),
    Victim("pool.writer", 0.45, lambda run: daemon(run, "pool")),
    Victim("service.router main reader", 0.60, lambda run: main_reader(run, "router")),
    Victim("local.delivery auxiliary reader", 0.60, lambda run: auxiliaries(run, "local")),
)


class Crasher(Alongside):
    """Kills the victims one after the other while the feed runs, in a thread of its own."""

    def __init__(self, run: Path, feed: Progress, say: Callable[[str], None]) -> None:
        super().__init__("crasher")
        self._run = run
        self._feed = feed
        self._say = say

    def _happen(self) -> None:
        for victim in VICTIMS:
            count = int(self._feed.counts().total * victim.accepted_share)
            if not self._feed.wait_accepted(count):
                raise CrashError(f"the feed ended before {count} messages were accepted")
            self._kill(victim)

    def _kill(self, victim: Victim) -> None:
        before = self._until(lambda: victim.find(self._run), _FIND_WAIT_S, f"find {victim.name}")
        target = before[0]
        began = time.monotonic()
        kill_and_prove(target)
        counts = self._feed.counts()
        place = f"at {counts.accepted} of {counts.total} accepted"
        self._say(f"killed {victim.name}, pid {target.pid}, {place}")

        def replaced() -> tuple[Daemon, ...]:
            now = victim.find(self._run)
            return now if target not in now and len(now) >= len(before) else ()

        after = self._until(replaced, _RETURN_WAIT_S, f"see {victim.name} come back")
        new = next(each for each in after if each not in before)
        took_s = time.monotonic() - began
        self._say(f"{victim.name} is back as pid {new.pid} after {took_s:.1f} s")

    def _until(
        self, find: Callable[[], tuple[Daemon, ...]], wait_s: float, what: str
    ) -> tuple[Daemon, ...]:
        """Look until there is an answer."""
        deadline = time.monotonic() + wait_s
        while not (found := find()):
            if self._stopping.wait(_POLL_S):
                raise CrashError(f"stopped while waiting to {what}")
            if time.monotonic() > deadline:
                raise CrashError(f"waited {wait_s:.0f} s to {what}")
        return found


def kill_and_prove(target: Daemon) -> None:
    """SIGKILL exactly this process and wait until it is dead; CrashError when it was gone."""
    try:
        descriptor = os.pidfd_open(target.pid)
    except ProcessLookupError as gone:
        raise CrashError(f"process {target.pid} died by itself before it was killed") from gone
    try:
        # The pidfd now holds the number; if the start time still fits, it is the one we mean.
        if not target.alive():
            raise CrashError(f"process {target.pid} is another one than the run files say")
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        readable, _, _ = select.select([descriptor], [], [], _DEATH_WAIT_S)
        if not readable:
            raise CrashError(f"process {target.pid} lives on {_DEATH_WAIT_S:.0f} s after SIGKILL")
    finally:
        os.close(descriptor)
