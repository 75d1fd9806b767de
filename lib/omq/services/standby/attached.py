"""A sender beside a standby says to the running queue manager how far that one has synced, where
replies wait for it (ipc.server.held_replies), and is told how far the disk here is.

It is a client of the manager, by a control connection of its own. One that ends (another manager,
or none) is made anew, at most once a second: until then nobody is told anything, and replies wait.

Errors: none: a manager that is not there, or wants no standbys, is asked again later.
"""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Final

from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.format.wire import VERSION
from omq.ipc.client.control_line import ControlLine, Lost

RETRY_S: Final = 1.0
TIMEOUT_S: Final = 5.0
_NAME_MAX: Final = 16  # characters of a client's name
_LINE_MAX: Final = 1 << 16


class Attached:
    """See the module. `durable`: the last LSN that the manager has told; `descriptor`: readable
    when there is news, None: there is no connection."""

    def __init__(self, paths: SpoolPaths) -> None:
        self._paths = paths
        self._line: ControlLine | None = None
        self._socket: socket.socket | None = None
        self._received = b""
        self._due = 0.0
        self._said: tuple[int, int] | None = None  # synced, told: as it was said last
        self.durable = 0

    @property
    def descriptor(self) -> int | None:
        """To wait for."""
        return None if self._socket is None else self._socket.fileno()

    def turn(self, member: str, synced: int) -> None:
        """Hear what is there, say what is new."""
        if self._socket is None and not self._connect(member):
            return
        try:
            self._hear()
            if self._is_news(synced):
                self._said = synced, self.durable
                self._say({"op": "standby", "member": member, "synced": synced})
        except (OSError, Lost, ValueError):
            self.close()

    def _is_news(self, synced: int) -> bool:
        """What the standby has, or that it has all that was told, and the next may be told. What it
        has not acknowledged yet it will: one line for a group, not two."""
        if self._said is None or synced != self._said[0]:
            return True
        return self.durable != self._said[1] and synced >= self.durable

    def _connect(self, member: str) -> bool:
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + RETRY_S
        try:
            line = ControlLine(self._paths.socket, TIMEOUT_S)
        except OSError:
            return False
        try:
            line.ask({"op": "register", "version": VERSION, "name": f"to-{member}"[:_NAME_MAX],
                      "token": "", "in_doubt": 0})
            self._socket = socket.socket(fileno=line.detach())
        except (OSError, Lost, OmqError, ValueError):
            line.close()
            return False
        self._socket.setblocking(False)  # noqa: FBT003  (by position alone)
        self._received, self._said, self.durable = b"", None, 0
        return True

    def _say(self, question: dict[str, object]) -> None:
        assert self._socket is not None
        data = (json.dumps(question) + "\n").encode()
        if self._socket.send(data) != len(data):  # it does not read: the next connection is told
            raise Lost("the manager takes nothing")

    def _hear(self) -> None:
        assert self._socket is not None
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while poll.poll(0):
            data = self._socket.recv(_LINE_MAX)
            if not data:
                raise Lost("the manager has ended")
            self._received += data
            if len(self._received) > _LINE_MAX:
                raise Lost("no manager of ours")
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            said = json.loads(line)
            if said.get("status"):
                raise Lost("it waits for no standbys")
            self.durable = max(self.durable, int(said.get("durable", 0)))

    def close(self) -> None:
        """The manager knows by that that this standby does not answer."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
