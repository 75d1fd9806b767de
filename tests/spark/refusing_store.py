"""A front before a real S3 server, which refuses or keeps what a test tells it to: `python -m
tests.spark.refusing_store URL`. A process of its own, as delta-rs lets no other thread of its own
work while it waits for an answer.

It prints its port, and takes orders as GET /-/NAME/...; each answers with how many requests there
have been, and listings since `keep`:
    /-/refuse/NUMBER/STATUS    from the request of this number on, counted from now and from 1
    /-/renames/STATUS          copies alone, which is how a file gets another name
    /-/keep                    the first answer to a listing until there is a second question
    /-/pass                    nothing is refused
    /-/count
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event
from urllib.parse import urlsplit

ORDER = "/-/"
REFUSAL = (b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code>'
           b"<Message>the keys were revoked</Message></Error>")
PASSED_ON = ("content-type", "etag", "last-modified", "content-range", "location")
OWN = ("transfer-encoding", "content-length", "expect", "connection")
"""Of each of the two connections."""
END_S = 60.0


class Server(ThreadingHTTPServer):
    """See the module."""

    daemon_threads = True

    def __init__(self, real: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.real = urlsplit(real).netloc
        self.count, self.first, self.status, self.lists = 0, 0, 0, 0
        self.keeps, self.second, self.renames = False, Event(), 0

    def order(self, words: list[str]) -> None:
        if words[0] == "renames":
            self.renames = int(words[1])
        elif words[0] in ("refuse", "pass"):
            self.renames = 0
            self.first, self.status = (self.count + int(words[1]), int(words[2])) if len(
                words) > 1 else (0, 0)
        elif words[0] == "keep":
            self.keeps, self.lists = True, 0
            self.second.clear()

    def refused(self, path: str, *, copies: bool) -> int:
        """The status that a request is refused with; 0: it is handed on."""
        self.count += 1
        if "list-type" in path and self.keeps:
            self.lists += 1
            if self.lists > 1:
                self.second.set()
            self.second.wait(END_S)
        if copies and self.renames:
            return self.renames
        return self.status if self.status and self.count >= self.first else 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def answer(self) -> None:
        body = self._body()
        if self.path.startswith(ORDER):
            self.server.order(self.path.removeprefix(ORDER).split("/"))
            self._send(200, {}, f"{self.server.count} {self.server.lists}".encode())
            return
        status = self.server.refused(self.path, copies="x-amz-copy-source" in self.headers)
        if status:
            self._send(status, {"content-type": "application/xml"}, REFUSAL)
            return
        real = http.client.HTTPConnection(self.server.real, timeout=END_S)
        try:
            real.request(self.command, self.path, body, {
                key: value for key, value in self.headers.items() if key.lower() not in OWN})
            got = real.getresponse()
            data = got.read()
        finally:
            real.close()
        headers = {key: value for key, value in got.getheaders() if key.lower() in PASSED_ON
                   or key.lower().startswith("x-amz-")}
        if self.command == "HEAD":
            headers["content-length"] = got.getheader("content-length") or "0"
        self._send(got.status, headers, data)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue  # what a sender says after it
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

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


class Front:
    """What a test has of it. `lists`: questions for a listing since `keep`."""

    def __init__(self, port: int) -> None:
        self.address, self.lists = f"127.0.0.1:{port}", 0

    def order(self, *words: object) -> int:
        url = f"http://{self.address}{ORDER}{'/'.join(map(str, words))}"
        with urllib.request.urlopen(url, timeout=END_S) as answer:
            count, self.lists = map(int, answer.read().split())
        return count


@contextmanager
def front(real: str) -> Iterator[Front]:
    """While it runs; `real`: the URL of the server."""
    with subprocess.Popen([sys.executable, "-m", __name__, real], stdout=subprocess.PIPE,
                          text=True) as child:
        assert child.stdout is not None
        try:
            yield Front(int(child.stdout.readline()))
        finally:
            child.kill()


if __name__ == "__main__":
    with Server(sys.argv[1]) as serving:
        print(serving.server_address[1], flush=True)
        serving.serve_forever()
