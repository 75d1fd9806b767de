"""Asking the embedded supervisor: the other end of omq.services.supervise.control_socket, for the
tools.

Errors: ManagerUnavailable when no supervisor listens in this spool; TimedOut when it does not
answer in time; the class that the supervisor names when it refuses.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from omq.base import access
from omq.base.errors import ManagerUnavailable, TimedOut, from_status
from omq.base.socket_name import socket_name
from omq.services.supervise.control_socket import LINE_BYTES_MAX, SOCKET_FILE, Reply, Request


class ControlConnection:
    """One conversation; not shared between threads."""

    def __init__(self, run: Path, timeout_s: float) -> None:
        self._run = run
        self._timeout_s = timeout_s
        self._buffer = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            with socket_name(run / SOCKET_FILE) as name:
                self._socket.connect(name)
        except PermissionError as error:
            self._socket.close()
            raise access.denied(run / SOCKET_FILE, error) from error
        except OSError as error:
            self._socket.close()
            reason = f"no supervisor listens in {run} ({error.strerror or error})"
            raise ManagerUnavailable(spool=run.parent, reason=reason) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, request: Request) -> Reply:
        """Send one request, return its reply; a refusal is raised."""
        self._socket.sendall(json.dumps(request).encode("ascii") + b"\n")
        reply = self.next_line(self._timeout_s)
        if reply is None:
            raise ManagerUnavailable(spool=self._run.parent, reason="it hung up")
        if reply.get("ok") is not True:
            raise from_status(int(reply.get("status", 0)), dict(reply.get("fields", {})))
        return reply

    def events(self, timeout_s: float) -> Iterator[Reply]:
        """What happens from now on, until the supervisor ends. TimedOut between two events."""
        while (event := self.next_line(timeout_s)) is not None:
            yield event

    def next_line(self, timeout_s: float) -> Reply | None:
        """One object; None at the end of file."""
        self._socket.settimeout(max(timeout_s, 0.001))  # 0 would mean "do not block"
        while b"\n" not in self._buffer:
            try:
                data = self._socket.recv(LINE_BYTES_MAX)
            except TimeoutError as error:
                raise TimedOut(seconds=timeout_s, what="the supervisor") from error
            except ConnectionError:
                return None
            if not data:
                return None
            self._buffer += data
        line, _newline, self._buffer = self._buffer.partition(b"\n")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ManagerUnavailable(spool=self._run.parent, reason="it speaks another language")
        return found
