"""Connections of omq-web: few, none that holds its place by being slow, and places kept for who is
logged in.

aiohttp reads requests; it waits for ever for one that trickles. A connection is a *stranger* until
a request of somebody who is logged in has come over it. Invariants: 1. at most web_connections_max
connections, of these web_strangers_max strangers, and web_client_connections_max of one source (an
address, or on loopback an account: services.network.source); 2. one more ends a stranger, the
oldest of the source that has most of them, and of its own source if that one is full; it is refused
where there is none: so who only holds places cannot keep others out; 3. a request has come with all
its headers web_idle_timeout_s after the connection, TLS included, or the answer before it; 4. its
answer is taken web_request_timeout_s after that, whatever trickles in which direction; a page that
follows has limits of its own (follow.py).
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from omq.base.settings import Settings
from omq.services.network.source import source_of

_CREDENTIALS_BYTES: Final = 12  # struct ucred: pid, uid, gid
_SHUTDOWN_S: Final = 5
"""For the end of TLS."""
_LINGER_S: Final = 10
"""What a client still sends after a refusal is read and dropped so long: cut at once, it would be
told of a broken connection and never see why."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections of a listener, and the keys of omq.conf that say it."""

    most: int
    strangers: int
    of_one: int
    keys: tuple[str, str, str]


def tcp_bounds(settings: Settings) -> Bounds:
    return Bounds(settings.web_connections_max, settings.web_strangers_max,
                  settings.web_client_connections_max,
                  ("web_connections_max", "web_strangers_max", "web_client_connections_max"))


def local_bounds(settings: Settings) -> Bounds:
    """Of the Unix socket: a stranger is an account that has no right here."""
    most = settings.web_socket_connections_max
    return Bounds(most, most, settings.web_user_socket_connections_max,
                  ("web_socket_connections_max", "web_socket_connections_max",
                   "web_user_socket_connections_max"))


class Connections:
    """All of one listener. For the event loop."""

    def __init__(self, settings: Settings, bounds: Bounds, refused: Callable[[str, str], None],
                 stirred: Callable[[], None]) -> None:
        self.settings, self._bounds = settings, bounds
        self._stirred = stirred  # called with the first of them: from now on `end_slow` is due
        self._refused = refused  # told source and reason
        self._open: set[Connection] = set()
        self._of: Counter[str] = Counter()
        self._strangers: dict[Connection, None] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more, or was made."""
        peer, bounds = connection.peer, self._bounds
        most, strangers, of_one = bounds.keys
        if self._of[peer] >= bounds.of_one and not self._end_stranger(peer, of_one):
            self._refused(peer, of_one)
            return False
        for full, key in ((len(self._open) >= bounds.most, most),
                          (len(self._strangers) >= bounds.strangers, strangers)):
            if full and not self._end_stranger(self._most(), key):
                self._refused(peer, key)
                return False
        if not self._open:
            self._stirred()
        self._open.add(connection)
        self._of[peer] += 1
        self._strangers[connection] = None
        return True

    def known(self, connection: Connection) -> None:
        """Somebody who is logged in has asked over it."""
        self._strangers.pop(connection, None)

    def left(self, connection: Connection) -> None:
        """It has ended; one that was refused, too."""
        if connection in self._open:
            self._open.discard(connection)
            self._strangers.pop(connection, None)
            self._of[connection.peer] -= 1
            self._of += Counter()  # drops the zeros

    def _most(self) -> str:
        """The source that has most strangers."""
        found = Counter(each.peer for each in self._strangers).most_common(1)
        return found[0][0] if found else ""

    def _end_stranger(self, peer: str, key: str) -> bool:
        """The oldest of a source, if it has one."""
        for each in self._strangers:
            if each.peer == peer:
                self._refused(peer, f"{key}: its oldest connection made room")
                self.left(each)
                each.abort()
                return True
        return False

    def end_slow(self, now: float) -> None:
        """Those whose time is over."""
        for each in tuple(self._open):
            if each.until <= now:
                each.abort()


class Connection(RequestHandler):
    """One of them. `until`: when it is cut. `left`: called when its client goes. `ids`: uid and gid
    of who is at the other end of the Unix socket, as the kernel says."""

    __slots__ = ("_connections", "_raw", "ids", "left", "peer", "until")

    def __init__(self, server: web.Server, connections: Connections,
                 loop: asyncio.AbstractEventLoop) -> None:
        settings = connections.settings
        super().__init__(server, loop=loop, access_log=None,  # type: ignore[arg-type]
                         keepalive_timeout=settings.web_idle_timeout_s, lingering_time=_LINGER_S,
                         max_line_size=16_384,
                         auto_decompress=False)  # few bytes would be many before they are reckoned
        self._connections = connections
        self._raw: asyncio.Transport | None = None
        self.peer = ""
        self.ids: tuple[int, int] | None = None
        self.left: Callable[[], None] | None = None
        self.until = math.inf

    def arrived(self, transport: asyncio.Transport) -> bool:
        """Its place among the others, before anything of it is read; False: there is none, and it
        is cut."""
        self._raw = transport
        ends = transport.get_extra_info("socket")
        self.ids = local_ids(ends)
        self.peer = source_of(ends) if self.ids is None else f"uid {self.ids[0]}"
        if self._connections.admit(self):
            self.wait_for_request()
            return True
        self.abort()
        return False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._raw is None:
            assert isinstance(transport, asyncio.Transport)
            self.arrived(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.left(self)
        if self.left is not None:
            self.left()
        super().connection_lost(exc)

    async def finish_response(self, request: Any, resp: Any, start_time: Any) -> Any:
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self.wait_for_request()

    def wait_for_request(self) -> None:
        """The next request is to come."""
        self.until = time.monotonic() + self._connections.settings.web_idle_timeout_s

    def work(self) -> None:
        """A request is here."""
        self.until = time.monotonic() + self._connections.settings.web_request_timeout_s

    def known(self) -> None:
        """Who asks is logged in."""
        self._connections.known(self)

    def follow(self) -> None:
        """Its answer has no end of its own."""
        self.until = math.inf

    def abort(self) -> None:
        """Cut it."""
        for transport in (self.transport, self._raw):
            if transport is not None:
                transport.abort()


def local_ids(ends: Any) -> tuple[int, int] | None:
    """uid and gid of who is at the other end; None: it is not a Unix socket."""
    if ends is None or ends.family != socket.AF_UNIX:
        return None
    data = ends.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
    _, uid, gid = memoryview(data).cast("I")
    return uid, gid


class Door(asyncio.Protocol):
    """A connection until TLS is agreed on: it has its place, and its time, from the start."""

    def __init__(self, connection: Connection, connections: Connections, tls: ssl.SSLContext
                 ) -> None:
        self._connection, self._connections, self._tls = connection, connections, tls
        self._agreeing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._connection.arrived(transport):
            self._agreeing = asyncio.get_running_loop().create_task(self._agree(transport))

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.left(self._connection)

    async def _agree(self, transport: asyncio.Transport) -> None:
        """Clients that do not agree (old, no TLS, no time) are not an event of ours."""
        timeout_s = self._connections.settings.web_idle_timeout_s
        try:
            upgraded = await asyncio.get_running_loop().start_tls(
                transport, self._connection, self._tls, server_side=True,
                ssl_handshake_timeout=timeout_s, ssl_shutdown_timeout=_SHUTDOWN_S)
        except OSError:
            upgraded = None
        if upgraded is None:
            self._connections.left(self._connection)
            transport.abort()
        else:
            self._connection.connection_made(upgraded)
