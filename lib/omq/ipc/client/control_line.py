"""The client's end of the control connection: one JSON line there, one back; and whether the other
end still lives. Between answers bells may come, which say that a request is answered (`rang`).

A manager that stops in order says unasked, as the last line, what the client's last request came
to (`last_words`): the reply may lie in memory that goes with the manager before a slow client
looks.

Errors: Lost when the manager has closed it, OSError of the socket, the error of a refusal.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sysv_ipc

from omq.base.errors import from_status
from omq.base.socket_name import socket_name
from omq.format.wire import ENDED, bell_line, request_line

LATE_S = 1.0
SEND_ONLY = 0o200  # only the manager receives from the queue
_BELL = bell_line(0)[:-3]
_CREDENTIALS_BYTES = 12  # struct ucred: pid, uid, gid


def peer(connection: socket.socket) -> int:
    """The pid at the other end of a UNIX socket."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
    return memoryview(data).cast("i")[0]


class Lost(Exception):
    """The manager went away; handled inside the link."""


class ControlLine:
    """Connected from the start. OSError."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._received = b""
        self._came = -1
        self._ended: dict[str, Any] | None = None
        self._rung = 0  # the request that was told last
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

    @property
    def manager(self) -> int:
        """The pid of the process that listens, as the kernel says; 0: it cannot be seen from here
        (another pid namespace)."""
        return peer(self._socket)

    def ask(self, question: dict[str, Any], late: Callable[[], None] | None = None,
            descriptor: int = -1, patience_s: float = 0.0, within_s: float = math.inf
            ) -> dict[str, Any]:
        """The answer to one question, which may go with a descriptor; one that comes with the
        answer is in `take_descriptor`. `late` is called when it takes a second; `patience_s`: how
        much longer than others it may take; `within_s`: but no longer than this."""
        self._socket.settimeout(min(self._timeout_s + patience_s, within_s))
        # Who is turned away at the door finds the reason there, but cannot say anything any more.
        with contextlib.suppress(BrokenPipeError):
            line = (json.dumps(question) + "\n").encode()
            if descriptor >= 0:
                line = line[socket.send_fds(self._socket, [line], [descriptor]) :]
            self._socket.sendall(line)
        while not self._whole():
            if late is not None:
                self._wait(late)
            data, came, _, _ = socket.recv_fds(self._socket, 65536, 1, socket.MSG_CMSG_CLOEXEC)
            self._keep(came)
            if not data:
                raise Lost("the manager closed the connection")
            self._received += data
        said, _, self._received = self._received.partition(b"\n")
        answer: dict[str, Any] = json.loads(said)
        if answer.get("status"):
            raise from_status(int(answer["status"]), answer.get("fields", {}))
        if ENDED in answer:
            self._ended = answer[ENDED]
            raise Lost("the queue manager stops")
        return answer

    def _whole(self) -> bool:
        """Whether a line is there that is not a bell; bells are heard."""
        while (end := self._received.find(b"\n")) >= 0:
            line = self._received[: end + 1]
            if not line.startswith(_BELL):
                return True
            self._rung, self._received = int(line[len(_BELL) : -2]), self._received[end + 1 :]
        return False

    def rang(self, sequence: int) -> bool:
        """Whether the manager has said that this request is answered. Reads what is there until it
        has, and never waits. Lost, OSError."""
        if self._rung == sequence:
            return True
        if self._socket.gettimeout() != 0:  # to set it is a system call
            self._socket.settimeout(0)
        try:
            while self._rung != sequence:
                if not (data := self._socket.recv(65536)):
                    raise Lost("the manager closed the connection")
                self._received += data
                self._whole()
        except BlockingIOError:
            return False
        return True

    def _keep(self, came: list[int]) -> None:
        for each in came:
            self._let_go()
            self._came = each

    def _let_go(self) -> None:
        if self._came >= 0:
            os.close(self._came)
            self._came = -1

    def take_descriptor(self) -> int:
        """What came with the last answer; the caller closes it. -1: nothing."""
        came, self._came = self._came, -1
        return came

    def _wait(self, late: Callable[[], None]) -> None:
        """Until there is something to receive. TimeoutError."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        deadline = time.monotonic() + self._timeout_s
        while not poll.poll(math.ceil(1000 * max(0.0, min(LATE_S, deadline - time.monotonic())))):
            late()
            if time.monotonic() >= deadline:
                raise TimeoutError("it does not answer")

    def send(self, head: bytes, *, block: bool, type: int) -> None:
        """A request of a client that may not write to the request queue, in the place of its
        `send`. Never waits for long: a client has one request under way."""
        self._socket.sendall(request_line(head))

    def check_alive(self) -> None:
        """Lost when the manager's end is closed, whatever it said before."""
        poll = select.poll()  # a socket with a time-out would wait for it, whatever the flags
        poll.register(self._socket, select.POLLRDHUP)
        if poll.poll(0):
            raise Lost("the queue manager has ended")

    def last_words(self) -> dict[str, Any] | None:
        """What the last request came to that the manager carried out (sequence, count, qpool,
        lsn), if it stopped in order; None: it did not, or not yet."""
        self._socket.settimeout(0)
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := self._socket.recv(65536):
                self._received += data
        self._whole()
        for line in self._received.split(b"\n")[:-1]:
            self._ended = json.loads(line).get(ENDED, self._ended)
        return self._ended

    def say_bye(self, timeout_s: float) -> None:
        """The last question."""
        self._timeout_s = timeout_s
        self.ask({"op": "bye"})

    def detach(self) -> int:
        """The descriptor of the socket, for who speaks another way from here on."""
        self._let_go()
        return self._socket.detach()

    def close(self) -> None:
        self._let_go()
        self._socket.close()


def way_of_requests(queue: list[int] | None, line: ControlLine
                    ) -> sysv_ipc.MessageQueue | ControlLine:
    """The request queue (key, id), for the spool's owner and root; all others ask over the line."""
    if queue is None:
        return line
    found = sysv_ipc.MessageQueue(queue[0], 0, SEND_ONLY)
    if found.id != queue[1]:
        raise Lost("the request queue named is not that of the manager")
    return found
