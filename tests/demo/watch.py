"""Watches the run until all is quiet, and shows it.

Quiet means: the feed is over, nobody is still to be killed or to come back, and every queue that
has a reader is empty in two looks with nothing put in between. As long as anything moves the watch
is patient, however slow the machine; it gives up when nothing at all moved for a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.demo.crash import Crasher
from tests.demo.feed import Progress
from tests.demo.live import Look, Picture, Queues, Screen
from tests.demo.takeover import TakeOver

REDRAW_S = 0.5
STALL_S = 60.0  # longer than any pause the demo's conf allows: retries, back-off, death delay
UNEASY_S = 5.0  # from here on the screen says why nothing moves


class StalledError(Exception):
    """Nothing moved for too long, or the instance is gone."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the watch looks: all of these answer at once."""

    queues: Look
    arrived: Callable[[], int]
    expected: Callable[[], int]
    ended: Callable[[], str]  # who ended by itself; empty: all run
    refusals: Callable[[], str]  # why deliveries are refused; empty: none was
    channels: Callable[[], str] = str  # what goes to which peer; empty: nothing


class Watch:
    """One run's progress."""

    def __init__(
        self, sources: Sources, feed: Progress, crasher: Crasher | TakeOver | None, screen: Screen
    ) -> None:
        self._sources = sources
        self._feed = feed
        self._crasher = crasher
        self._screen = screen
        self._began_s = self._moved_s = time.monotonic()
        self._before: object = None
        self._expected = 0
        self._expected_is_final = False
        self._pause = threading.Event()  # never set: waiting on it is the redraw rate
        self.latest: Picture | None = None

    def until_quiet(self) -> None:
        """Show what happens until it is over; raises StalledError when it does not get there."""
        quiet_at: Queues | None = None
        while True:
            picture = self._take()
            self.latest = picture
            self._screen.show(picture)
            if self._is_quiet(picture):
                if quiet_at is not None and quiet_at == picture.queues:
                    return
                quiet_at = picture.queues
            else:
                quiet_at = None
            self._check_progress(picture)
            self._pause.wait(REDRAW_S)

    def _take(self) -> Picture:
        feeding = self._feed.running
        if not self._expected_is_final:
            # Once more after the feed: a recipient refused there is not reported on later.
            self._expected = self._sources.expected()
            self._expected_is_final = not feeding
        still_s = time.monotonic() - self._moved_s
        note = "feeding" if feeding else "delivering"
        if still_s > UNEASY_S:
            note = "; ".join(filter(None, (
                note, f"nothing moved for {still_s:.0f} s", self._sources.refusals())))
        return Picture(
            elapsed_s=time.monotonic() - self._began_s,
            feed=self._feed.counts(),
            arrived=self._sources.arrived(),
            expected=self._expected,
            queues=self._sources.queues(),
            note=note,
            channels=self._sources.channels(),
        )

    def _is_quiet(self, picture: Picture) -> bool:
        if self._feed.running or (self._crasher is not None and self._crasher.running):
            return False
        return picture.queues is not None and picture.queues.waiting == 0

    def _check_progress(self, picture: Picture) -> None:
        queues = picture.queues
        counts = (queues.ever, queues.waiting) if queues else None
        now = (picture.feed.accepted, picture.feed.finished, picture.arrived, counts)
        if now != self._before:
            self._before, self._moved_s = now, time.monotonic()
        elif time.monotonic() - self._moved_s > STALL_S:
            reason = picture.feed.reason if self._feed.running else ""
            raise StalledError("; ".join(filter(None, (
                f"nothing moved for {STALL_S:.0f} s",
                f"the feeder last heard: {reason}" if reason else "",
                self._sources.refusals()))))
        if gone := self._sources.ended():
            raise StalledError(f"{gone} ended by itself")
