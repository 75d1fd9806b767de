"""pool.writer: recovery that never stops. It follows the journal and takes the checkpoints.

Per manager: the pool lock, the index, redo from the last checkpoint (start is O(1)). Then each
`pool_poll_ms`: is the manager still there; is the next journal file prepared; is a checkpoint due.
Journal is only read when one is due: what was born and finished in between costs next to nothing.
Behind a checkpoint comes a round of omq.services.pool_bodies: bodies relocated, files retired.

Invariants: 1. nothing is written without the pool lock; 2. only frames up to the manager's durable
LSN are applied; 3. the lock is released as soon as the manager is seen gone, because the next one
waits for it, and everything learned from the old index is forgotten with it; 4. a full disk postpones
a checkpoint, the journal keeps what it would have saved; 5. a disk error ends the process.

    kill -9 at any instruction: the old checkpoint counts, the same redo is done again
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from omq.base import clock, event_log, events
from omq.base.errors import DiskError, ManagerUnavailable, OmqError, SpoolFull, SpoolLocked
from omq.base.limits import MIB
from omq.base.paths import SpoolPaths
from omq.core.checkpoint import Checkpointer, CheckpointResult
from omq.core.redo import Redo
from omq.format.findings import Finding, Kind
from omq.format.index import Counter
from omq.format.journal import FRAME, FrameType
from omq.services.daemon import DaemonContext, run_daemon
from omq.services.pool_bodies import BodyKeeper
from omq.services.pool_index import LiveIndex
from omq.storage import control as poolctrl
from omq.storage import durable, spool
from omq.storage.files import File
from omq.storage.journal import numbers_in, prepare_next
from omq.storage.journal_follower import JournalFollower
from omq.storage.pool import PoolFiles
from omq.storage.quarantine import save_found

NAME: Final = "pool.writer"
WINDOW_BYTES: Final = 64 * MIB
"""Journal for one call of redo: bounds memory; large enough to see most messages born and finished."""
GROUP_WAIT_S: Final = 0.005
"""A group of the manager ends within milliseconds; waited for in such slices."""


class Connection(Protocol):
    """What pool.writer asks of the queue manager (omq.ipc.client.Connection)."""

    def relocate(self, rows: bytes) -> int: ...
    def control(self, question: dict[str, Any]) -> dict[str, Any]: ...
    def close(self) -> None: ...


Connect = Callable[[SpoolPaths, float], Connection]


class PoolWriter:
    """The daemon: waits for a manager, follows it until it is gone."""

    def __init__(self, context: DaemonContext, connect: Connect) -> None:
        self._context = context
        self._connect = connect
        self._ready = False
        self._keeper = Pulse(context)

    def run(self) -> int:
        """Until SIGTERM."""
        context = self._context
        context.log.event(events.POOL_WRITER_STARTED)
        while not context.signals.stopping:
            following = self._attach()
            if following is None:
                if not self._ready:
                    context.notifier.status("waiting for the queue manager")
                self._keeper.wait()
                continue
            try:
                if not self._ready:
                    context.notifier.ready(following.status())
                    self._ready = True
                following.follow()
            finally:
                following.close()
        context.log.event(events.POOL_WRITER_STOPPED)
        return 0

    def _attach(self) -> Following | None:
        """Index and pool lock of the running manager; None: not now."""
        try:
            index = LiveIndex(self._context.paths)
        except ManagerUnavailable:
            return None
        if not index.running:
            index.close()
            return None
        try:
            lock = spool.lock(self._context.paths.pool_lock, NAME)
        except SpoolLocked:  # the manager's own recovery, or a repair
            index.close()
            return None
        following = Following(self._context, self._keeper, self._connect, index, lock)
        if not index.running or not following.start():
            following.close()
            return None
        return following


class Pulse:
    """Waiting, and the signs of life that go with it."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._due = 0

    def wait(self) -> None:
        """One poll period, or until a signal."""
        self.beat()
        self._context.signals.wait(self._context.settings.pool_poll_ms / 1000)

    def short(self) -> None:
        """A moment, for a group of the manager to end."""
        self.beat()
        self._context.signals.wait(GROUP_WAIT_S)

    def beat(self) -> None:
        """Tell the watchdog, if it is time."""
        interval = self._context.notifier.watchdog_interval_s
        now = clock.monotonic_ns()
        if interval and now >= self._due:
            self._due = now + int(interval * clock.NS_PER_S)
            self._context.notifier.watchdog()

    def catching_up(self, status: str) -> None:
        """Start or stop takes longer, and here is why."""
        self.beat()
        self._context.notifier.extend(self._context.settings.start_timeout_s)
        self._context.notifier.status(status)


class Following:
    """One manager followed: its index, the pool, and redo between them. Owns the pool lock."""

    def __init__(self, context: DaemonContext, pulse: Pulse, connect: Connect, index: LiveIndex,
                 lock: File) -> None:
        self._context = context
        self._pulse = pulse
        self._connect = connect
        self._index = index
        self._lock: File | None = lock
        paths, settings = context.paths, context.settings
        self._pool = PoolFiles(paths, index.uuid)
        self._redo = Redo(self._pool)
        self._follower = JournalFollower(paths, index.uuid)
        self._checkpointer: Checkpointer | None = None
        self._bodies = BodyKeeper(paths, settings, index.uuid, index, context.log, pulse.beat,
                                  pulse.short)
        self._connection: Connection | None = None
        self._checkpoint_lsn = 0
        self._journal = 0  # file in which the checkpoint goes on
        self._due_ns = 0
        self._bytes_then = 0
        self._full = False

    def start(self) -> bool:
        """Finish what a killed writer left, and take up the last checkpoint. False: there is none
        yet, so this is not what a manager leaves behind its recovery."""
        paths, index = self._context.paths, self._index
        self._pool.recover_double_write()
        control, _ = poolctrl.load(paths, settle=True)
        if control is None or control.uuid != index.uuid:
            return False
        redo = self._redo
        redo.queues, redo.clients = dict(control.queues), dict(control.clients)
        redo.lsn, redo.next_qpool = control.lsn, control.next_qpool
        self._follower = JournalFollower(paths, index.uuid, control.journal, control.offset,
                                         control.lsn)
        self._checkpointer = Checkpointer(self._pool, redo, paths, index.uuid,
                                          self._context.settings)
        self._checkpoint_lsn, self._journal = control.lsn, control.journal
        self._plan_next()
        return True

    def follow(self) -> None:
        """Until the manager is gone or SIGTERM."""
        signals = self._context.signals
        while not signals.stopping and self._index.running:
            self._prepare_journal()
            if self._is_due():
                self._checkpoint()
            self._context.notifier.status(self.status())
            self._pulse.wait()
        if self._index.running or self._ended_in_order():
            self._pulse.catching_up("taking the last checkpoint")
            self._checkpoint(bodies=False)

    def status(self) -> str:
        """One line for the supervisor."""
        lag = max(0, self._index.counter(Counter.DURABLE_LSN) - self._checkpoint_lsn)
        files = len(numbers_in(self._context.paths.journal))
        return f"checkpoint at LSN {self._checkpoint_lsn}, {lag} frames behind, {files} journal files"

    # when

    def _plan_next(self) -> None:
        interval = self._context.settings.checkpoint_interval_s * clock.NS_PER_S
        self._due_ns = clock.monotonic_ns() + interval
        self._bytes_then = self._index.counter(Counter.JOURNAL_BYTES)

    def _is_due(self) -> bool:
        news = self._index.counter(Counter.DURABLE_LSN) > self._follower.last_lsn
        if clock.monotonic_ns() >= self._due_ns:
            if not news and not self._bodies.pending and not self._redo.dirty:
                self._plan_next()
                return False
            return True
        return news and not self._full and (
            self._journal_bytes() >= self._context.settings.checkpoint_journal_bytes_max)

    def _journal_bytes(self) -> int:
        """Journal since the last checkpoint, at least."""
        index = self._index
        frames = index.counter(Counter.DURABLE_LSN) - self._follower.last_lsn
        files = index.counter(Counter.JOURNAL_FILE) - self._follower.number - 1
        return max(frames * FRAME.size, files * self._context.settings.journal_file_bytes,
                   index.counter(Counter.JOURNAL_BYTES) - self._bytes_then)

    def _ended_in_order(self) -> bool:
        """Does the journal of the manager that is gone end in STOP? Its last counters still say how
        far it is durable. After a crash the next manager recovers: it should not wait for us."""
        blocks = self._follower.read(self._index.counter(Counter.DURABLE_LSN), WINDOW_BYTES)
        self._redo.apply(blocks)
        return self._redo.clean_stop

    # checkpoint

    def _checkpoint(self, *, bodies: bool = True) -> None:
        """Read and apply what is durable, make it the checkpoint, tell the manager."""
        assert self._checkpointer is not None
        target = self._index.counter(Counter.DURABLE_LSN)
        self._read(target)
        self._report_damage()
        self._plan_next()
        redo = self._redo
        if redo.lsn > self._checkpoint_lsn or redo.dirty or redo.clears:
            follower = self._follower
            try:
                result = self._checkpointer.take(self._index.epoch, follower.number,
                                                 follower.offset, clock.wall_ns())
            except SpoolFull as error:
                self._postpone(error)
                return
            self._full = False
            self._checkpoint_lsn, self._journal = result.lsn, follower.number
            self._context.log.event(
                events.CHECKPOINT, event_log.TRACE, lsn=result.lsn, records=result.records,
                seconds=round(result.seconds, 3))
            if self._index.running:
                self._tell(result)
        if bodies:
            self._round()

    def _read(self, target: int) -> None:
        """Redo up to `target`, or as much as one checkpoint should hold."""
        left = max(WINDOW_BYTES, self._context.settings.checkpoint_journal_bytes_max)
        while left > 0 and self._follower.last_lsn < target:
            blocks = self._follower.read(target, min(left, WINDOW_BYTES))
            if not blocks:
                return
            left -= sum(block.header.length for block in blocks)
            self._redo.apply(blocks)
            behind = target - self._follower.last_lsn
            if behind:
                self._pulse.catching_up(f"catching up: {behind} frames behind")

    def _postpone(self, error: SpoolFull) -> None:
        if not self._full:
            self._context.log.event(events.CHECKPOINT_LATE, event_log.ERROR, reason=str(error))
        self._full = True

    def _prepare_journal(self) -> None:
        """The manager should find the next journal file ready; it makes one itself if not."""
        try:
            prepare_next(self._context.paths, self._context.settings)
            self._unprepared = False
        except SpoolFull as error:
            if not self._unprepared:
                self._context.log.event(events.JOURNAL_LATE, event_log.WARNING, reason=str(error))
            self._unprepared = True

    _unprepared = False
