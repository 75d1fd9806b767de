"""smtp.server: takes mail over SMTP and puts it on a queue; a daemon of its own, not a reader.

One event loop serves all sessions (omq.services.mail.smtp_session), a few threads put what they
accept (omq.services.mail.smtp_intake). The texts of all sessions share one count of memory. It
listens on loopback unless told otherwise, at up to four ports: for other hosts, for mail programs,
for the filter before the queue (`Listener`). The address in use is written to run/smtp.port ("host
port", one line), for the case that the port was chosen by the system; so are those of the others.

Start: the queue manager must be reachable and the ports free before the supervisor gets READY.
SIGHUP reads the configuration again, with certificate and users; new handshakes have the new
certificate. Addresses and ports change with it: who asks a filter has its return port. A port that
cannot be had (another program has it; one below 1024, for which the privilege is gone) refuses the
whole reload. Sessions at a port that is given up go on.
SIGTERM drains: no new connection; sessions between two messages get 421 and are closed; those in a
transaction finish it, and are closed after it. What is left after `drain_timeout_s` is cut off: it
never had its 250, so its client sends again.

Errors: PortInUse; ConfigError; ManagerUnavailable at the start only, later ones are replies.

Tells the C library to give large pieces of memory back to the system when they are freed.

glibc raises the size from which it maps a piece by itself up to 32 MiB, each time such a piece is
freed (mallopt(3), M_MMAP_THRESHOLD): a daemon that has had a few large texts then keeps them in its
heap for ever. A threshold that is set stays.

No errors: a C library without mallopt goes its own way.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import omq
from omq.base import events, side_files
from omq.base.config import load_settings
from omq.base.errors import ConfigError, PortInUse
from omq.base.event_log import ERROR, REPORT, WARNING
from omq.base.limits import KIB
from omq.base.rated_log import NEVER, RatedLog
from omq.services.daemon.daemon import DaemonContext, run_daemon
from omq.services.daemon.draining import Draining
from omq.services.mail.mail_log import MailLog
from omq.services.mail.smtp_commands import SmtpCommands
from omq.services.mail.smtp_data import Memory
from omq.services.mail.smtp_filter import Filter
from omq.services.mail.smtp_handler import Handler, Listener
from omq.services.mail.smtp_intake import Connection, Intake
from omq.services.mail.smtp_policy import load_policy
from omq.services.mail.smtp_session import SmtpSession
from omq.services.network.listening import announce, listen
from omq.services.network.tls import bound_buffers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from omq.base.settings import Settings

_M_MMAP_THRESHOLD: Final = -3  # malloc.h
_THRESHOLD_BYTES: Final = 256 * KIB


def return_large_memory() -> None:
    """For this process, from now on."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)


PORT_FILE = Listener.RELAY.value
_DRAIN_LOOK_S = 0.5  # from one look to the next, while sessions finish
_CLOSE_S = 5.0  # after the drain: to cut off what is left and say good-bye to the manager


class SmtpServer:
    """Construct, then `run` once inside an event loop."""

    def __init__(self, context: DaemonContext, connect: Callable[[], Connection]) -> None:
        self._context, settings = context, context.settings
        self._rated = RatedLog(context.log, settings.event_burst, settings.event_period_s)
        policy = load_policy(settings, context.conf_dir, context.paths.root)
        self._handler = Handler(
            policy, Intake(connect, settings.smtp_workers, settings.smtp_batch_messages_max,
                           settings.channel_bytes // 2),
            context.log, self._rated,
            MailLog(context.paths.logs, policy.hostname, settings.mail_log_bytes_max),
            Memory(settings.smtp_memory_bytes_max),
            ThreadPoolExecutor(settings.submission_workers, thread_name_prefix="password"),
            Filter(policy.hostname, settings.smtp_filter_connections_max))
        self._servers: dict[Listener, asyncio.Server] = {}
        self._places: dict[Listener, tuple[str, int]] = {}  # as the settings have them
        self._live: set[SmtpSession] = set()
        self._returned: set[SmtpSession] = set()  # the filter's
        self._draining = False
        self._wake = asyncio.Event()

    async def run(self) -> int:
        """Until SIGTERM or SIGINT, and all sessions have ended."""
        loop, signals = asyncio.get_running_loop(), self._context.signals
        try:
            await self._open(self._context.settings)
            await loop.run_in_executor(None, self._handler.intake.check)
            loop.add_reader(signals.fileno(), self._on_signal)
            host, port = self._servers[Listener.RELAY].sockets[0].getsockname()[:2]
            self._context.notifier.ready(f"listening on {host} port {port}")
            await self._serve()
            loop.remove_reader(signals.fileno())
            await self._drain(self._servers)
        finally:
            for server in self._servers.values():
                server.close()
            self._handler.checking.shutdown(wait=False, cancel_futures=True)
            self._handler.looking.shutdown(wait=False, cancel_futures=True)
            await loop.run_in_executor(None, self._handler.filter.close)
            if not await loop.run_in_executor(None, self._handler.intake.close, _CLOSE_S):
                self._context.log.event(
                    events.FAILED, WARNING, at="stop", reason="the queue manager has not answered "
                    "for mails that have come: clients that have not heard of theirs send them "
                    "again")
            self._handler.tell()
            self._handler.mail_log.close()
        self._handler.policy.routes.close()
        self._rated.flush(NEVER)
        self._context.log.event(events.SMTP_STOPPED, REPORT)
        return 0

    def _new_session(self, listener: Listener) -> SmtpSession:
        commands = SmtpCommands(self._handler, listener)
        live = self._returned if listener is Listener.RETURNED else self._live

        def ended(session: SmtpSession) -> None:
            commands.end()
            live.discard(session)
            self._wake.set()

        session = SmtpSession(commands, ended, tls_first=listener is Listener.SUBMISSIONS)
        session.draining = self._draining and live is self._live
        live.add(session)
        return session

    def _announce(self, fresh: Collection[Listener]) -> None:
        """The addresses in run/, an event for each that is new."""
        context = self._context
        for listener in Listener:
            found = announce(context.paths.run / listener.value, self._servers.get(listener))
            if found is not None and listener in fresh:
                context.log.event(events.SMTP_STARTED, REPORT, address=found[0], port=found[1])

    async def _serve(self) -> None:
        signals, notifier = self._context.signals, self._context.notifier
        while not signals.stopping:
            if signals.take_reload():
                await self._reload()
            notifier.watchdog()
            side_files.retry()
            notifier.status(f"{len(self._live)} sessions")
            await self._pause()

    async def _pause(self, most_s: float | None = None) -> None:
        """Until something happens, the watchdog wants to hear of us, or a side file is owed."""
        self._wake.clear()
        waits = (self._context.notifier.watchdog_interval_s, side_files.wait_s(), most_s)
        wait_s = min((each for each in waits if each is not None), default=None)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), wait_s)

    async def _drain(self, servers: Mapping[Listener, asyncio.Server]) -> None:
        context = self._context
        context.notifier.stopping("finishing the open sessions")
        context.notifier.extend(self._handler.policy.settings.drain_timeout_s + _CLOSE_S)
        context.log.event(events.SERVICE_DRAINING, REPORT, sessions=len(self._live))
        self._draining = True
        for listener, server in servers.items():
            if listener is not Listener.RETURNED:  # those who wait for the filter are let finish
                server.close()
        for session in tuple(self._live):
            session.draining = True
            if not session.busy:
                session.goodbye()
        draining = Draining(context.paths, self._handler.policy.settings.drain_timeout_s)
        while self._live and not draining.over:
            context.notifier.watchdog()
            await self._pause(_DRAIN_LOOK_S)
        for session in tuple(self._returned):
            session.goodbye()
        for session in tuple(self._live):
            context.log.event(events.SMTP_SESSION_FAILED, WARNING, reason="cut off at the stop")
            session.abort()

    async def _reload(self) -> None:
        """All of the new configuration, its addresses and ports, too, or none of it."""
        context, handler = self._context, self._handler
        context.notifier.reloading()
        try:
            settings = load_settings(context.conf_dir)
            policy = load_policy(settings, context.conf_dir, context.paths.root)
            try:
                await self._open(settings)
            except BaseException:
                policy.routes.close()
                raise
            policy.mailboxes.promises.made.update(handler.policy.mailboxes.promises.made)
            if policy.probes is not None and handler.policy.probes is not None:
                policy.probes.known.update(handler.policy.probes.known)
            handler.policy.routes.close()
            handler.policy, handler.memory.limit = policy, settings.smtp_memory_bytes_max
            context.log.event(events.SERVICE_RELOADED, REPORT)
        except (ConfigError, PortInUse) as error:
            context.log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
        context.notifier.ready()

    async def _open(self, settings: Settings) -> None:
        """Listen where these settings say. PortInUse, and all is as it was."""
        wanted = {each: (host, getattr(settings, key), key)
                  for each, host, key in _addresses(settings)}
        fresh: dict[Listener, asyncio.Server] = {}
        try:
            for listener, (host, port, key) in wanted.items():
                if self._places.get(listener) != (host, port):
                    fresh[listener] = await listen(
                        partial(self._new_session, listener), host, port, key=key,
                        backlog=settings.smtp_sessions_max)
        except BaseException:
            for server in fresh.values():
                server.close()
            raise
        for listener in self._servers.keys() - (wanted.keys() - fresh.keys()):
            self._servers.pop(listener).close()
        self._servers |= fresh
        self._places = {listener: (host, port) for listener, (host, port, _) in wanted.items()}
        self._announce(fresh)

    def _on_signal(self) -> None:
        self._context.signals.drain()
        self._wake.set()


def _addresses(settings: Settings) -> Iterator[tuple[Listener, str, str]]:
    """(what for, host, key of the port) of everything that is listened on."""
    yield Listener.RELAY, settings.smtp_listen_host, "smtp_listen_port"
    host = settings.submission_listen_host or settings.smtp_listen_host
    if settings.submission_port >= 0:
        yield Listener.SUBMISSION, host, "submission_port"
    if settings.submissions_port >= 0:
        yield Listener.SUBMISSIONS, host, "submissions_port"
    if settings.smtp_filter_return_port >= 0:
        yield Listener.RETURNED, settings.smtp_filter_return_host, "smtp_filter_return_port"


def serve(context: DaemonContext) -> int:
    """The daemon's body."""
    return_large_memory()
    bound_buffers()

    def connect() -> Connection:
        connection: Connection = omq.connect(spool=context.paths.root, name="smtp.server")
        return connection

    async def run() -> int:
        return await SmtpServer(context, connect).run()

    return asyncio.run(run())


def main(argv: list[str] | None = None) -> int:
    """The program smtp.server; returns its exit code."""
    return run_daemon("smtp.server", sys.argv[1:] if argv is None else argv, serve, service="smtp")
