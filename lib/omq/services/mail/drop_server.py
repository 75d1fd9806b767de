"""mail.drop: takes mail from programs of this host (omq-sendmail), also while the queue manager is
away, and puts it on ROUTER; a daemon of its own, not a reader.

An event loop serves the sessions at run/drop.sock (mail.drop_door), a few threads make files of
what they bring (mail.maildrop), one thread carries these to the manager (mail.drop_carrier). It
starts and works without a manager. Under systemd its socket unit listens, also while everything is
stopped, and starts it when somebody has mail: cron's mail of a night in which nothing ran is kept.

SIGHUP reads omq.conf again. SIGTERM: no new session; those that are half through a mail have
`drain_timeout_s`, for their authors were told nothing yet; then it ends. What waits stays.

Errors: SpoolLocked (another mail.drop), DiskError.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import omq
from omq.base import events, modes, side_files
from omq.base.config import load_settings
from omq.base.errors import ConfigError, DiskError
from omq.base.event_log import ERROR, REPORT, WARNING
from omq.base.rated_log import NEVER, RatedLog
from omq.base.socket_name import socket_name
from omq.services.daemon.daemon import DaemonContext, last_trace, run_daemon
from omq.services.mail.drop_carrier import Carrier
from omq.services.mail.drop_door import Desk, serve
from omq.services.mail.drop_protocol import HEAD_BYTES_MAX
from omq.services.mail.drop_users import Users
from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.mail_log import MailLog
from omq.services.mail.maildrop import Maildrop
from omq.services.mail.smtp_data import Memory
from omq.services.mail.smtp_intake import Connection
from omq.services.network.inherited import inherited_sockets

NAME: Final = "mail.drop"
_WORKERS: Final = 4  # files that are synced at once
_BACKLOG: Final = 128
_CLOSE_S: Final = 5.0


class DropServer:
    """Construct inside the event loop, then `run` once."""

    def __init__(self, context: DaemonContext, connect: Callable[[], Connection]) -> None:
        self._context, settings = context, context.settings
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._rated = RatedLog(context.log, settings.event_burst, settings.event_period_s)
        mail_log = MailLog(context.paths.logs, mail_hostname(settings), settings.mail_log_bytes_max)
        drop = Maildrop(context.paths, settings, self._tell)
        self._carrier = Carrier(drop, connect, context.log, self._rated, mail_log, self._stir)
        self._desk = Desk(settings, drop, Users(context.paths.root.stat().st_uid),
                          Memory(settings.smtp_memory_bytes_max),
                          ThreadPoolExecutor(_WORKERS, thread_name_prefix="drop"), mail_log,
                          self._rated, self._carrier.wake, self._failed)
        self._sessions: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Until SIGTERM or SIGINT."""
        context, desk = self._context, self._desk
        server = await self._listen()
        try:
            self._loop.add_reader(context.signals.fileno(), self._on_signal)
            self._carrier.start()
            context.log.event(events.DROP_STARTED, REPORT, address=str(context.paths.drop_socket),
                              waiting=len(desk.drop))
            context.notifier.ready("takes mail of this host's programs")
            await self._serve()
            self._loop.remove_reader(context.signals.fileno())
            await self._drain(server)
        finally:
            server.close()
            desk.workers.shutdown(wait=True, cancel_futures=True)
            self._carrier.stop(_CLOSE_S)
            desk.mail_log.close()
            desk.drop.close()
        self._rated.flush(NEVER)
        context.log.event(events.DROP_STOPPED, REPORT, waiting=len(desk.drop))
        return 0

    async def _listen(self) -> asyncio.Server:
        inherited = inherited_sockets()
        listener = inherited[0] if inherited else _bound(self._context)
        return await asyncio.start_unix_server(
            self._begin, sock=listener, limit=HEAD_BYTES_MAX, backlog=_BACKLOG)

    async def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sessions.add(task)
        try:
            await serve(self._desk, reader, writer)
        except Exception as error:  # an error of this program: it concerns one mail
            self._context.log.event(events.BUG, ERROR, traceback=last_trace(),
                                    reason=f"{type(error).__name__}: {error}")
        finally:
            self._sessions.discard(task)
            self._changed.set()

    async def _serve(self) -> None:
        context, desk = self._context, self._desk
        while not context.signals.stopping:
            if self._carrier.failure is not None:
                raise self._carrier.failure
            if context.signals.take_reload():
                self._reload()
            side_files.retry()
            context.notifier.watchdog()
            context.notifier.status(f"{desk.users.sessions.total()} sessions, "
                                    f"{len(desk.drop)} mails wait")
            await self._pause()

    async def _pause(self) -> None:
        self._changed.clear()
        waits = (self._context.notifier.watchdog_interval_s, side_files.wait_s())
        wait_s = min((each for each in waits if each is not None), default=None)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), wait_s)

    async def _drain(self, server: asyncio.Server) -> None:
        context, patience_s = self._context, self._desk.settings.drain_timeout_s
        context.notifier.stopping("finishing the open sessions")
        context.notifier.extend(patience_s + _CLOSE_S)
        server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self._desk.memory.used:  # a mail comes, or its file is made
                    context.notifier.watchdog()
                    await self._pause()
        for task in tuple(self._sessions):
            task.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    def _reload(self) -> None:
        context, desk = self._context, self._desk
        context.notifier.reloading()
        try:
            settings = load_settings(context.conf_dir)
            desk.settings = desk.drop.settings = settings
            desk.memory.limit = settings.smtp_memory_bytes_max
            context.log.event(events.SERVICE_RELOADED, REPORT)
        except ConfigError as error:
            context.log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
        context.notifier.ready()

    def _failed(self, error: DiskError) -> None:
        self._carrier.failure = self._carrier.failure or error
        self._changed.set()

    def _tell(self, name: str, reason: str) -> None:
        self._rated.event(events.DROP_FILE, WARNING, "file", file=f"maildrop/{name}", reason=reason)

    def _stir(self) -> None:
        """From the carrier's thread: it has ended."""
        with suppress(RuntimeError):  # the loop, too
            self._loop.call_soon_threadsafe(self._changed.set)

    def _on_signal(self) -> None:
        self._context.signals.drain()
        self._changed.set()


def _bound(context: DaemonContext) -> socket.socket:
    """The socket; what a process before left is removed (the maildrop's lock is held)."""
    path = context.paths.drop_socket
    side_files.remove(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket_name(path) as name:
        listener.bind(name)
        os.chmod(name, modes.DROP)
    return listener


def _serve(context: DaemonContext) -> int:
    def connect() -> Connection:
        connection: Connection = omq.connect(spool=context.paths.root, name=NAME)
        return connection

    async def run() -> int:
        return await DropServer(context, connect).run()

    return asyncio.run(run())


def main(argv: list[str] | None = None) -> int:
    """The program mail.drop; returns its exit code."""
    return run_daemon(NAME, sys.argv[1:] if argv is None else argv, _serve, service="drop")
