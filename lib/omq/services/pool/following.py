"""One queue manager followed by pool.writer: checkpoints, and what comes after them.

Each `pool_poll_ms`: is the manager still there; is the next journal file prepared; is a checkpoint
due (at once when a queue was cleared, or the disk is short); a quarter as often while the manager
writes nothing, without a rest while as much journal lies ahead as one checkpoint should hold. Its
end wakes at once. The journal is read only when a checkpoint is due: what was born and finished in
between then costs next to nothing. After a checkpoint comes a round of omq.services.pool.bodies.

Invariants: 1. nothing is written without the pool lock, which is owned here; 2. only frames up to
the manager's durable LSN are applied; 3. when the manager is seen gone, the lock is released at
once, for the next one waits for it, and all that was learned from its index is forgotten; 4. a full
disk postpones a checkpoint: the journal keeps what it would have saved.
In the middle of a crash: the last poolctrl slot counts; `start` finishes a checkpoint that was cut
and redoes from there.
Errors: DiskError. Whatever the manager refuses, and damage, are events.
"""

from __future__ import annotations

from typing import Final

from omq.base import clock, event_log, events
from omq.base.errors import ManagerUnavailable, OmqError, SpoolFull, SpoolLocked, TimedOut
from omq.base.event_log import EventLog
from omq.base.limits import MIB
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.judge.presence import pool_findings
from omq.core.redo.checkpoint import Checkpointer, CheckpointResult
from omq.core.redo.redo import Redo
from omq.format.frame_rules import BY_NUMBER
from omq.format.index import Counter
from omq.format.journal import FRAME
from omq.services.daemon.daemon import DaemonContext
from omq.services.pool.bodies import BodyKeeper
from omq.services.pool.damage import report_damage
from omq.services.pool.live_index import LiveIndex
from omq.services.pool.protocols import Connect, Connection, Waiting
from omq.services.pool.shortage import Shortage
from omq.storage import durable, poolctrl, spool
from omq.storage.files import File
from omq.storage.journal import numbers_in, prepare_next
from omq.storage.journal_follower import JournalFollower
from omq.storage.pool import PoolFiles

WINDOW_BYTES: Final = 64 * MIB  # for one call of redo: most messages are born and finished in it
QUIET_PERIODS: Final = 4  # poll periods of a turn in which nothing was new
STATUS_PERIOD_NS: Final = clock.NS_PER_S  # how often the status line is renewed: for people


class Following:
    """See the module. `start` first, then `follow`, `close` in any case."""

    def __init__(self, context: DaemonContext, pulse: Waiting, connect: Connect, index: LiveIndex,
                 lock: File) -> None:
        paths, settings = context.paths, context.settings
        self._context, self._paths, self._settings = context, paths, settings
        self._pulse = pulse
        self._connect = connect
        self._index = index
        self._lock = lock
        self._pool = PoolFiles(paths, index.uuid)
        self._redo = Redo(self._pool, progress=pulse.beat)
        self._checkpointer = Checkpointer(self._pool, self._redo, paths, index.uuid, settings,
                                          pulse.beat)
        self._follower = JournalFollower(paths, index.uuid)
        self._bodies = BodyKeeper(paths, settings, index.uuid, index, context.log, pulse.short)
        self._connection: Connection | None = None
        self._checkpoint_lsn = 0
        self._journal = 0  # file in which the checkpoint goes on
        self._due_ns = 0
        self._status_ns = 0
        self._bytes_then = 0
        self._late = False  # the checkpoint waits for disk space
        self._advanced = False  # the last checkpoint read something
        self._hurry = Hurry()
        self._shortage = Shortage(paths, settings)
        self._next_file = NextFile(paths, settings, context.log)
        self.reload = False  # SIGHUP ended `follow`

    def start(self) -> bool:
        """Finish what a killed writer left, take up the last checkpoint. False: there is none, so
        this is not what a manager's recovery leaves behind."""
        control, findings = poolctrl.load(self._paths, settle=True)
        self._pool.recover_double_write(control)
        if len(self._pool.possible) > 1:  # the files say which
            self._pool.findings += pool_findings(control, self._pool, self._pool.possible)
        report_damage(self._context.log, self._paths, [*findings, *self._pool.findings])
        if control is None or control.uuid != self._index.uuid:
            return False
        redo = self._redo
        redo.queues, redo.clients = dict(control.queues), dict(control.clients)
        redo.definitions = dict(control.definitions)
        redo.lsn, redo.next_qpool = control.lsn, control.next_qpool
        self._checkpointer.generation = control.generation
        self._follower = JournalFollower(self._paths, self._index.uuid, control.journal,
                                         control.offset, control.lsn)
        self._checkpoint_lsn, self._journal = control.lsn, control.journal
        self._plan_next()
        return True

    def follow(self) -> None:
        """Until the manager is gone, or a signal to stop or to reload."""
        signals = self._context.signals
        seen = -1
        told: tuple[int, int] | None = None
        while not signals.stopping and self._index.running:
            if signals.take_reload():
                self.reload = True
                break
            self._next_file.prepare(self._index.counter(Counter.JOURNAL_FILE),
                                    self._index.counter(Counter.MESSAGES))
            if self._is_due():
                self._checkpoint()
                self._round()
            self._tell_room()
            before, seen = seen, self._index.counter(Counter.DURABLE_LSN)
            now = clock.monotonic_ns()
            if now >= self._status_ns and told != (seen, self._checkpoint_lsn):
                self._status_ns, told = now + STATUS_PERIOD_NS, (seen, self._checkpoint_lsn)
                self._context.notifier.status(self.status())
            if self._advanced and self._behind:
                self._pulse.beat()
            else:
                self._pulse.wait(QUIET_PERIODS if seen == before else 1, self._index.pidfd)
        if self._index.running or self._ended_in_order():
            self._pulse.busy("taking the last checkpoint")
            self._checkpoint()

    def status(self) -> str:
        """One line for the supervisor."""
        lag = max(0, self._index.counter(Counter.DURABLE_LSN) - self._saved(self._checkpoint_lsn))
        files = len(numbers_in(self._paths.journal))
        return (f"checkpoint at LSN {self._checkpoint_lsn}, {lag} frames behind, "
                f"{files} journal files")

    # when

    def _plan_next(self) -> None:
        interval = self._settings.checkpoint_interval_s * clock.NS_PER_S
        self._due_ns = clock.monotonic_ns() + interval
        self._bytes_then = self._index.counter(Counter.JOURNAL_BYTES)

    def _is_due(self) -> bool:
        """Is it time for a checkpoint or for another round of bodies?"""
        news = self._index.counter(Counter.DURABLE_LSN) > self._follower.last_lsn
        short = self._shortage.look(self._index.counter(Counter.MESSAGES),
                                    self._index.counter(Counter.JOURNAL_FILE))
        if not self._late and self._hurry.is_due(self._index, pending=self._bodies.pending):
            return True
        if short or clock.monotonic_ns() < self._due_ns:
            return short or self._behind
        if news or self._unsaved or self._bodies.pending:
            return True
        self._plan_next()
        return False

    @property
    def _behind(self) -> bool:
        """Is there as much journal as one checkpoint should hold? Then there is no rest."""
        news = self._index.counter(Counter.DURABLE_LSN) > self._follower.last_lsn
        limit = self._settings.checkpoint_journal_bytes_max
        return news and not self._late and self._journal_bytes() >= limit

    @property
    def _unsaved(self) -> bool:
        return self._redo.lsn > self._checkpoint_lsn

    def _journal_bytes(self) -> int:
        """Journal since the last checkpoint, at least."""
        index = self._index
        frames = index.counter(Counter.DURABLE_LSN) - self._saved(self._follower.last_lsn)
        files = index.counter(Counter.JOURNAL_FILE) - self._follower.number - 1
        return max(frames * FRAME.size, files * self._settings.journal_file_bytes,
                   index.counter(Counter.JOURNAL_BYTES) - self._bytes_then)

    def _saved(self, lsn: int) -> int:
        """`lsn`, or the end of what is void before this manager's first one."""
        return max(lsn, self._index.counter(Counter.CHECKPOINT_LSN))

    def _ended_in_order(self) -> bool:
        """Does the journal of the manager that is gone end in order? Else the next one recovers,
        and should not wait for us. Its last counters still say how far it is durable."""
        blocks = self._follower.read(self._index.counter(Counter.DURABLE_LSN), WINDOW_BYTES)
        if blocks and BY_NUMBER[blocks[-1].frames["type"][-1]].stops:
            self._redo.apply(blocks)
        return self._redo.clean_stop

    # checkpoint

    def _checkpoint(self) -> None:
        """Read and apply what is durable, make it the checkpoint, tell the manager."""
        self._read(self._index.counter(Counter.DURABLE_LSN))
        self._plan_next()
        if not self._unsaved:
            return
        follower = self._follower
        try:
            held = spool.lock(self._paths.checkpoint_lock, "pool.writer")
        except SpoolLocked:  # the pool is being copied for a standby: later
            return
        try:
            result = self._checkpointer.take(self._index.epoch, follower.number, follower.offset,
                                             clock.wall_ns())
        except SpoolFull as error:
            if not self._late:
                self._context.log.event(events.CHECKPOINT_LATE, event_log.ERROR, reason=str(error))
            self._late = True
            return
        finally:
            held.close()
        self._late = False
        self._report_differences()
        self._checkpoint_lsn, self._journal = result.lsn, follower.number
        self._context.log.event(events.CHECKPOINT, event_log.TRACE, lsn=result.lsn,
                                records=result.records, seconds=round(result.seconds, 3))
        if self._index.running:
            self._tell(result)

    def _report_differences(self) -> None:
        """Of pool files that are not what was written: nothing is deleted from here on."""
        for finding in [*self._pool.findings, *self._pool.lost()]:
            if finding.file not in self._bodies.differing:
                self._bodies.differing.add(finding.file)
                self._context.log.event(events.POOL_DIFFERS, event_log.ERROR, file=finding.file,
                                        reason=finding.reason)
        self._pool.findings.clear()

    def _read(self, target: int) -> None:
        """Redo up to `target`, or as much as one checkpoint should hold."""
        follower, redo = self._follower, self._redo
        before, self._advanced = follower.last_lsn, False
        left = max(WINDOW_BYTES, self._settings.checkpoint_journal_bytes_max)
        while left > 0 and follower.last_lsn < target:
            blocks = follower.read(target, min(left, WINDOW_BYTES))
            if not blocks:
                break
            left -= sum(block.header.length for block in blocks)
            redo.apply(blocks)
            self._advanced = follower.last_lsn > before
            if follower.last_lsn < target:
                self._pulse.busy(f"catching up: {target - follower.last_lsn} frames behind")
        report_damage(self._context.log, self._paths, [*follower.findings, *redo.findings])
        follower.findings.clear()
        redo.findings.clear()

    def _tell(self, result: CheckpointResult) -> None:
        """The manager shows it and notes it in the journal; the checkpoint counts without that."""
        try:
            self._manager().control({"op": "checkpoint", "lsn": result.lsn, "file": self._journal,
                                     "offset": self._follower.offset,
                                     "time_ns": clock.wall_ns(), "records": result.records})
        except OmqError as error:
            self._refused("checkpoint", error)

    def _round(self) -> None:
        """Bodies, after the checkpoint."""
        try:
            self._bodies.round(self._checkpoint_lsn, self._journal, self._manager)
        except OmqError as error:
            self._refused("relocation", error)
        self._shortage.after_round(gained=bool(self._bodies.gained or self._bodies.pending))

    def _tell_room(self) -> None:
        try:
            self._shortage.tell(self._manager)
        except OmqError as error:
            self._refused("room", error)

    def _manager(self) -> Connection:
        if self._connection is None:
            # Short: the next manager cannot start while we hold the lock and wait for an answer.
            self._connection = self._connect(self._paths, self._settings.connect_timeout_s)
        return self._connection

    def _refused(self, what: str, error: OmqError) -> None:
        """An error of the manager is not ours; one of the disk is."""
        durable.check_latch()
        level = event_log.WARNING
        if isinstance(error, ManagerUnavailable | TimedOut):
            level = event_log.REPORT  # it is going away, or we see soon that it is not
        self._context.log.event(events.FAILED, level, at=what, reason=str(error))
        self._disconnect()

    # end

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Let go of everything; the lock as soon as nothing can be written any more."""
        try:
            self._bodies.close()
        finally:
            self._follower.close()
            self._pool.close()
            self._lock.close()
            self._disconnect()
            self._index.close()


ROUNDS_MIN: Final = 3
"""Of one hurry: a file is seen empty, a checkpoint covers that, the file goes."""
ROUNDS_MAX: Final = 20
"""Where that takes longer: the manager was busy, and a round could not look at its index."""
PAUSE_NS: Final = clock.NS_PER_S


class Hurry:
    """When pool.writer must not wait for its interval: a queue was cleared, its disk is wanted.

    The manager says up to which LSN it has deleted (Counter.SPACE_WANTED). A checkpoint that covers
    it is taken at once, and a round of bodies after it; what is seen empty there goes in the next
    ones (omq.services.pool.bodies says why it takes two). Nothing else is done than at a checkpoint
    of its time, so the crash argument is the same: only its time is another. Who clears often does
    not have checkpoints taken without end: PAUSE_NS lies between the end of a hurry and the next.
    """

    def __init__(self) -> None:
        self._served = 0  # LSN that was wanted last
        self._left = 0  # rounds
        self._not_before = 0  # monotonic ns

    def is_due(self, index: LiveIndex, *, pending: bool) -> bool:
        """Whether a checkpoint and its round are to be taken now. `pending`: a file was seen
        empty."""
        if self._left:
            self._left -= 1
            if not pending and self._left < ROUNDS_MAX - ROUNDS_MIN:
                self._left = 0
            if not self._left:
                self._not_before = clock.monotonic_ns() + PAUSE_NS
            return self._left > 0
        now, wanted = clock.monotonic_ns(), index.counter(Counter.SPACE_WANTED)
        if (wanted <= self._served or index.counter(Counter.DURABLE_LSN) < wanted
                or now < self._not_before):
            return False
        self._served, self._left = wanted, ROUNDS_MAX
        return True


class NextFile:
    """The next journal file, made while the manager still writes into the last one: zeros on the
    disk, so that no append waits for space or for metadata. A full disk is an event, once: the
    manager makes the file itself if it must. DiskError.

    `prepare` is called again and again and costs nothing while it is ready."""

    def __init__(self, paths: SpoolPaths, settings: Settings, log: EventLog) -> None:
        self._paths = paths
        self._settings = settings
        self._log = log
        self._late = False
        self._prepared_for = -1  # number of the file whose successor is ready

    def prepare(self, number: int, messages: int) -> None:
        """The successor of the file in use, `number`, of an instance with so many messages."""
        if number == self._prepared_for:
            return
        try:
            prepare_next(self._paths, self._settings, messages)
        except SpoolFull as error:
            if not self._late:
                self._log.event(events.JOURNAL_LATE, event_log.WARNING, reason=str(error))
            self._late = True
        else:
            self._late = False
            self._prepared_for = number
