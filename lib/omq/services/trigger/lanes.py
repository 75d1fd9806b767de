"""Which triggered program is started when: runs at once, starts in a time, pauses after failures.

A Lane is one program of triggers.conf with the trigger messages that wait for it; nothing here
starts a process or speaks to the queue manager.

Invariants: 1. a message is in one lane, waiting or running, from `add` to the `done` of its run;
2. at most `runs_max` of a program run, and `trigger_starts_max` were started within
trigger_period_s; 3. after a failure nothing of the program is started before its pause is over;
4. for one queue, at most one program of first or depth runs at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from omq.base.config import EVERY
from omq.base.settings import Settings
from omq.services.daemon.restart_backoff import Backoff
from omq.services.trigger.programs import Program

FOREVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Trigger:
    """What a trigger message asks for; `message` is the queue manager's."""

    message: Any
    queue: str
    kind: str
    program: str
    messages: int


@dataclass(slots=True)
class Run:
    """A program that runs."""

    trigger: Trigger
    program: Program
    pid: int
    began: float  # monotonic s
    killed: bool = False

    @property
    def ends(self) -> float:
        """When its time is over."""
        return self.began + self.program.timeout_s if self.program.timeout_s else FOREVER


@dataclass(slots=True)
class Lane:
    """See the module."""

    backoff: Backoff
    waiting: deque[Trigger] = field(default_factory=deque)
    running: dict[int, Run] = field(default_factory=dict)  # by pid
    starts: deque[float] = field(default_factory=deque)
    not_before: float = 0.0
    unknown_told: bool = False

    def next(self, program: Program, settings: Settings, now: float) -> Trigger | None:
        """The trigger message whose program may be started now, off the line; None: none may."""
        if (len(self.running) >= program.runs_max or now < self.not_before
                or now < self._rated(settings, now)):
            return None
        busy = {run.trigger.queue for run in self.running.values()}
        for at, trigger in enumerate(self.waiting):
            if trigger.kind == EVERY or trigger.queue not in busy:
                del self.waiting[at]
                return trigger
        return None

    def started(self, run: Run) -> None:
        """It runs."""
        self.running[run.pid] = run
        self.starts.append(run.began)

    def failed(self, trigger: Trigger, lived_s: float, now: float) -> float:
        """It returns, first of all, after a pause; its seconds."""
        self.waiting.appendleft(trigger)
        pause = self.backoff.next_wait_s(lived_s)
        self.not_before = max(self.not_before, now + pause)
        return pause

    def due(self, settings: Settings, now: float) -> float:
        """When something may be started, or has to be killed, without that a program ends."""
        ends = min((run.ends for run in self.running.values() if not run.killed), default=FOREVER)
        start = max(self.not_before, self._rated(settings, now))
        return min(ends, start if self.waiting and start > now else FOREVER)

    def _rated(self, settings: Settings, now: float) -> float:
        """When the next start keeps the rate."""
        while self.starts and self.starts[0] <= now - settings.trigger_period_s:
            self.starts.popleft()
        if len(self.starts) < settings.trigger_starts_max:
            return 0.0
        return self.starts[0] + settings.trigger_period_s


class Lanes:
    """All of them, by the name of the program."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lanes: dict[str, Lane] = {}

    def of(self, program: str) -> Lane:
        """That of a program, known or not."""
        lane = self._lanes.get(program)
        if lane is None:
            lane = self._lanes[program] = Lane(Backoff(
                self.settings.trigger_backoff_min_s, self.settings.trigger_backoff_max_s))
        return lane

    def __iter__(self) -> Iterator[tuple[str, Lane]]:
        return iter(list(self._lanes.items()))

    @property
    def running(self) -> dict[int, tuple[Lane, Run]]:
        """All that run, by pid."""
        return {pid: (lane, run) for _, lane in self for pid, run in lane.running.items()}

    def tidy(self) -> None:
        """Lanes that nothing says anything of."""
        self._lanes = {name: lane for name, lane in self._lanes.items()
                       if lane.waiting or lane.running or lane.starts}
