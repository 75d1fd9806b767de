"""A front before a real S3 server, which refuses or keeps what a test tells it to."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

Rule = Callable[[str, str], int]
"""(method, path with its query) -> the status that it is refused with; 0: it is handed on."""
REFUSAL = (b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code>'
           b"<Message>the keys were revoked</Message></Error>")
PASSED_ON = ("content-type", "etag", "last-modified", "content-range", "location")
OWN = ("transfer-encoding", "content-length", "expect", "connection")
"""Of each of the two connections."""
END_S = 60.0


class Front(ThreadingHTTPServer):
    """See the module. `asked`: each request."""

    daemon_threads = True

    def __init__(self, real: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.real = urlsplit(real).netloc
        self.asked: list[tuple[str, str]] = []
        self.rule: Rule = lambda _method, _path: 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def refuse_from(self, number: int, status: int) -> None:
        """From the request of this number on, counted from now and from 1."""
        before = len(self.asked)
        self.rule = lambda _method, _path: status if len(self.asked) - before >= number else 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def _answer(self) -> None:
        body = self._body()
        self.server.asked.append((self.command, self.path))
        status = self.server.rule(self.command, self.path)
        if status:
            self._send(status, {"content-type": "application/xml"}, REFUSAL)
            return
        real = http.client.HTTPConnection(self.server.real, timeout=END_S)
        try:
            real.request(self.command, self.path, body, {
                key: value for key, value in self.headers.items() if key.lower() not in OWN})
            answer = real.getresponse()
            data = answer.read()
        finally:
            real.close()
        headers = {key: value for key, value in answer.getheaders() if key.lower() in PASSED_ON
                   or key.lower().startswith("x-amz-")}
        if self.command == "HEAD":
            headers["content-length"] = answer.getheader("content-length") or "0"
        self._send(answer.status, headers, data)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue  # what a sender says behind it
        return found

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if "content-length" not in headers:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def front(real: str) -> Iterator[Front]:
    """While it runs; `real`: the URL of the server."""
    with Front(real) as made:
        serving = Thread(target=made.serve_forever)
        serving.start()
        try:
            yield made
        finally:
            made.shutdown()
            serving.join()
