"""A control connection to the running queue manager for what is sent again and again, without
waiting for an answer: how far a standby has synced (synced_to_manager), until
when the lease is (lease_to_manager).

One that ends (another manager, or none) is made anew, at most once in RETRY_S.

Errors: OSError, Lost, ValueError of `say` and `heard`: the caller closes it.
"""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Any, Final

from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.format.wire import VERSION
from omq.ipc.client.control_line import ControlLine, Lost

RETRY_S: Final = 1.0
TIMEOUT_S: Final = 5.0
_NAME_MAX: Final = 16  # characters of a client's name
_LINE_MAX: Final = 1 << 16


class ManagerLine:
    """See the module. `descriptor`: readable when there is news, None: there is no connection."""

    def __init__(self, paths: SpoolPaths, timeout_s: float = TIMEOUT_S) -> None:
        self._paths, self._timeout_s = paths, timeout_s
        self._socket: socket.socket | None = None
        self._received = b""
        self._due = 0.0

    @property
    def descriptor(self) -> int | None:
        """To wait for."""
        return None if self._socket is None else self._socket.fileno()

    def connect(self, name: str) -> bool:
        """Is it a new connection?"""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + RETRY_S
        try:
            line = ControlLine(self._paths.socket, self._timeout_s)
        except OSError:
            return False
        try:
            line.ask({"op": "register", "version": VERSION, "name": name[:_NAME_MAX],
                      "token": "", "in_doubt": 0})
            self._socket = socket.socket(fileno=line.detach())
        except (OSError, Lost, OmqError, ValueError):
            line.close()
            return False
        self._socket.setblocking(False)  # noqa: FBT003  (by position alone)
        self._received = b""
        return True

    def say(self, question: dict[str, object]) -> None:
        """One line."""
        assert self._socket is not None
        data = (json.dumps(question) + "\n").encode()
        if self._socket.send(data) != len(data):  # it does not read: the next connection gets it
            raise Lost("the manager takes nothing")

    def heard(self) -> list[dict[str, Any]]:
        """What it has said meanwhile."""
        assert self._socket is not None
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while poll.poll(0):
            data = self._socket.recv(_LINE_MAX)
            if not data:
                raise Lost("the manager has ended")
            self._received += data
            if len(self._received) > _LINE_MAX:
                raise Lost("not our manager")
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """The manager knows by that that nobody speaks to it any more."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
