"""pool.writer: recovery that never stops. It follows the journal and takes the checkpoints.

For each manager: the pool lock, the index, redo from the last checkpoint (this start is O(1)), then
omq.services.pool.following until the manager is gone. Without a manager nothing is held: its
recovery wants the lock. Ready means that a valid position in the journal was held once.

    kill -9 at any instruction: the old checkpoint counts, the same redo is done again

Errors: DiskError ends the process; whatever else a round meets is an event and a later round.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final

from omq.base import clock, event_log, events, side_files
from omq.base.config import load_settings
from omq.base.errors import ConfigError, DiskError, ManagerUnavailable, SpoolLocked
from omq.base.paths import SpoolPaths
from omq.services.daemon.daemon import DaemonContext, run_daemon
from omq.services.pool.following import Following
from omq.services.pool.live_index import LiveIndex
from omq.services.pool.protocols import Connect, Connection
from omq.storage import spool

NAME: Final = "pool.writer"
GROUP_WAIT_S: Final = 0.005
"""A group of the manager ends within milliseconds; waited for in such slices."""


class Pulse:
    """Waiting, and the signs of life that go with it."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._watchdog_due = 0

    def wait(self, periods: int = 1, also: int = -1) -> None:
        """Some poll periods, or until a signal, or until the descriptor `also` is readable."""
        self.beat()
        self._context.signals.wait(periods * self._context.settings.pool_poll_ms / 1000, also)

    def short(self) -> None:
        """A moment, for a group of the manager to end."""
        self.beat()
        self._context.signals.wait(GROUP_WAIT_S)

    def beat(self) -> None:
        """Tell the watchdog, if it is time; write side files that are owed."""
        side_files.retry()
        interval = self._context.notifier.watchdog_interval_s
        now = clock.monotonic_ns()
        if interval and now >= self._watchdog_due:
            self._watchdog_due = now + int(interval * clock.NS_PER_S)
            self._context.notifier.watchdog()

    def busy(self, status: str) -> None:
        """Start or stop takes longer, and here is why."""
        self.beat()
        self._context.notifier.extend(self._context.settings.start_timeout_s)
        self._context.notifier.status(status)


class PoolWriter:
    """The daemon: waits for a manager, follows it until it is gone, and so on until SIGTERM."""

    def __init__(self, context: DaemonContext, connect: Connect) -> None:
        self._context = context
        self._connect = connect
        self._ready = False

    def run(self) -> int:
        """Until SIGTERM; the exit code."""
        signals = self._context.signals
        self._context.log.event(events.POOL_WRITER_STARTED)
        while not signals.stopping:
            pulse = Pulse(self._context)
            following = self._attach(pulse)
            if following is None:
                self._context.notifier.status("waiting for the queue manager")
                pulse.wait()
                if signals.take_reload():
                    self._reload()
                continue
            try:
                self._say_ready(following)
                following.follow()
                reload = following.reload
            finally:
                following.close()
            if reload:
                self._reload()
        self._context.log.event(events.POOL_WRITER_STOPPED)
        return 0

    def _say_ready(self, following: Following) -> None:
        if not self._ready:
            self._context.notifier.ready(following.status())
            self._ready = True

    def _attach(self, pulse: Pulse) -> Following | None:
        """The running manager's index, and the pool lock; None: not now."""
        paths = self._context.paths
        try:
            index = LiveIndex(paths)
        except ManagerUnavailable:
            return None
        if not index.running:
            index.close()
            return None
        try:
            lock = spool.lock(paths.pool_lock, NAME)
        except SpoolLocked:  # the manager is not ready yet, or a repair is at work
            index.close()
            return None
        following = Following(self._context, pulse, self._connect, index, lock)
        try:
            # Asked again: with the lock in hand, no other manager can have recovered meanwhile.
            if index.running and following.start():
                return following
        except BaseException:
            following.close()
            raise
        following.close()
        return None

    def _reload(self) -> None:
        """SIGHUP: the settings anew; a wrong file is refused and the old ones stay."""
        context = self._context
        try:
            self._context = replace(context, settings=load_settings(context.conf_dir))
        except ConfigError as error:
            context.log.event(events.RELOAD_REFUSED, event_log.ERROR, reason=str(error))
        else:
            context.log.event(events.SERVICE_RELOADED)


def connect_manager(paths: SpoolPaths, timeout_s: float) -> Connection:
    """The real connection; imported late, so that the daemon starts without it."""
    from omq.ipc.client.connection import connect

    return connect(spool=paths.root, name=NAME, timeout_s=timeout_s)


def _body(context: DaemonContext) -> int:
    try:
        return PoolWriter(context, connect_manager).run()
    except DiskError as error:
        context.log.event(events.DISK_ERROR, event_log.FATAL, reason=str(error))
        raise


def main(argv: list[str] | None = None) -> int:
    """The program pool.writer; its exit code."""
    return run_daemon(NAME, sys.argv[1:] if argv is None else argv, _body, service="pool")
