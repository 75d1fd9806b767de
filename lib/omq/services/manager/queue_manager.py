"""queue.manager: one process that decides everything and is almost purely CPU-bound.

Start: locks, recovery (core.load.recovery), a fresh index loaded from the pool (core.load.rebuild),
a new journal epoch, the wire; then READY. Loop: take all waiting requests, apply them, append one
block, sync once, release the replies. Stop: no new puts, wait for readers to leave (bounded), a
STOP frame, remove the IPC objects.

The first disk error ends the process at once with the tombstone written: nobody of that group was
answered, and the next start reads what is really on the disk.

    kill -9 at any instruction: what was acknowledged is in a synced block; the rest is thrown away
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys

from omq.base import clock, events, side_files
from omq.base.config import load_authority, load_queues, load_settings
from omq.base.errors import DiskError, OmqError, SpoolFull
from omq.base.event_log import ERROR, FATAL, REPORT, WARNING
from omq.base.fault import point
from omq.core.engine.waiting import FOREVER
from omq.format.index import Counter
from omq.services.daemon.daemon import DaemonContext, last_trace, run_daemon, whole_trace
from omq.services.manager.back_pressure import BackPressure, lag_limit
from omq.services.manager.parts import Parts, build
from omq.services.manager.queue_rules import rules_from
from omq.services.manager.tombstone import write_tombstone
from omq.storage import durable

REQUESTS_PER_GROUP = 1024
_LAST, _CHECKPOINT = int(Counter.LAST_LSN), int(Counter.CHECKPOINT_LSN)
CHORES_NS = clock.NS_PER_S  # seldom things are looked at this often at least
CLOSE_S = 30.0  # behind the drain: the last block, its sync on a busy disk, the IPC objects


class QueueManager:
    """The running manager: its parts and its loop."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._log = context.log
        self._parts: Parts = build(context)
        self._pressure = BackPressure(lag_limit(context.settings),
                                      self._parts.engine.index.counters[_CHECKPOINT])
        self._space_due = 0
        self._space_file = 0
        self._space_free = True
        self._index_low = 0
        self._watchdog_due = 0
        self._draining_until = 0
        self._status_due = 0
        self._chores_due = 0
        self._ease_above = 0  # no need to look at the back pressure up to this LSN

    def run(self) -> int:
        """Until SIGTERM and drained."""
        context, parts = self._context, self._parts
        point("recovery.before_serve")
        _take_precedence(context.settings.manager_nice)
        parts.doorkeeper.start()
        context.notifier.ready()
        self._say_status(clock.monotonic_ns())
        self._log.event(events.MANAGER_READY, REPORT, messages=parts.engine.index.messages.used,
                        epoch=parts.epoch)
        wake = parts.doorkeeper.wake
        context.signals.add_waker(wake)
        try:
            while not self._finished():
                self._group()
        finally:
            context.signals.remove_waker(wake)
        self._stop()
        return 0

    def _group(self) -> None:
        parts = self._parts
        engine, server = parts.engine, parts.server
        deadline = min(engine.next_deadline(), server.looks.due)
        if self._watchdog_due:
            deadline = min(deadline, self._watchdog_due)
        if self._draining_until:
            deadline = min(deadline, self._draining_until)
        parts.doorkeeper.arm(min(deadline, parts.rated.due))
        batch = parts.requests.take(REQUESTS_PER_GROUP)
        now = clock.monotonic_ns()
        engine.begin(clock.wall_ns(), now)
        server.recent.group(engine.now_ns, batch)
        for raw in batch:
            server.handle(raw)
        parts.control.drain()
        server.dispatch()
        durable.check_latch()  # an error inside a request, as of a new journal file: no answers
        engine.commit()
        server.release()
        parts.control.operators.release()
        if engine.poisoned or engine.back.ended:
            self._report_taken_back()
        signals = self._context.signals
        if (now >= self._chores_due or now >= parts.rated.due or signals.stopping
                or signals.reload_wanted or parts.writer.file_number != self._space_file):
            self._chores(now)
            self._ease(now)
        elif self._pressure.active or engine.index.counters[_LAST] > self._ease_above:
            self._ease(now)

    def _ease(self, began_ns: int) -> None:
        """Behind a group that began then: let pool.writer catch up if it is far behind."""
        pressure, counters = self._pressure, self._parts.engine.index.counters
        if pressure.after_group(counters[_LAST], counters[_CHECKPOINT], began_ns,
                                clock.monotonic_ns()):
            event, level = ((events.BACK_PRESSURE, WARNING) if pressure.active
                            else (events.BACK_PRESSURE_OVER, REPORT))
            self._log.event(event, level, frames=counters[_LAST] - counters[_CHECKPOINT],
                            limit=pressure.limit, paused_ms=pressure.paused_ms)
        self._parts.engine.books.paused(pressure.paused_ms)
        self._ease_above = counters[_CHECKPOINT] + pressure.limit if pressure.limit else FOREVER

    def _chores(self, now: int) -> None:
        """Seldom things: watchdog, disk space, signals."""
        context, parts = self._context, self._parts
        signals = context.signals
        side_files.retry()
        if signals.take_reload():
            self._reload()
        if signals.stopping and not self._draining_until:
            self._begin_drain(now)
        # Also with each journal file: a fast client could eat the reserve between two looks.
        if now >= self._space_due or parts.writer.file_number != self._space_file:
            self._space_file = parts.writer.file_number
            self._space_due = now + context.settings.disk_check_interval_s * clock.NS_PER_S
            self._note_space(free=parts.writer.check_space(context.settings))
        self._note_room()
        interval = context.notifier.watchdog_interval_s
        if interval and now >= self._watchdog_due:
            context.notifier.watchdog()
            self._watchdog_due = now + int(interval * clock.NS_PER_S)
        if now >= self._status_due:
            self._say_status(now)
        if now >= parts.rated.due:
            parts.rated.flush(now)
        self._chores_due = min(self._space_due, self._status_due, now + CHORES_NS,
                               self._watchdog_due or FOREVER)

    def _note_space(self, *, free: bool) -> None:
        """New messages are taken or refused; each change is one event."""
        self._parts.engine.books.space(free=free)
        if free != self._space_free:
            self._space_free = free
            event, level = (events.SPOOL_FREE, REPORT) if free else (events.SPOOL_FULL, ERROR)
            self._log.event(event, level, path=self._context.paths.root)

    def _note_room(self) -> None:
        """The same of the index; who fills it and empties it by turns fills no log."""
        low = self._parts.engine.books.room()
        if low != self._index_low:
            event, level = (events.INDEX_LOW, WARNING) if low else (events.INDEX_FREE, REPORT)
            self._index_low = low
            self._parts.rated.event(event, level, None, messages=self._parts.engine.index.messages
                                    .used, refused="all" if low > 1 else "members" if low else "")

    def _say_status(self, now: int) -> None:
        self._status_due = now + 10 * clock.NS_PER_S
        for queue, count in self._parts.engine.expiry.counted():
            self._log.event(events.MESSAGES_EXPIRED, REPORT, queue=queue, count=count)
        t = self._parts.engine.index
        slow = ", clients are slowed down until pool.writer has caught up"
        self._context.notifier.status(
            f"{t.messages.used} messages, {len(self._parts.sessions.by_id)} clients, "
            f"LSN {t.counters[_LAST]}{slow if self._pressure.active else ''}")

    def _report_taken_back(self) -> None:
        for ended in self._parts.engine.back.ended:
            self._log.event(events.LEASE_ENDED, WARNING, queue=ended.queue, qpool_id=ended.qpool,
                            pid_of_reader=ended.pid)
        self._parts.engine.back.ended.clear()
        for poisoned in self._parts.engine.poisoned:
            self._log.event(events.MESSAGE_POISONED, ERROR, queue=poisoned.queue,
                            qpool_id=poisoned.qpool, reason=poisoned.reason,
                            pid_of_reader=poisoned.pid)
        self._parts.engine.poisoned.clear()

    # reload and stop

    def _reload(self) -> None:
        """Queues and authority anew; a wrong file is refused and the old state stays."""
        context, parts = self._context, self._parts
        try:
            settings = load_settings(context.conf_dir)
            queues = load_queues(context.conf_dir)
            authority = load_authority(context.conf_dir, owner_uid=os.geteuid())
        except OmqError as error:
            self._log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
            return
        engine = parts.engine
        engine.begin(clock.wall_ns(), clock.monotonic_ns())
        before = dict(engine.rules)
        known = {rules.name: number for number, rules in before.items()}
        changed = [rules for rules in rules_from(queues, known, context.settings)
                   if rules != before.get(rules.queue)]
        try:
            engine.books.define_queues(changed)
        except SpoolFull as error:
            engine.commit()
            self._log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
            return
        for rules in changed:
            event = (events.QUEUE_DEFINED if rules.queue not in before
                     else events.QUEUE_REMOVED if rules.name not in queues
                     else events.QUEUE_CHANGED)
            self._log.event(event, REPORT, queue=rules.name)
        engine.books.limit(settings.messages_total_max, settings.index_reserve_percent)
        engine.commit(sync=True)
        parts.control.renumber()
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
        busy = any(s.party.active for s in self._parts.sessions.by_id.values())
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


def _take_precedence(nice: int) -> None:
    """Every client waits for this process: beside other work it may go first (manager_nice), if
    it has the right; a drop-in's Nice= does the same. By itself it does not: it would push the
    clients aside that are about to ask, and groups would be smaller (ADR 0017)."""
    if nice < os.getpriority(os.PRIO_PROCESS, 0):
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
    gc.collect()
    gc.freeze()  # what is there now stays


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


