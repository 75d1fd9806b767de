"""A control connection to the running queue manager for what is sent again and again, without
waiting for an answer: how far a standby has synced (synced_to_manager), until
when the lease is (lease_to_manager).

One that ends (another manager, or none) is made anew, at most once in RETRY_S.

The spool's owner and root may also lay a request on the manager's queue (`request`), which takes
less than half of what a line costs: the main loop reads it by itself.

Errors: OSError, Lost, ValueError of `say`, `heard` and `request`: the caller closes it.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Final

import sysv_ipc

from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.format.wire import REQUEST, REQUEST_MAGIC, REQUEST_TYPE, VERSION, Operation
from omq.ipc.client.control_line import ControlLine, Lost, way_of_requests

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
        self._queue: sysv_ipc.MessageQueue | None = None
        self._client, self._token, self._sequence = 0, b"", 0

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
            facts = line.ask({"op": "register", "version": VERSION, "name": name[:_NAME_MAX],
                              "token": "", "in_doubt": 0})
            self._take_up(facts, line)
            self._socket = socket.socket(fileno=line.detach())
        except (OSError, Lost, OmqError, ValueError, sysv_ipc.Error):
            line.close()
            return False
        self._socket.setblocking(False)  # noqa: FBT003  (by position alone)
        self._received = b""
        return True

    def _take_up(self, facts: dict[str, Any], line: ControlLine) -> None:
        self._queue = None
        if facts.get("requests") is None or not facts.get("takes_synced"):
            return  # of an earlier omq, which is replaced, or of another user
        queue = way_of_requests(facts["requests"], line)
        if isinstance(queue, sysv_ipc.MessageQueue):
            self._queue = queue
        self._client, self._token = int(facts["client"]), bytes.fromhex(str(facts["token"]))
        self._sequence = 0

    def request(self, operation: Operation, size: int) -> bool:
        """A request that has no answer. False: there is no queue, or it is full."""
        if self._queue is None:
            return False
        self._sequence += 1
        raw = REQUEST.pack(operation, 0, 0, 0, 0, self._client, 0, self._token, self._sequence,
                           size, 0, REQUEST_MAGIC, VERSION, 0, 0, 0, 0, 0, 0, 0)
        try:
            self._queue.send(raw, block=False, type=REQUEST_TYPE)
        except sysv_ipc.BusyError:
            return False
        except (sysv_ipc.Error, MemoryError) as error:
            raise Lost("the request queue is gone") from error
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
        while True:
            try:
                data = self._socket.recv(_LINE_MAX)
            except BlockingIOError:
                break
            if not data:
                raise Lost("the manager has ended")
            self._received += data
            if len(self._received) > _LINE_MAX:
                raise Lost("not our manager")
            if len(data) < _LINE_MAX:
                break  # that was all
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """The manager knows by that that nobody speaks to it any more."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
