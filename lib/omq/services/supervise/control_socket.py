"""The control socket of the embedded supervisor: JSON lines, `run/supervisor.sock`.

Request: one object a line, {"command": "status" | "stop" | "on" | "off" | "reload", "service":
NAME, "follow": true}. Reply: {"ok": true, ...} or {"ok": false, "status": N, "fields": {...}}.
A client that follows then gets one object per change of a service until it hangs up or the
supervisor ends (end of file).

Invariants: 1. the kernel names the caller (SO_PEERCRED): only root and the supervisor's own user
are served; 2. the supervisor never waits for a client: one that does not read is dropped; 3. lines
and clients are bounded.

Errors of the client side: ManagerUnavailable when nobody listens, TimedOut.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omq.base import modes, side_files
from omq.base.socket_name import socket_name

LINE_BYTES_MAX = 65536
CLIENTS_MAX = 32  # operators and scripts; each costs one descriptor
SOCKET_FILE = "supervisor.sock"
_CREDENTIALS_BYTES = 12  # struct ucred: pid, uid, gid

Request = dict[str, Any]
Reply = dict[str, Any]


class ControlClient:
    """One connected caller, seen from the supervisor."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.buffer = b""
        self.follows = False


class ControlServer:
    """Listens in the supervisor's selector; `answer` turns a request into a reply."""

    def __init__(
        self,
        path: Path,
        selector: selectors.BaseSelector,
        answer: Callable[[Request], Reply],
    ) -> None:
        self._path = path
        self._selector = selector
        self._answer = answer
        self._clients: set[ControlClient] = set()
        self._listener = _listen(path)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def publish(self, event: Reply) -> None:
        """Send one event to everybody who follows."""
        for client in [each for each in self._clients if each.follows]:
            self._send(client, event)

    def close(self) -> None:
        """Hang up on all and remove the socket."""
        for client in list(self._clients):
            self._drop(client)
        self._selector.unregister(self._listener)
        self._listener.close()
        side_files.remove(self._path)

    def _accept(self) -> None:
        try:
            connection, _address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        if len(self._clients) >= CLIENTS_MAX or not _may_control(connection):
            connection.close()
            return
        connection.settimeout(0)
        client = ControlClient(connection)
        self._clients.add(client)
        self._selector.register(
            connection, selectors.EVENT_READ, lambda: self._read(client)
        )

    def _read(self, client: ControlClient) -> None:
        try:
            data = client.connection.recv(LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        client.buffer += data
        if not data or (b"\n" not in data and len(client.buffer) > LINE_BYTES_MAX):
            self._drop(client)
            return
        *lines, client.buffer = client.buffer.split(b"\n")
        for line in lines:
            if client not in self._clients:
                return  # dropped while it was answered
            request = _decode(line)
            self._send(client, self._answer(request))
            # Only now: the reply comes before the events.
            client.follows = client.follows or request.get("follow") is True

    def _send(self, client: ControlClient, reply: Reply) -> None:
        data = json.dumps(reply).encode("ascii") + b"\n"
        try:
            sent = client.connection.send(data)
        except (BlockingIOError, ConnectionError):
            sent = 0
        if sent != len(data):
            self._drop(client)

    def _drop(self, client: ControlClient) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._selector.unregister(client.connection)
            client.connection.close()


def _decode(line: bytes) -> Request:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) else {}


def _may_control(connection: socket.socket) -> bool:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
    uid = memoryview(data).cast("I")[1]
    return uid in (0, os.geteuid())


def _listen(path: Path) -> socket.socket:
    """Bind; a file left by a dead supervisor is removed (the caller holds the lock)."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with socket_name(path) as name:
            listener.bind(name)
        path.chmod(modes.FILE)
        listener.listen(CLIENTS_MAX)
    except OSError:
        listener.close()
        raise
    return listener
