"""The listeners of amqp.server, and its life: start, reload, stop.

Start: the queue manager must be reachable and the ports free before the supervisor gets READY.
SIGHUP reads the configuration again, with certificate, users, rights and exchanges: new handshakes
have the new certificate, links whose user has lost the right are ended. Addresses and ports change
at a restart. SIGTERM drains: no new connection; transfers that are here are put and accepted, then
each connection is closed with amqp:connection:forced, which clients take as "reconnect". What a
client holds unsettled comes back untouched. What is left after `drain_timeout_s` is cut off.

Errors: PortInUse; ConfigError; ManagerUnavailable at the start only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from omq.base import events, side_files
from omq.base.config import load_settings
from omq.base.errors import ConfigError
from omq.base.event_log import ERROR, REPORT, WARNING
from omq.base.rated_log import NEVER
from omq.ipc.client.connection import Client
from omq.services.amqp.host import Host
from omq.services.amqp.operator_desk import OperatorDesk
from omq.services.amqp.policy import load_policy
from omq.services.amqp.session import Session
from omq.services.amqp091.protocol_switch import take_over
from omq.services.daemon.daemon import DaemonContext
from omq.services.daemon.draining import Draining
from omq.services.network.listening import announce, listen
from omq.services.network.tls import bound_buffers

PLAIN_FILE: Final = "amqp.port"
TLS_FILE: Final = "amqps.port"
_STIR_S: Final = 1.0
_CLOSE_S: Final = 5.0
_LAST_S: Final = 0.5


class AmqpServer:
    """Construct inside the event loop, then `run` once."""

    def __init__(self, context: DaemonContext, connect: Callable[[], Client] | None = None) -> None:
        self._context = context
        policy = load_policy(context.settings, context.conf_dir,
                             context.paths.root.stat().st_uid)
        self._host = Host(context, policy, take_over, connect)
        self._desk = OperatorDesk(self._host, self._reload)

    async def run(self) -> int:
        """Until SIGTERM or SIGINT, and all connections have ended."""
        loop, signals, host = asyncio.get_running_loop(), self._context.signals, self._host
        servers: dict[str, asyncio.Server] = {}
        try:
            await loop.run_in_executor(None, host.check)
            await self._desk.open()
            for file, port, secured in self._ports():
                servers[file] = await self._listen(port, secured=secured)
            loop.add_reader(signals.fileno(), self._on_signal)
            self._announce(servers)
            await self._serve()
            loop.remove_reader(signals.fileno())
            await self._drain(servers)
        finally:
            self._desk.close()
            for server in servers.values():
                server.close()
            if left := await host.quick.calm(_CLOSE_S):
                self._context.log.event(
                    events.FAILED, WARNING, at="stop", reason=f"the queue manager has not answered "
                    f"for {left} messages: clients that have not heard of theirs send them again")
            # Who has not answered until now is not waited for once more.
            await loop.run_in_executor(None, host.close, _LAST_S if left else _CLOSE_S)
        host.rated.flush(NEVER)
        self._context.log.event(events.AMQP_STOPPED, REPORT)
        return 0

    def _ports(self) -> Iterator[tuple[str, int, bool]]:
        settings = self._context.settings
        if settings.amqp_listen_port >= 0:
            yield PLAIN_FILE, settings.amqp_listen_port, False
        if settings.amqps_listen_port >= 0:
            yield TLS_FILE, settings.amqps_listen_port, True

    async def _listen(self, port: int, *, secured: bool) -> asyncio.Server:
        settings = self._context.settings
        return await listen(
            lambda: Session(self._host, secured=secured), settings.amqp_listen_host, port,
            key="amqps_listen_port" if secured else "amqp_listen_port",
            backlog=min(settings.amqp_connections_max, 1024))

    def _announce(self, servers: dict[str, asyncio.Server]) -> None:
        context, said = self._context, []
        for name in (PLAIN_FILE, TLS_FILE):
            if (found := announce(context.paths.run / name, servers.get(name))) is not None:
                host, port = found
                context.log.event(events.AMQP_STARTED, REPORT, address=host, port=port,
                                  tls=name == TLS_FILE)
                said.append(f"{host} port {port}")
        context.notifier.ready(f"listening on {', '.join(said) or 'no port'}")

    async def _serve(self) -> None:
        signals, notifier, host = self._context.signals, self._context.notifier, self._host
        while not signals.stopping:
            if signals.take_reload():
                self._reload()
            notifier.watchdog()
            side_files.retry()
            host.stir()
            self._desk.stir()
            notifier.status(f"{len(host.sessions)} connections")
            await self._pause(_STIR_S)

    async def _pause(self, wait_s: float) -> None:
        self._host.changed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._host.changed.wait(), wait_s)

    async def _drain(self, servers: dict[str, asyncio.Server]) -> None:
        context, host = self._context, self._host
        wait_s = host.policy.settings.drain_timeout_s
        context.notifier.stopping("finishing what clients have sent")
        context.notifier.extend(wait_s + 2 * _CLOSE_S)
        context.log.event(events.SERVICE_DRAINING, REPORT, sessions=len(host.sessions))
        host.draining = True
        for server in servers.values():
            server.close()
        draining = Draining(context.paths, wait_s)
        while host.sessions and not draining.over:
            for session in tuple(host.sessions):
                if not session.busy:
                    session.goodbye()
            context.notifier.watchdog()
            await self._pause(0.1)
        for session in tuple(host.sessions):
            session.abort()
        await asyncio.sleep(0)  # connection_lost of those

    def _reload(self) -> None:
        context, host = self._context, self._host
        context.notifier.reloading()
        try:
            host.policy = load_policy(load_settings(context.conf_dir), context.conf_dir,
                                      context.paths.root.stat().st_uid)
            if host.older is not None:
                host.older.read_again()
            for session in tuple(host.sessions):
                session.recheck()
            context.log.event(events.SERVICE_RELOADED, REPORT)
        except ConfigError as error:
            context.log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
        context.notifier.ready()

    def _on_signal(self) -> None:
        self._context.signals.drain()
        self._host.changed.set()


def serve(context: DaemonContext) -> int:
    """The daemon's body."""
    bound_buffers()

    async def run() -> int:
        return await AmqpServer(context).run()

    return asyncio.run(run())
