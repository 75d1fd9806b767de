"""The listener of omq-web, and its life: start, reload, stop.

It listens where systemd says (its socket unit), else on web_listen_host and web_listen_port, and at
run/web.sock, where the kernel says who asks; the address in use is in run/web.port. SIGHUP
reads certificate, users, tokens, proxy and rights again: sessions of users who are no more, or have
a new password, are over at once; addresses and limits change at a restart. SIGTERM ends those who
follow, lets answers under way finish for a moment, and ends. No session outlives it.

Errors: PortInUse, ConfigError.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from pathlib import Path
from typing import Final

from aiohttp import web

from omq.base import events, modes, side_files
from omq.base.config import load_settings
from omq.base.errors import ConfigError, PortInUse
from omq.base.event_log import ERROR, REPORT, EventLog
from omq.base.rated_log import NEVER
from omq.base.settings import Settings
from omq.base.socket_name import socket_name
from omq.cli.common import say
from omq.cli.web.app import application
from omq.cli.web.connections import (
    Connection,
    Connections,
    Door,
    local_bounds,
    tcp_bounds,
)
from omq.cli.web.console import Console
from omq.cli.web.exchange import EXCHANGE
from omq.cli.web.policy import load_policy
from omq.services.daemon.notify import Notifier
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals
from omq.services.network.inherited import inherited_sockets
from omq.services.network.listening import announce

NAME: Final = "omq-web"
PORT_FILE: Final = "web.port"
_SWEEP_S: Final = 0.5
_GRACE_S: Final = 3.0
"""For answers under way, at a stop."""


class WebServer:
    """Construct inside the event loop, then `run` once."""

    def __init__(self, location: Location, settings: Settings, signals: Signals) -> None:
        self._location, self._settings, self._signals = location, settings, signals
        policy = load_policy(settings, location.conf_dir, location.paths.root.stat().st_uid)
        self._log = EventLog(NAME, location.paths.event_log)
        self._console = Console(location, settings, policy, self._log)
        self._changed = asyncio.Event()
        self._bound: Path | None = None  # the Unix socket, if it is not systemd's

    async def run(self) -> int:
        """Until SIGTERM or SIGINT."""
        loop, console = asyncio.get_running_loop(), self._console
        connections, local = (
            Connections(self._settings, bounds(self._settings), console.refused, self._changed.set)
            for bounds in (tcp_bounds, local_bounds))
        app = application(console)
        runner = web.AppRunner(app, handle_signals=False,
                               shutdown_timeout=_GRACE_S)
        await runner.setup()
        inner = runner.server
        assert isinstance(inner, web.Server)

        tls = console.policy.tls

        def made() -> Connection | Door:
            connection = Connection(inner, connections, loop)
            return connection if tls is None else Door(connection, connections, tls)

        servers = await self._listen(made, lambda: Connection(inner, local, loop))
        notifier, file = Notifier(), self._location.paths.run / PORT_FILE
        try:
            found = announce(file, next((each for each in servers if not _is_local(each)), None))
            self._tell(found, notifier)
            loop.add_reader(self._signals.fileno(), self._on_signal)
            console.snapshots.start()
            while not self._signals.stopping:
                if self._signals.take_reload():
                    self._reload(notifier)
                for each in (connections, local):
                    each.end_slow(time.monotonic())
                app[EXCHANGE].deliveries.sweep(time.monotonic())
                console.log.flush(time.monotonic_ns())
                notifier.watchdog()
                desks, polls, held = app[EXCHANGE].deliveries.figures
                notifier.status(f"{len(console.sessions)} sessions, "
                                f"{len(connections) + len(local)} connections, {polls} gets wait, "
                                f"{held} deliveries in hand")
                await self._pause(_SWEEP_S if len(connections) or len(local) or desks else
                                  notifier.watchdog_interval_s)
            notifier.stopping()
            loop.remove_reader(self._signals.fileno())
        finally:
            for server in servers:
                server.close()
            console.end_followers()
            app[EXCHANGE].deliveries.send_away()
            await runner.cleanup()
            await app[EXCHANGE].close()
            for each in (connections, local):
                each.end_slow(float("inf"))
            await loop.run_in_executor(None, console.close)
            side_files.remove(file)
            if self._bound is not None:
                side_files.remove(self._bound)
        console.log.flush(NEVER)
        self._log.event(events.WEB_STOPPED, REPORT)
        self._log.close()
        return 0

    async def _listen(self, made: object, local: object) -> list[asyncio.Server]:
        loop, settings = asyncio.get_running_loop(), self._settings
        inherited = inherited_sockets()
        try:
            if inherited:
                return [await loop.create_server(  # type: ignore[call-overload]
                    local if each.family == socket.AF_UNIX else made, sock=each)
                    for each in inherited]
            servers = [await loop.create_server(  # type: ignore[call-overload]
                made, settings.web_listen_host, settings.web_listen_port, backlog=128)]
        except OSError as error:
            raise PortInUse(address=settings.web_listen_host, port=settings.web_listen_port,
                            reason=error.strerror or str(error), key="web_listen_port") from error
        if settings.web_socket == "on":
            path = self._location.paths.web_socket
            try:
                servers.append(await loop.create_server(  # type: ignore[call-overload]
                    local, sock=_bound(path), backlog=1024))
            except OSError as error:
                servers[0].close()
                raise PortInUse(address=str(path), port=0, reason=error.strerror or str(error),
                                key="web_socket") from error
            self._bound = path
        return servers

    def _tell(self, found: tuple[str, int] | None, notifier: Notifier) -> None:
        host, port = found or ("a socket", 0)
        secure = self._console.policy.tls is not None
        shown = f"[{host}]" if ":" in host else host
        self._log.event(events.WEB_STARTED, REPORT, address=host, port=port, tls=secure)
        say(NAME, f"http{'s' if secure else ''}://{shown}:{port}/")
        notifier.ready(f"listening on {host} port {port}")

    async def _pause(self, wait_s: float | None) -> None:
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), wait_s)
        except TimeoutError:
            return

    def _reload(self, notifier: Notifier) -> None:
        location, console = self._location, self._console
        notifier.reloading()
        try:
            settings = load_settings(location.conf_dir)
            policy = load_policy(settings, location.conf_dir, location.paths.root.stat().st_uid)
            if console.policy.tls is not None and settings.web_tls_certificate:
                console.policy.tls.load_cert_chain(  # what listens has this context
                    settings.web_tls_certificate, settings.web_tls_key or None,
                    password=lambda: b"")
            before = console.policy.users.hashes if console.policy.users else {}
            known = policy.users.hashes if policy.users else {}
            console.policy = policy
            console.callers.forget()
            console.sessions.end_of(frozenset(  # who has a new password may have lost the old one
                name for name, hashed in known.items() if before.get(name) == hashed))
            self._log.event(events.SERVICE_RELOADED, REPORT)
        except (ConfigError, OSError) as error:
            self._log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
        notifier.ready()

    def _on_signal(self) -> None:
        self._signals.drain()
        self._changed.set()


def _is_local(server: asyncio.Server) -> bool:
    return any(each.family == socket.AF_UNIX for each in server.sockets)


def _bound(path: Path) -> socket.socket:
    """The Unix socket; what a process before left is removed. OSError: somebody listens there."""
    with socket_name(path) as name:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            try:
                asking.connect(name)
            except OSError:
                side_files.remove(path)
            else:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(name)
            os.chmod(name, modes.WEB)
        except OSError:
            listener.close()
            raise
    return listener


def serve(location: Location, settings: Settings) -> int:
    """The program's body."""
    signals = Signals()
    signals.install()

    async def run() -> int:
        return await WebServer(location, settings, signals).run()

    return asyncio.run(run())
