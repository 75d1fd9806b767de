"""SMTP servers on loopback that are slow, silent, flaky or dead as a test says; one thread a
connection. A server waits at a stage ("greeting", "EHLO", "MAIL", "DATA", "." ...) while the stage
is shut, and the test knows by `at` how many wait there: no test sleeps."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

WAIT_S = 120.0


def hang_up(sockets: Iterable[socket.socket], threads: Iterable[threading.Thread]) -> None:
    """The end of a server of a test: whoever waits at a socket is told, and all threads end."""
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


class SmtpPeer:
    """A context manager. `replies`: the beginning of a command and its reply, "" ends the line."""

    def __init__(self, *shut: str, port: int = 0, replies: dict[str, str] | None = None,
                 host: str = "127.0.0.1") -> None:
        self.replies = dict(replies or {})
        self.received: list[tuple[str, bytes]] = []  # recipient, text
        self.at: Counter[str] = Counter()  # who waits where
        self.connections = self.open = self.most_open = 0
        self._shut = set(shut)
        self._change = threading.Condition()
        self._ended = False
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server((host, port), backlog=200)
        self.port = self._server.getsockname()[1]
        self._start(self._accept)

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def unshut(self, *stages: str) -> None:
        """Whoever waits there goes on."""
        with self._change:
            self._shut -= set(stages)
            self._change.notify_all()

    def until(self, count: int, stage: str = "", wait_s: float = WAIT_S) -> None:
        """Until so many wait at a stage; without one, until so many mails have been received."""
        with self._change:
            assert self._change.wait_for(
                lambda: (self.at[stage] if stage else len(self.received)) >= count, wait_s), (
                    self.at, len(self.received))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._change:
            self._ended = True
            self._change.notify_all()
        hang_up((self._server, *self._sockets), self._threads)

    def _start(self, target: object, *words: object) -> None:
        thread = threading.Thread(target=target, args=words)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            self._sockets.append(line)
            self._start(self._session, line)

    def _stage(self, stage: str) -> None:
        with self._change:
            self.at[stage] += 1
            self._change.notify_all()
            self._change.wait_for(lambda: stage not in self._shut or self._ended)
            self.at[stage] -= 1

    def _session(self, line: socket.socket) -> None:
        with self._change:
            self.connections += 1
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        try:
            with line.makefile("rb") as reading:
                self._talk(line, reading)
        except OSError:
            pass
        finally:
            with self._change:
                self.open -= 1
                self._change.notify_all()
            line.close()

    def _talk(self, line: socket.socket, reading: object) -> None:
        self._stage("greeting")
        line.sendall(b"220 peer ready\r\n")
        recipients: list[str] = []
        while raw := reading.readline():  # type: ignore[attr-defined]
            command = raw.decode().rstrip()
            self._stage(command.split(" ")[0].upper())
            reply = next((text for start, text in self.replies.items()
                          if command.startswith(start)), None)
            if reply == "":
                return
            if reply is None and command.startswith("RCPT"):
                recipients.append(command.partition("<")[2].partition(">")[0])
            if command == "DATA" and reply is None:
                line.sendall(b"354 go on\r\n")
                self._text(reading, recipients)
                recipients = []
                reply = "250 2.0.0 taken"
            line.sendall((reply or "250 ok").encode() + b"\r\n")

    def _text(self, reading: object, recipients: list[str]) -> None:
        text = b""
        while (raw := reading.readline()) not in (b".\r\n", b""):  # type: ignore[attr-defined]
            text += raw
        self._stage(".")
        with self._change:
            self.received += [(each, text) for each in recipients]
            self._change.notify_all()
