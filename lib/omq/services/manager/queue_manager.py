"""queue.manager: one process that decides everything and is almost purely CPU-bound.

Start: locks, recovery (core.load.recovery), a fresh index loaded from the pool (core.load.rebuild),
a new journal epoch, the wire; then READY. Loop: take all waiting requests, apply them, append one
block, sync once, release the replies. Stop: no new puts, wait for readers to leave (bounded), a
STOP frame, remove the IPC objects.

The first disk error ends the process at once with the tombstone written: nobody of that group was
answered, and the next start reads what is really on the disk.

    kill -9 at any instruction: what was acknowledged is in a synced block; the rest is thrown away

How the manager stands among the processes of the host: first, and without pauses for garbage.

What the manager took back from readers in a group, for the event log and as event messages:
each says where the message is now.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys

from omq.base import clock, events, side_files
from omq.base.config import load_authority, load_queues, load_settings
from omq.base.defined_queue import load_common
from omq.base.errors import DiskError, OmqError
from omq.base.event_log import ERROR, FATAL, REPORT, WARNING, EventLog
from omq.base.fault import point
from omq.base.names import POISON_NAME
from omq.core.engine.engine import Engine
from omq.core.engine.waiting import FOREVER
from omq.format.index import Counter
from omq.ipc.server.answer_pace import AnswerPace
from omq.ipc.server.loop_parts import LoopParts
from omq.services.daemon.daemon import DaemonContext, last_trace, run_daemon, whole_trace
from omq.services.manager.clock_watch import ClockWatch, newest_ns
from omq.services.manager.disk_room import DiskRoom
from omq.services.manager.event_messages import EventMessages
from omq.services.manager.parts import Parts, build
from omq.services.manager.protection import held_replies
from omq.services.manager.queue_changes import say_changes
from omq.services.manager.tombstone import write_tombstone
from omq.services.manager.triggers import Triggers
from omq.services.manager.units_in_doubt import doubts_text, say_old_doubts


def say_taken_back(log: EventLog, engine: Engine, messages: EventMessages) -> None:
    """Leases that ended, and what failed too often; both lists begin anew."""
    for ended in engine.back.ended:
        log.event(events.LEASE_ENDED, WARNING, queue=ended.queue, qpool_id=ended.qpool,
                  pid_of_reader=ended.pid)
    engine.back.ended.clear()
    for poisoned in engine.poisoned:
        event = (events.MESSAGE_POISONED if poisoned.to == POISON_NAME
                 else events.MESSAGE_DEAD_LETTER)
        log.event(event, ERROR, queue=poisoned.queue, to=poisoned.to, qpool_id=poisoned.qpool,
                  reason=poisoned.reason, pid_of_reader=poisoned.pid)
        messages.poisoned(poisoned.queue, poisoned.to, poisoned.qpool, poisoned.pid)
    engine.poisoned.clear()


def take_precedence(nice: int) -> None:
    """Every client waits for this process: it may go before other work (manager_nice), if
    it has the right; a drop-in's Nice= does the same. By itself it does not: it would push the
    clients aside that are about to ask, and groups would be smaller (ADR 0017)."""
    if nice < os.getpriority(os.PRIO_PROCESS, 0):
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
    gc.collect()
    gc.freeze()  # what is there now stays


REQUESTS_PER_GROUP = 1024
_LAST = int(Counter.LAST_LSN)
CHORES_NS = clock.NS_PER_S  # seldom things are looked at this often at least
CLOSE_S = 30.0  # after the drain: the last block, its sync on a busy disk, the IPC objects


class QueueManager:
    """The running manager: its parts and its loop."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._log = context.log
        self._parts: Parts = build(context)
        self._clock = ClockWatch(self._log, self._parts.engine.books)
        self._events = EventMessages(self._parts.engine, context.settings)
        self._parts.control.watched_by(self._events)
        self._triggers = Triggers(self._parts.engine, context.settings, self._parts.rated)
        self._disk = DiskRoom(context, self._parts, self._events)
        self._held = self._parts.server.held = held_replies(context, self._parts.engine,
                                                            self._parts.term)
        if self._held is not None:
            held, writer = self._held, self._parts.writer
            self._parts.engine.tell_written(lambda lsn: held.written(lsn, writer.file_number))
            self._parts.requests.pace = AnswerPace(self._held)
        self._parts.server.go_on_with(LoopParts(
            self._parts.requests, self._parts.doorkeeper, self._parts.control.bodies.finished,
            self._clock, context.signals, REQUESTS_PER_GROUP))
        self._index_low = 0
        self._watchdog_due = self._draining_until = 0
        self._status_due = self._chores_due = 0
        self._ends_due = FOREVER  # as it was when this group began: what came since is the next's
        self._seldom_due = self._look_due = 0  # see _reckon
        self._quiet = False  # the last group had plain requests and nothing else
        self._warned: set[int] = set()  # numbers of units that are in doubt for long

    def run(self) -> int:
        """Until SIGTERM and drained."""
        context, parts = self._context, self._parts
        point("recovery.before_serve")
        take_precedence(context.settings.manager_nice)
        parts.doorkeeper.start(context.signals.fileno())
        parts.begin(clock.monotonic_ns(), context.settings.reconnect_grace_s)
        context.notifier.ready()
        self._say_status(clock.monotonic_ns())
        self._log.event(events.MANAGER_READY, REPORT, messages=parts.engine.index.messages.used,
                        epoch=parts.epoch)
        self._clock.begin(newest_ns(parts.engine.index))
        wake = parts.doorkeeper.wake
        context.signals.add_waker(wake)
        try:
            while not self._finished():
                self._group()
                if self._quiet:
                    self._go_on()
        finally:
            context.signals.remove_waker(wake)
        self._stop()
        return 0

    def _group(self) -> None:
        parts = self._parts
        server, keeper = parts.server, parts.doorkeeper
        if not self._quiet:
            self._reckon()
        # 0 is "at once" here (a wait that was cancelled after the group), and "never" there.
        deadline = max(1, min(server.due(), self._look_due if self._quiet else self._seldom_due))
        if deadline != keeper.deadline:
            keeper.arm(deadline)
        batch = parts.requests.take(REQUESTS_PER_GROUP)
        now, wall = clock.monotonic_ns(), clock.wall_ns()
        if not self._clock.low < wall - now < self._clock.high:
            self._clock.look()
        server.group(batch, wall, now, self._drain)
        self._after(now, len(batch))

    def _go_on(self) -> None:
        """After a group of plain requests: the next ones like it, in compiled code."""
        disk = self._disk
        found = self._parts.server.go_on(self._look_due, 0 if disk.slow else disk.ease_above,
                                         self._drain)
        if found is not None:
            self._after(*found)

    def _after(self, now: int, count: int) -> None:
        """A group that began at `now`, of so many requests."""
        parts, signals, disk = self._parts, self._context.signals, self._disk
        wanted = signals.stopping or signals.reload_wanted or disk.new_file
        self._quiet = bool(count) and parts.server.plain and now < self._look_due and not wanted
        if not self._quiet:
            self._look(now, wanted=wanted)
        elif disk.slow or parts.engine.index.counters[_LAST] > disk.ease_above:
            disk.ease(now)

    def _reckon(self) -> None:
        """When the seldom things want a group (monotonic ns). They change by what is not plain, or
        are looked at once a second: after a group of plain requests it holds still, up to
        `_look_due`. That is 0 while something looks at each group."""
        parts = self._parts
        self._ends_due = parts.control.queues.ends.due
        self._seldom_due = min(
            parts.rated.due, self._events.due, self._triggers.due, self._ends_due,
            self._watchdog_due or FOREVER, self._draining_until or FOREVER,
            FOREVER if self._held is None else self._held.due)
        self._look_due = min(self._seldom_due, self._chores_due, FOREVER if self._held is None
                             else self._held.due_at_least(parts.engine.mono_ns))
        if parts.engine.queues.triggered or self._draining_until:
            self._look_due = 0

    def _look(self, now: int, *, wanted: bool) -> None:
        """After a group: what it has brought besides plain requests, and what is due."""
        parts, disk = self._parts, self._disk
        engine = parts.engine
        parts.control.operators.release(self._held)
        if engine.poisoned or engine.back.ended:
            say_taken_back(self._log, engine, self._events)
        if wanted or now >= self._chores_due or now >= parts.rated.due:
            self._chores(now)
            disk.ease(now)
        elif disk.slow or engine.index.counters[_LAST] > disk.ease_above:
            disk.ease(now)

    def _drain(self) -> bool:
        """What a group does besides requests; True: there was something."""
        parts, now = self._parts, self._parts.engine.mono_ns
        told = parts.control.drain()
        if not told and now < self._look_due and not parts.server.refused:
            return False
        if self._held is not None:
            self._held.look()
        if parts.server.refused:
            self._events.refused(parts.server.refused)
            told = True
        if now >= self._events.due:
            self._events.turn(now)
            told = True
        if parts.engine.queues.triggered:
            told |= self._triggers.turn(now, stopping=parts.server.stopping)
        if now >= self._ends_due:
            parts.control.queues.ends.sweep()
            told = True
        return told

    def _chores(self, now: int) -> None:
        """Seldom things: watchdog, disk space, signals."""
        context, parts = self._context, self._parts
        signals = context.signals
        side_files.retry()
        self._clock.look()
        if signals.take_reload():
            self._reload()
        if signals.stopping and not self._draining_until:
            self._begin_drain(now)
        if now >= self._disk.due or self._disk.new_file:
            self._disk.look(now)
        self._note_room()
        interval = context.notifier.watchdog_interval_s
        if interval and now >= self._watchdog_due:
            context.notifier.watchdog()
            self._watchdog_due = now + int(interval * clock.NS_PER_S)
        if now >= self._status_due:
            self._say_status(now)
        if now >= parts.rated.due:
            parts.rated.flush(now)
        parts.server.stir()
        self._chores_due = min(self._disk.due, self._status_due, now + CHORES_NS,
                               self._watchdog_due or FOREVER)

    def _note_room(self) -> None:
        """The same of the index; who fills it and empties it by turns fills no log."""
        low = self._parts.engine.books.room()
        if low != self._index_low:
            event, level = (events.INDEX_LOW, WARNING) if low else (events.INDEX_FREE, REPORT)
            self._index_low = low
            self._parts.rated.event(event, level, None, messages=self._parts.engine.index.messages
                                    .used, refused="all" if low > 1 else "members" if low else "")

    def _say_status(self, now: int) -> None:
        self._status_due, engine = now + 10 * clock.NS_PER_S, self._parts.engine
        for queue, count in engine.expiry.counted():
            self._log.event(events.MESSAGES_EXPIRED, REPORT, queue=queue, count=count)
            self._events.note("expired", queue, messages=count)
        for queue, count, most in engine.queues.keys_forgotten(now):
            self._log.event(events.KEYS_FORGOTTEN, WARNING, queue=queue, keys=count,
                            limit_keys_max=most)
        say_old_doubts(self._log, self._events, engine, self._context.settings, self._warned)
        t = engine.index
        slow = ", clients are slowed down until pool.writer has caught up"
        self._context.notifier.status(
            f"{t.messages.used} messages, {len(self._parts.sessions.by_id)} clients, "
            f"{doubts_text(engine)}LSN {t.counters[_LAST]}{slow if self._disk.slow else ''}")

    # reload and stop

    def _reload(self) -> None:
        """Queues and authority anew; a wrong file is refused and the old state stays."""
        context, parts = self._context, self._parts
        try:
            settings = load_settings(context.conf_dir)
            queues, common = load_queues(context.conf_dir), load_common(context.conf_dir)
            authority = load_authority(context.conf_dir, owner_uid=os.geteuid())
        except OmqError as error:
            self._log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
            return
        engine = parts.engine
        engine.begin(clock.wall_ns(), clock.monotonic_ns())
        try:
            changes = engine.queues.reload(queues, common, settings)
        except OmqError as error:
            engine.commit()
            self._log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
            return
        self._events.configure(settings)
        self._triggers.configure(settings)
        engine.books.limit(settings.messages_total_max, settings.index_reserve_percent)
        engine.in_doubt.limit = settings.units_in_doubt_max
        engine.failures.known_max = settings.failures_known_max
        engine.commit(sync=True)
        say_changes(self._log, changes)
        parts.sessions.new_authority(authority)
        self._log.event(events.SERVICE_RELOADED, REPORT)

    def _begin_drain(self, now: int) -> None:
        self._context.notifier.stopping("waiting for readers to finish what they hold")
        self._context.notifier.extend(self._context.settings.drain_timeout_s + CLOSE_S)
        self._parts.server.stopping = True
        self._draining_until = now + self._context.settings.drain_timeout_s * clock.NS_PER_S
        for session in self._parts.sessions.by_id.values():
            if session.waiter is not None and session.party.active:
                self._parts.engine.cancel(session.waiter)

    def _finished(self) -> bool:
        """Stopping, and nobody holds a message (or the time is over)."""
        if not self._draining_until:
            return False
        busy = any(s.party.active for s in self._parts.sessions.by_id.values()) or (
            self._held is not None and self._held.waiting)
        return not busy or clock.monotonic_ns() >= self._draining_until

    def _stop(self) -> None:
        parts = self._parts
        left = [s for s in parts.sessions.by_id.values() if s.party.active]
        if left:
            self._log.event(events.FAILED, WARNING, at="drain",
                            reason=f"{len(left)} readers still hold messages")
        if not parts.close_in_order(clock.wall_ns(), clock.monotonic_ns()):
            self._log.event(events.SPOOL_FULL, WARNING, path=self._context.paths.root,
                            detail="the journal has no room to say that the manager stopped")
        self._log.event(events.MANAGER_STOPPED, REPORT)

    def die(self, cause: str) -> None:
        """Last words: the tombstone."""
        parts = self._parts
        write_tombstone(self._context.paths, parts.engine.index, cause, whole_trace(),
                        parts.server.recent, self._context.settings.load_sample_period_s)


def _body(context: DaemonContext) -> int:
    context.log.event(events.MANAGER_STARTED, REPORT)
    manager = QueueManager(context)
    try:
        return manager.run()
    except DiskError as error:
        context.log.event(events.MANAGER_DIED, FATAL, reason=str(error))
        manager.die(str(error))
        os._exit(error.exit_code)  # no clean-up that could touch the disk again
    except OmqError as error:
        context.log.event(events.MANAGER_DIED, FATAL, reason=str(error))
        manager.die(str(error))
        raise
    except Exception as error:
        context.log.event(events.BUG, FATAL, traceback=last_trace())
        manager.die(repr(error))
        raise


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--create", action="store_true",
        help="make the spool where there is none, and what a reboot took away from it")


def main(argv: list[str] | None = None) -> int:
    """The daemon."""
    arguments = sys.argv[1:] if argv is None else argv
    return run_daemon("queue.manager", arguments, _body, service="qmgr", add_options=_add_options)
