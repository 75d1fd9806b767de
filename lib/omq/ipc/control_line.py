"""The client's end of the control connection: one JSON line there, one back; and whether the other
end still lives.

Errors: Lost when the manager has closed it, OSError of the socket, the error of a refusal.
"""

from __future__ import annotations

import json
import select
import socket
from pathlib import Path
from typing import Any

from omq.base.errors import from_status
from omq.base.socket_name import socket_name


class Lost(Exception):
    """The manager went away; handled inside the link."""


class ControlLine:
    """Connected from the start. OSError."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._received = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(timeout_s)
        try:
            with socket_name(path) as name:
                self._socket.connect(name)
        except BaseException:
            self._socket.close()
            raise

    @property
    def descriptor(self) -> int:
        """Of the socket."""
        return self._socket.fileno()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question."""
        self._socket.sendall((json.dumps(question) + "\n").encode())
        while b"\n" not in self._received:
            data = self._socket.recv(65536)
            if not data:
                raise Lost("the manager closed the connection")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("status"):
            raise from_status(int(answer["status"]), answer.get("fields", {}))
        return answer

    def check_alive(self) -> None:
        """Lost when the manager's end is closed."""
        poll = select.poll()  # a socket with a time-out would wait for it, whatever the flags
        poll.register(self._socket, select.POLLIN)
        if poll.poll(0) and not self._socket.recv(1, socket.MSG_PEEK):
            raise Lost("the queue manager has ended")

    def say_bye(self, timeout_s: float) -> None:
        """The last question."""
        self._socket.settimeout(timeout_s)
        self.ask({"op": "bye"})

    def close(self) -> None:
        self._socket.close()
