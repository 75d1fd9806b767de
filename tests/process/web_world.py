"""omq-web beside a queue manager of its own, and a browser without a screen.

Three accounts that every Debian has: `daemon` may operate (on A and POISON), `bin` may look (and
browse A), `games` is admin. Their passwords are hashed cheaply: nobody guesses at them here.
"""

from __future__ import annotations

import functools
import http.client
import json
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from omqtools.omqtest.child import Child
from tests.process.chromium import Page
from tests.process.operator_world import Instance
from tests.process.processes import popen
from tests.waiting import pause

PASSWORD = "a long password"
AUTHORITY = """
[console]
user:daemon = operate
user:bin = look
user:games = admin

[A]
user:daemon = admin browse put get
user:bin = browse

[B]
user:daemon = put

[POISON]
user:daemon = admin browse

[IDEL]
user:daemon = admin browse
"""
WAIT_S = 120.0


@functools.cache
def hashed() -> str:
    """The password, at no cost."""
    argon2 = pytest.importorskip("argon2", reason="the package argon2-cffi, of the extra web")
    return str(argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD))


@dataclass
class Answer:
    """What a browser got."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def csrf(self) -> str:
        """What the first form of the page carries."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.text)
        assert found, self.text[:2000]
        return found[1]

    def found(self, pattern: str) -> str:
        """The first group of a pattern that must be there."""
        found = re.search(pattern, self.text)
        assert found, (pattern, self.text[:4000])
        return found[1]


@dataclass
class Browser:
    """It keeps the cookie, and says what browsers say."""

    host: str
    port: int
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: bytes | None = None,
            headers: Mapping[str, str] | None = None) -> Answer:
        line = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_S)
        try:
            sent = {"Cookie": self.cookie} if self.cookie else {}
            line.request(method, path, body, {**sent, **self.headers, **(headers or {})})
            answer = line.getresponse()
            for key, value in answer.getheaders():
                if key.lower() == "set-cookie":
                    self.cookie = value.partition(";")[0]
            return Answer(answer.status, {key.lower(): value for key, value in
                                          answer.getheaders()}, answer.read().decode())
        finally:
            line.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def until(self, path: str, words: str) -> Answer:
        """The page, when it says this: figures are a moment old."""
        ends = time.monotonic() + WAIT_S
        while words not in (answer := self.get(path)).text:
            assert time.monotonic() < ends, answer.text
            pause()
        return answer

    def post(self, path: str, fields: Mapping[str, Any], **headers: str) -> Answer:
        body = urlencode(fields, doseq=True).encode()
        return self.ask("POST", path, body, {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://{self.host}:{self.port}", **headers})

    def login(self, user: str, password: str = PASSWORD, **fields: str) -> Answer:
        return self.post("/login", {"user": user, "password": password, **fields})


@contextmanager
def follows(browser: Browser, path: str) -> Iterator[http.client.HTTPResponse]:
    """The answer to a page that follows, as long as it is followed: both it and the connection have
    the socket, so both are closed, whatever happens meanwhile."""
    line = http.client.HTTPConnection(browser.host, browser.port, timeout=WAIT_S)
    with closing(line):
        line.request("GET", path, headers={"Cookie": browser.cookie})
        with line.getresponse() as answer:
            yield answer


@dataclass
class Web:
    """The console of an instance."""

    instance: Instance
    child: Child
    host: str
    port: int

    def browser(self, user: str = "") -> Browser:
        """Logged in as one of the three, or nobody."""
        made = Browser(self.host, self.port)
        if user:
            assert made.login(user).status == 303
        return made


def configure(made: Instance, **settings: object) -> None:
    """Users, roles and a free port."""
    users = made.conf / "web.users"
    users.write_text("".join(f"{name}:{hashed()}\n" for name in ("daemon", "bin", "games", "root")))
    users.chmod(0o600)
    (made.conf / "authority.conf").write_text(AUTHORITY)
    keys = {"web_listen_port": 0, "web_users": users, "web_period_ms": 100, **settings}
    lines = "".join(f"{key} = {value}\n" for key, value in keys.items())
    conf = made.conf / "omq.conf"
    conf.write_text(f"{conf.read_text()}[web]\n{lines}")


@contextmanager
def console(made: Instance) -> Iterator[Web]:
    """It runs meanwhile; it must end with 0."""
    pytest.importorskip("aiohttp", reason="the package aiohttp, of the extra web")
    file = made.paths.run / "web.port"
    file.unlink(missing_ok=True)
    child = popen("omq-web", made.arguments)
    try:
        while not file.exists():
            assert child.poll() is None, "omq-web ended"
            pause()
        host, port = file.read_text().split()
        yield Web(made, child, host, int(port))
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(WAIT_S) == 0
    assert not file.exists()


@contextmanager
def world(folder: Path, **settings: object) -> Iterator[Web]:
    """An instance with its console."""
    made = Instance(folder / "spool")
    configure(made, **settings)
    made.start()
    try:
        with console(made) as found:
            yield found
    finally:
        made.end()


def login(web: Web, page: Page, user: str) -> str:
    """Somebody in a real browser, who comes to queue A; the console's address."""
    base = f"http://{web.host}:{web.port}"
    page.go(f"{base}/queues/A")
    page.fill("input[name=user]", user)
    page.fill("input[name=password]", PASSWORD)
    page.click("Log in")
    assert page.script("location.pathname") == "/queues/A"
    return base
