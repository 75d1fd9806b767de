"""A server of policies on loopback: HTTPS, one thread; it says what a test wants."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from typing import Final, Self

WAIT_S: Final = 120
HEAD: Final = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"


def policy(mode: str, *mx: str, age_s: int = 604_800) -> bytes:
    """An answer with this policy."""
    lines = ["version: STSv1", f"mode: {mode}", *(f"mx: {each}" for each in mx),
             f"max_age: {age_s}"]
    return (HEAD + "\r\n".join(lines) + "\r\n").encode()


class StsServer:
    """A context manager. `answer`: the bytes of an answer; None: silence until the client goes;
    `slow`: they come byte by byte, for as long as the client stays."""

    def __init__(self, context: ssl.SSLContext, answer: bytes | None, *, slow: bool = False
                 ) -> None:
        self.answer, self._slow, self._context = answer, slow, context
        self.asked: list[bytes] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            line.settimeout(WAIT_S)
            with suppress(OSError), line, self._context.wrap_socket(
                    line, server_side=True) as secured:
                self._say(secured)

    def _say(self, line: ssl.SSLSocket) -> None:
        asked = b""
        while not asked.endswith(b"\r\n\r\n"):
            more = line.recv(65536)
            if not more:
                return
            asked += more
        self.asked.append(asked)
        if self.answer is None:
            line.recv(1)
        elif self._slow:
            waiting = threading.Event()
            line.sendall(self.answer)
            while not waiting.wait(0.02):
                line.sendall(b"#")  # ends with the client's side of the line
        else:
            line.sendall(self.answer)
            with suppress(OSError):
                line.unwrap()
