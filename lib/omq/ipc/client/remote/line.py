"""One connection of AMQP, with a thread that has it: bytes, heart-beats, events.

The library's objects are touched by that thread alone, for they count their references without a
lock. A caller says what it waits for: a function which the thread asks now and after everything
that happens, until it says more than None. So a program that works for an hour on a message is not
taken for dead, as long as its process lives.

Invariants: 1. what the functions give to callers are values, not objects of the library; 2. a line
that is broken stays so, and everybody who waits gets RemoteLost.

Errors: RemoteLost, TimedOut, ConnectionForked, ConnectionClosed.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from proton import Collector, Connection, Event, ProtonException, Transport

from omq.base.errors import ConnectionClosed, ConnectionForked, OmqError, RemoteLost, TimedOut
from omq.ipc.client.remote.url import Url

T = TypeVar("T")
_READ_BYTES: Final = 64 * 1024
_IDLE_S: Final = 60.0
"""A server that says nothing for so long, no heart-beat either, is gone."""


class Served(Protocol):
    """The part of a link that gets its events, in the thread."""

    def happened(self, event: Event) -> None: ...


@dataclass(slots=True)
class _Wait:
    ask: Callable[[], Any]
    ended: threading.Event = field(default_factory=threading.Event)
    value: Any = None
    error: BaseException | None = None


class Line:
    """See the module."""

    def __init__(self, url: Url, name: str, timeout_s: float) -> None:
        self.url, self.timeout_s, self._pid = url, timeout_s, os.getpid()
        self.links: dict[Any, Served] = {}
        self.session: Any = None
        self._waits: list[_Wait] = []
        self._lock = threading.Lock()
        self._lost: OmqError | None = None
        self._closing = False
        try:
            self._socket = self._connected()
        except OSError as error:  # those of TLS are among them
            raise RemoteLost(url=url.shown, reason=str(error)) from error
        self._near, self._far = socket.socketpair()
        self._near.settimeout(0)
        self._far.settimeout(0)
        self._thread = threading.Thread(target=self._serve, args=(name,), name="omq remote",
                                        daemon=True)
        self._thread.start()
        self.until(lambda: self._opened() or None, timeout_s)

    def _connected(self) -> socket.socket:
        raw = socket.create_connection((self.url.host, self.url.port), self.timeout_s)
        if self.url.tls is None:
            return raw
        try:
            return self.url.tls.wrap_socket(raw, server_hostname=self.url.host)
        except OSError:
            raw.close()
            raise

    # for callers

    def until(self, ask: Callable[[], T | None], timeout_s: float | None) -> T:
        """What `ask` says at last, which the thread calls. TimedOut; its error."""
        if os.getpid() != self._pid:
            raise ConnectionForked(maker=self._pid, child=os.getpid())
        wait = _Wait(ask)
        with self._lock:
            if self._lost is not None:
                raise self._lost
            self._waits.append(wait)
        self.poke()
        try:
            wait.ended.wait(timeout_s)
        finally:
            with self._lock:  # from here on the thread does not ask it
                if wait in self._waits:
                    self._waits.remove(wait)
        if wait.error is not None:
            raise wait.error
        if not wait.ended.is_set():
            raise TimedOut(seconds=timeout_s, what=self.url.shown)
        found: T = wait.value
        return found

    def poke(self) -> None:
        """Have the thread look again; callable from a signal handler."""
        with contextlib.suppress(OSError):  # full: the thread looks in any case; closed: it is over
            self._far.send(b"\0")

    def close(self) -> None:
        """Say good-bye; a second time does nothing."""
        if self._closing or os.getpid() != self._pid:
            return
        self._closing = True
        self.poke()
        self._thread.join(self.timeout_s)

    # the thread

    def _serve(self, name: str) -> None:
        try:
            self._run(name)
        except (OSError, ProtonException) as error:
            self._end(str(error))
        finally:
            self._end("it was closed")
            self._socket.close()
            self._near.close()
            self._far.close()

    def _run(self, name: str) -> None:
        self._engine, self._events = Transport(Transport.CLIENT), Collector()
        self._connection = connection = Connection()
        connection.collect(self._events)
        connection.container, connection.hostname = f"{name}-{os.getpid()}", self.url.host
        if self.url.user:
            connection.user, connection.password = self.url.user, self.url.password
        sasl = self._engine.sasl()
        sasl.allow_insecure_mechs = True  # what is insecure is url's to say
        self._engine.idle_timeout = _IDLE_S
        self._engine.bind(connection)
        connection.open()
        self.session = connection.session()
        self.session.open()
        self._socket.settimeout(0)
        said_bye = False
        while True:
            due = self._engine.tick(time.monotonic())  # of a heart-beat, ours or the server's
            self._look()
            if self._closing and not said_bye:
                said_bye = True
                connection.close()
            if not self._write() or self._engine.closed:
                return
            self._wait(max(0.0, due - time.monotonic()) if due else _IDLE_S)
            self._read()

    def _wait(self, wait_s: float) -> None:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return
        writes = [self._socket] if self._engine.pending() > 0 else []
        select.select([self._socket, self._near], writes, [], wait_s)
        with contextlib.suppress(BlockingIOError):
            self._near.recv(4096)

    def _read(self) -> None:
        room = self._engine.capacity()
        if room <= 0:
            return
        try:
            data = self._socket.recv(min(room, _READ_BYTES))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        if not data:
            self._engine.close_tail()
            raise OSError("the server has closed the line")
        self._engine.push(data)

    def _write(self) -> bool:
        """Whether the engine has more to say, now or later."""
        while (size := self._engine.pending()) > 0:
            try:
                sent = self._socket.send(bytes(self._engine.peek(min(size, _READ_BYTES))))
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return True
            self._engine.pop(sent)
        return bool(size == 0)

    def _look(self) -> None:
        while (event := self._events.peek()) is not None:
            self._happened(event)
            self._events.pop()
        with self._lock:
            waits = tuple(self._waits)
        for wait in waits:
            with self._lock:  # what it takes, and forgets, is for a caller that is still there
                if wait not in self._waits:
                    continue
                try:
                    wait.value = wait.ask()
                except Exception as error:  # the caller's, whatever it is
                    wait.error = error
                if wait.value is None and wait.error is None:
                    continue
                self._waits.remove(wait)
                wait.ended.set()

    def _happened(self, event: Event) -> None:
        kind = event.type
        if kind in (Event.CONNECTION_REMOTE_CLOSE, Event.TRANSPORT_ERROR):
            condition = (event.connection.remote_condition if kind == Event.CONNECTION_REMOTE_CLOSE
                         else event.transport.condition)
            self._connection.close()
            if not self._closing:
                self._end(f"{condition.name}: {condition.description}" if condition
                          else "the server has ended it")
        elif kind in (Event.DELIVERY, Event.LINK_REMOTE_OPEN, Event.LINK_REMOTE_CLOSE,
                      Event.LINK_REMOTE_DETACH):
            served = self.links.get(event.link)
            if served is not None:
                served.happened(event)

    def _opened(self) -> bool:
        return bool(self._connection.state & Connection.REMOTE_ACTIVE)

    def _end(self, reason: str) -> None:
        with self._lock:
            if self._lost is None:
                self._lost = (ConnectionClosed(name=self.url.shown) if self._closing
                              else RemoteLost(url=self.url.shown, reason=reason))
            waits, self._waits = self._waits, []
        for wait in waits:
            wait.error = self._lost
            wait.ended.set()
