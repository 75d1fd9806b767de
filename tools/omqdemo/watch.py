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

from omqdemo.crash import Crasher
from omqdemo.feed import Progress
from omqdemo.live import Look, Picture, Queues, Screen

REDRAW_S = 0.5
STALL_S = 60.0  # longer than any pause the demo's conf allows: retries, back-off, death delay


class StalledError(Exception):
    """Nothing moved for too long, or the instance is gone."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the watch looks: all of these answer at once."""

    queues: Look
    arrived: Callable[[], int]
    expected: Callable[[], int]
    alive: Callable[[], bool]


class Watch:
    """One run's progress."""

    def __init__(
        self, sources: Sources, feed: Progress, crasher: Crasher | None, screen: Screen
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
        return Picture(
            elapsed_s=time.monotonic() - self._began_s,
            feed=self._feed.counts(),
            arrived=self._sources.arrived(),
            expected=self._expected,
            queues=self._sources.queues(),
            note="feeding" if feeding else "delivering",
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
            text = f"nothing moved for {STALL_S:.0f} s"
            raise StalledError(f"{text}; the feeder last heard: {reason}" if reason else text)
        if not self._sources.alive():
            raise StalledError("the instance ended by itself")
