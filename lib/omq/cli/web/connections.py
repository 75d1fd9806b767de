"""Connections of omq-web: few, and none that holds its place by being slow.

aiohttp reads requests; it waits for ever for one that trickles. Invariants: 1. at most
web_connections_max connections, and web_client_connections_max of one address; one more is closed
before a byte is read; 2. a request has come with all its headers web_idle_timeout_s after the
connection, or the answer before it; 3. its answer is taken web_request_timeout_s after that,
whatever trickles in which direction; a page that follows has limits of its own (follow.py).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from omq.base.settings import Settings


class Connections:
    """All of them. For the event loop."""

    def __init__(self, settings: Settings, refused: Callable[[str, str], None],
                 stirred: Callable[[], None]) -> None:
        self.settings = settings
        self._stirred = stirred  # called with the first of them: from now on `end_slow` is due
        self._refused = refused  # told address and reason
        self._open: set[Connection] = set()
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more."""
        peer, settings = connection.peer, self.settings
        if len(self._open) >= settings.web_connections_max:
            self._refused(peer, "web_connections_max")
            return False
        if self._of[peer] >= settings.web_client_connections_max:
            self._refused(peer, "web_client_connections_max")
            return False
        if not self._open:
            self._stirred()
        self._open.add(connection)
        self._of[peer] += 1
        return True

    def left(self, connection: Connection) -> None:
        """It has ended; one that was refused, too."""
        if connection in self._open:
            self._open.discard(connection)
            self._of[connection.peer] -= 1
            self._of += Counter()  # drops the zeros

    def end_slow(self, now: float) -> None:
        """Those whose time is over."""
        for each in tuple(self._open):
            if each.until <= now:
                each.abort()


class Connection(RequestHandler):
    """One of them. `until`: when it is cut."""

    __slots__ = ("_connections", "peer", "until")

    def __init__(self, server: web.Server, connections: Connections,
                 loop: asyncio.AbstractEventLoop) -> None:
        settings = connections.settings
        super().__init__(server, loop=loop, access_log=None,  # type: ignore[arg-type]
                         keepalive_timeout=settings.web_idle_timeout_s, lingering_time=0,
                         max_line_size=16_384)
        self._connections = connections
        self.peer = ""
        self.until = math.inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if isinstance(name, tuple) else "local"
        super().connection_made(transport)
        if self._connections.admit(self):
            self.wait_for_request()
        else:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.left(self)
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

    def follow(self) -> None:
        """Its answer has no end of its own."""
        self.until = math.inf

    def abort(self) -> None:
        """Cut it."""
        if self.transport is not None:
            self.transport.abort()
