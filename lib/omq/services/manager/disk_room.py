"""Disk space as the manager looks at it: whether new messages are taken, and whether clients are
slowed down meanwhile (services.manager.back_pressure).

    free space          what happens
    above the margin    all is well
    in the margin       pool.writer retires what it can, history goes; clients are slowed down
                        until it says that there is nothing more to gain
    below the reserve   the same, down to three quarters of the reserve; below that, and when there
                        is nothing more to gain, puts are refused; done, move and delete go on

Free space is asked for each disk_check_interval_s, with each journal file and after so many frames,
for a fast client could eat the reserve between two looks, and many small messages are little
journal and much pool; in each group while clients are slowed down.
"""

from __future__ import annotations

from omq.base import clock, events
from omq.base.event_log import ERROR, REPORT, WARNING
from omq.core.engine.waiting import FOREVER
from omq.format.index import Counter
from omq.services.daemon.daemon import DaemonContext
from omq.services.manager.back_pressure import PROGRESS_S, BackPressure, Lag, lag_limits
from omq.services.manager.event_messages import EventMessages
from omq.services.manager.parts import Parts
from omq.storage import disk_reserve, disk_usage
from omq.storage.disk_usage import Free

_LAST, _CHECKPOINT = int(Counter.LAST_LSN), int(Counter.CHECKPOINT_LSN)
_MESSAGES = int(Counter.MESSAGES)


class DiskRoom:
    """See the module. `due`: monotonic ns of the next look; `ease_above`: up to this LSN there is
    no need to look at the back pressure; `slow`: clients are slowed down."""

    def __init__(self, context: DaemonContext, parts: Parts, messages: EventMessages) -> None:
        self._context, self._parts, self._messages = context, parts, messages
        self._log = context.log
        self._pressure = BackPressure(lag_limits(context.settings),
                                      parts.engine.index.counters[_CHECKPOINT])
        self._free: Free | None = None
        self._taken = True
        self._file = 0
        self._trusted_until = clock.monotonic_ns() + PROGRESS_S * clock.NS_PER_S
        self._look_above = 0  # LSN up to which new messages cannot have used up much
        self.due = self.ease_above = 0
        parts.writer.leave = self._leave

    def _leave(self) -> int:
        """What a rotation leaves for checkpoints."""
        settings, messages = self._context.settings, self._parts.engine.index.counters[_MESSAGES]
        return (disk_reserve.pool_bytes(settings)
                + disk_reserve.debt_bytes(self._context.paths, settings, messages))

    @property
    def slow(self) -> bool:
        return self._pressure.active

    @property
    def new_file(self) -> bool:
        """Another journal file is in use since the last look."""
        return self._parts.writer.file_number != self._file

    def look(self, now: int) -> None:
        """New messages are taken or refused; each change is one event."""
        self._file = self._parts.writer.file_number
        self.due = now + self._context.settings.disk_check_interval_s * clock.NS_PER_S
        self._free = disk_usage.free(self._context.paths, self._context.settings,
                                     self._parts.engine.index.counters[_MESSAGES])
        few = disk_reserve.frames_between_looks(self._context.settings)
        self._look_above = self._parts.engine.index.counters[_LAST] + few if few else FOREVER
        taken = not self._free.low or (self._hopes(now) and not self._free.late)
        self._parts.engine.books.space(0 if taken else self._free.lacking)
        if taken != self._taken:
            self._taken = taken
            event, level = (events.SPOOL_FREE, REPORT) if taken else (events.SPOOL_FULL, ERROR)
            self._log.event(event, level, path=self._context.paths.root,
                            free_bytes=self._free.bytes, inodes=self._free.inodes,
                            detail=None if taken else self._parts.engine.room.refusal)
            self._messages.note("disk_free" if taken else "disk_low")

    def _hopes(self, now: int) -> bool:
        """Can pool.writer make room, as far as is known? One that has just been started may."""
        works = now < self._trusted_until or self._pressure.useful(now)
        return works and not self._parts.engine.room.stuck

    def _ends_soon(self, free: Free) -> bool:
        """Is half of the journal file full, and no disk for the next one? Then done and move are
        slowed down, too: what they finish gives its space back a moment later."""
        writer = self._parts.writer
        return free.low and bool(free.owed) and writer.room() < writer.epoch.file_bytes // 2

    def ease(self, began_ns: int) -> None:
        """After a group that began then: let pool.writer catch up if it is far behind."""
        parts, pressure = self._parts, self._pressure
        counters, said = parts.engine.index.counters, parts.engine.room
        frames = counters[_LAST] - counters[_CHECKPOINT]
        now = clock.monotonic_ns()
        if pressure.active or counters[_LAST] > self._look_above:
            self.look(now)
        depth = 0.0
        if self._free is not None and (self._hopes(now) or self._ends_soon(self._free)):
            depth = self._free.depth
        behind = said.behind(parts.writer.file_number, parts.writer.offset,
                             self._context.settings.journal_file_bytes)
        parts.engine.books.lag(behind)
        if pressure.after_group(Lag(frames, behind, depth), counters[_CHECKPOINT], began_ns,
                                now):
            event, level = ((events.BACK_PRESSURE, WARNING) if pressure.active
                            else (events.BACK_PRESSURE_OVER, REPORT))
            self._log.event(event, level, frames=frames, limit=pressure.limits.frames,
                            bytes=behind, bytes_limit=pressure.limits.bytes,
                            free_bytes=self._free.bytes if self._free is not None else None,
                            paused_ms=pressure.paused_ms)
        parts.engine.books.paused(pressure.paused_ms)
        self.ease_above = min(self._look_above,
                              counters[_CHECKPOINT] + pressure.limits.frames
                              if pressure.limits.frames else FOREVER)
