"""A peer of which one stage goes wrong, in one of the ways of REPLIES; a thread a connection.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from typing import Any, Self

from tests.process.smtp_peers import hang_up

STAGES = ("greeting", "EHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA", ".", "QUIT")
REPLIES = {"4yz": b"450 4.2.1 not now\r\n", "421": b"421 4.3.2 bye\r\n",
           "5yz": b"550 5.7.1 never\r\n", "garbage": b"\x16\xff\x00 nonsense\r\n",
           "endless": b"250-and\r\n" * 20_000, "cut": b"", "silence": b"", "slow": b"2"}
"""Name -> what is sent in place of the right reply."""
WAIT_S = 120


class StagePeer:
    """A context manager. No `stage`: all is well."""

    def __init__(self, stage: str = "", reply: str = "", *, context: ssl.SSLContext | None = None,
                 pipelining: bool = False, auth: bool = False, lmtp: bool = False,
                 path: str = "") -> None:
        self.received: list[tuple[str, list[str], bytes]] = []
        self.commands: list[str] = []
        self.secured = 0
        self.silent_to_the_end = False  # nobody came to end its silence
        self._stage, self.reply = stage, reply
        self._context, self._lmtp, self._auth = context, lmtp, auth
        self._pipelining = pipelining
        self._ended = threading.Event()
        if path:
            self._server = socket.socket(socket.AF_UNIX)
            self._server.bind(path)
            self._server.listen()
            self.port = 0
        else:
            self._server = socket.create_server(("127.0.0.1", 0))
            self.port = self._server.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        hang_up((self._server, *self._lines), self._threads)
        for each in self._lines:  # also one that was encrypted meanwhile
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._server.accept()
                self._lines.append(line)
                thread = threading.Thread(target=self._session, args=(line,))
                self._threads.append(thread)
                thread.start()

    def _session(self, line: socket.socket) -> None:
        with suppress(OSError, ValueError):  # ValueError: of TLS that __exit__ has closed
            self._talk(line)
        line.close()

    def _wrong(self, line: socket.socket) -> bool:
        """Do what goes wrong here; whether the session goes on as if it had been the reply."""
        line.sendall(REPLIES[self.reply])
        if self.reply in ("4yz", "5yz", "garbage"):
            return True
        while self.reply == "slow" and not self._ended.wait(0.02):
            line.sendall(b"5")
        if self.reply == "silence":
            self.silent_to_the_end = not self._ended.wait(WAIT_S)
        line.shutdown(socket.SHUT_RDWR)
        return False

    def _right(self, line: socket.socket, stage: str, reply: str) -> bool:
        """Send the reply to a stage, unless it goes wrong; False: the session is over."""
        if stage == self._stage:
            return self._wrong(line)
        line.sendall(reply.encode())
        return True

    def _talk(self, line: socket.socket) -> None:
        if not self._right(line, "greeting", "220 peer ready\r\n"):
            return
        rest, recipients, sender = b"", list[str](), ""
        while True:
            while b"\r\n" not in rest:
                more = line.recv(65536)
                if not more:
                    return
                rest += more
            raw, _, rest = rest.partition(b"\r\n")
            command = raw.decode()
            self.commands.append(command)
            verb = command.split(" ")[0].upper()
            stage = "EHLO" if verb == "LHLO" else verb
            if stage == "MAIL":
                sender = command.partition("<")[2].partition(">")[0]
            if not self._right(line, stage, self._reply_to(verb)):
                return
            if stage == self._stage:
                continue
            if stage == "RCPT":
                recipients.append(command.partition("<")[2].partition(">")[0])
            if stage == "STARTTLS":
                assert self._context is not None
                line, rest = self._context.wrap_socket(line, server_side=True), b""
                self._lines.append(line)
                self.secured += 1
            if stage == "DATA":
                while not (rest.endswith(b"\r\n.\r\n") or rest == b".\r\n"):
                    rest += line.recv(65536)
                text, rest = rest.removesuffix(b".\r\n"), b""
                if self._stage != ".":  # noted before the answer, behind which a test looks
                    self.received.append((sender, recipients, text))
                for each in recipients if self._lmtp else recipients[:1]:
                    if not self._right(line, ".", f"250 2.0.0 taken for {each}\r\n"):
                        return
                recipients = []
            if stage == "QUIT":
                return

    def _reply_to(self, verb: str) -> str:
        if verb == "DATA":
            return "354 go on\r\n"
        if verb == "STARTTLS":
            return "220 go on\r\n"
        if verb == "AUTH":
            return "235 2.7.0 welcome\r\n"
        if verb not in ("EHLO", "LHLO"):
            return "250 2.0.0 ok\r\n"
        offered = ["peer.test", "SIZE 1000000", "8BITMIME"]
        if self._pipelining:
            offered.append("PIPELINING")
        if self._context is not None:
            offered.append("STARTTLS")
        if self._auth:
            offered.append("AUTH PLAIN")
        *first, last = offered
        return "".join(f"250-{each}\r\n" for each in first) + f"250 {last}\r\n"


class Saying(StagePeer):
    """Says what `said` has for a stage, one after the other, then what is right."""

    def __init__(self, said: dict[str, list[str]], **more: Any) -> None:
        self.said = said
        super().__init__(**more)

    def _right(self, line: socket.socket, stage: str, reply: str) -> bool:
        waiting = self.said.get(stage)
        return super()._right(line, stage, waiting.pop(0) if waiting else reply)
