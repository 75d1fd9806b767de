"""The HTTP side of omq-metrics: one answer for all who ask at the same time, and few connections.

The application is the client library's (it knows the formats and their negotiation); around it a
server of the standard library with a thread a connection. Invariants: 1. at most
metrics_connections_max threads, more are closed at once; 2. no connection lives longer than
metrics_timeout_s, however many bytes trickle; 3. one look at a time, and its answer stands for
metrics_age_ms.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from omq.base.settings import Settings


class Remembered(Collector):
    """The metrics of another collector, looked for once in `age_s`."""

    def __init__(self, source: Collector, age_s: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._age_s, self._clock = source, age_s, clock
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._found: tuple[Metric, ...] = ()

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            if self._clock() >= self._until:
                self._found = tuple(self._source.collect())
                self._until = self._clock() + self._age_s
            return iter(self._found)


class Handler(WSGIRequestHandler):
    """Logs nothing for a request: a scrape a second is not news."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """`handle_request` when its descriptor is readable, `end_slow` now and then: the main loop."""

    allow_reuse_address = True
    timeout = 0.0  # of handle_request: whoever hung up meanwhile is not waited for

    def __init__(self, settings: Settings, source: Collector) -> None:
        self._timeout_s = float(settings.metrics_timeout_s)
        self._places = threading.BoundedSemaphore(settings.metrics_connections_max)
        self._until: dict[socket.socket, float] = {}  # connection -> when it is ended
        host = settings.metrics_listen_host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, settings.metrics_listen_port), Handler)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Remembered(source, settings.metrics_age_ms / 1000))
        self.set_app(make_wsgi_app(registry))

    @property
    def busy(self) -> bool:
        """Whether somebody is connected."""
        return bool(self._until)

    def server_close(self) -> None:
        """Ends what is open, and returns when the threads have seen it."""
        self.end_slow(math.inf)
        super().server_close()

    def end_slow(self, now: float) -> None:
        """Those whose time is over: the thread sees the end of the connection."""
        for each, until in tuple(self._until.items()):
            if until <= now:
                with suppress(OSError):  # it has just ended by itself
                    each.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._until[request] = time.monotonic() + self._timeout_s
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._until[request]
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or was too slow: its own matter. What a look failed with is
        answered by the application with 500 and told on stderr."""
