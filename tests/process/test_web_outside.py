"""The console as others see it: below a path of a reverse proxy, with a token for monitoring, with
clients of AMQP that are shown and closed, and with as many queues as there can be."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from omq.base.limits import NAMED_QUEUES_MAX
from omq.cli.web import tokens
from omq.cli.web.app import ROUTES
from tests.process import axe
from tests.process.chromium import Page, needs_chromium
from tests.process.operator_world import Instance
from tests.process.processes import popen
from tests.process.web_world import PASSWORD, WAIT_S, Web, configure, console
from tests.waiting import pause, until

amqp = pytest.importorskip("amqp", reason="the package amqp (py-amqp), a client of AMQP 0-9-1")
pytest.importorskip("pamqp", reason="the package pamqp, of the extra amqp")

ROOT = "/omq"
MANY = 450
ADMIN, WATCHER, SPENT = ("admin", "watcher", "spent")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """With amqp.server beside it, which lets anybody of this host in."""
    made = Instance(tmp_path_factory.mktemp("outside") / "spool")
    file = made.conf / "web.tokens"
    configure(made, web_path=ROOT, web_tokens=file, web_ring_period_s=1)
    conf = made.conf / "omq.conf"
    conf.write_text(f"{conf.read_text()}[amqp]\namqp_listen_port = 0\n"
                    "amqp_anonymous_user = nobody\n")
    with (made.conf / "authority.conf").open("a") as rights:
        rights.write("[TEMPORARY]\nuser:nobody = get\n[C]\nuser:nobody = put get\n")
    with (made.conf / "queues.conf").open("a") as queues:
        queues.write("\n[C]\n")
    lines = [tokens.make(*each) for each in (
        (ADMIN, "games", ("look", "define", "operate")), (WATCHER, "bin", ("look",)),
        (SPENT, "bin", ("look",), "2001-01-01"))]
    file.write_text("".join(f"{line}\n" for _, line in lines))
    file.chmod(0o600)
    made.start()
    server = popen("amqp.server", made.arguments)
    try:
        while not (made.paths.run / "amqp.port").exists():
            assert server.poll() is None, "amqp.server ended"
            pause()
        with console(made) as found:
            found.instance.tokens = {  # type: ignore[attr-defined]
                name: token for name, (token, _) in zip((ADMIN, WATCHER, SPENT), lines,
                                                        strict=True)}
            yield found
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(WAIT_S) == 0
        made.end()


def ask(web: Web, token: str, method: str, path: str, body: Any = None) -> Any:
    """(status, headers, text) of a request with the token of this name."""
    known = web.instance.tokens  # type: ignore[attr-defined]
    return web.browser().ask(
        method, f"/api/v1/{path}", None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {known.get(token, token)}", "Content-Type": "application/json"})


class Anonymous(amqp.sasl.SASL):  # type: ignore[misc,name-defined]
    """Whoever is of this host."""

    mechanism = b"ANONYMOUS"

    def start(self, connection: Any) -> bytes:
        return b""


@contextmanager
def client(web: Web) -> Iterator[Any]:
    port = int((web.instance.paths.run / "amqp.port").read_text().split()[1])
    made = amqp.Connection(f"127.0.0.1:{port}", authentication=[Anonymous()],
                           read_timeout=WAIT_S, write_timeout=WAIT_S)
    made.connect()
    try:
        yield made
    finally:
        with suppress(OSError, amqp.AMQPError):
            made.close()


# connections

def test_connections_are_shown_and_one_is_closed(web: Web) -> None:
    with client(web) as first, client(web) as second:
        channel = first.channel()
        channel.confirm_select()
        for at in range(5):
            channel.basic_publish_confirm(amqp.Message(b"%d" % at), "", "C")
        taker = second.channel()
        got: list[bytes] = []
        taker.basic_consume("C", callback=lambda message: got.append(message.body))
        while len(got) < 5:
            second.drain_events(timeout=WAIT_S)
        found = ask(web, WATCHER, "GET", "connections").json
        puts, takes = sorted(found["connections"], key=lambda each: each["connection"])[-2:]
        assert (puts["user"], puts["protocol"], puts["client"]) == (
            "nobody", "AMQP 0-9-1", "py-amqp")
        (link,) = puts["links"]
        assert (link["way"], link["messages"]) == ("puts", 5)
        (link,) = takes["links"]
        assert (link["way"], link["queue"], link["messages"]) == ("takes", "C", 5)

        path = f"connections/{takes['connection']}/close"
        assert ask(web, WATCHER, "POST", path, {"reason": "x"}).status == 403
        assert ask(web, ADMIN, "POST", path, {"reason": "x", "link": None}).status == 400
        assert ask(web, ADMIN, "POST", path, {"reason": "x", "link": "none"}).status == 404
        assert ask(web, ADMIN, "POST", path, {"reason": "too many", "link": link["name"]}
                   ).status == 204, "the channel, and not the connection"
        with pytest.raises(amqp.PreconditionFailed, match=r"an operator closed .*: too many"):
            while True:
                second.drain_events(timeout=WAIT_S)
        until(lambda: web.instance.on("C") != [])
        assert not ask(web, WATCHER, "GET", "connections").json["connections"][-1]["links"]
        again = second.channel()
        again.basic_consume("C", callback=lambda message: got.append(message.body))
        while len(got) < 10:
            second.drain_events(timeout=WAIT_S)
        assert ask(web, ADMIN, "POST", path, {}).status == 400, "a reason is asked for"
        assert ask(web, ADMIN, "POST", path, {"reason": "it eats all"}).status == 204
        with pytest.raises(amqp.ConnectionForced, match=r"an operator closed .*: it eats all"):
            while True:
                second.drain_events(timeout=WAIT_S)
        until(lambda: len(web.instance.on("C")) == 5)
        assert ask(web, ADMIN, "POST", path, {"reason": "again"}).status == 404
        log = [json.loads(line) for line in
               web.instance.paths.event_log.read_text().splitlines()]
        assert [(each["by"], "link" in each) for each in log if each["event"] == 1580] == [
            ("games by token admin", True), ("games by token admin", False)]
        assert [each["reason"] for each in log if each["event"] == 1251
                and "close connection" in each["command"]] == ["too many", "it eats all"]

        page = web.browser("daemon").get("/connections")
        assert "py-amqp" in page.text and f"connection {puts['connection']}" in page.text
        assert "Close link channel 1 of connection" in page.text
        assert "Close connection" not in web.browser("bin").get("/connections").text
        told = web.instance.run("omq connections", "--links")
        assert told.code == 0 and "nobody" in told.out and "puts" in told.out
        number = str(puts["connection"])
        assert web.instance.run("omq connections", "--link", "channel 1").code == 64
        told = web.instance.run("omq connections", "close", number, "--link", "channel 9")
        assert told.code == 66 and f"connection {number} has no link 'channel 9'" in told.err
        told = web.instance.run("omq connections", "close", number, "--link", "channel 1")
        assert (told.code, told.out) == (0, f"connection {number}, link channel 1 is closed\n")
        told = web.instance.run("omq connections", "close", str(puts["connection"]))
        assert told.code == 0
        with pytest.raises(amqp.ConnectionForced):
            while True:
                first.drain_events(timeout=WAIT_S)
        assert web.instance.run("omq connections", "close", "999999").code == 66
    if os.geteuid() == 0:
        assert web.instance.run_as(2, "omq connections").code == 77


def test_who_asks_amqp_server_oddly_gets_nothing(web: Web) -> None:
    """And the next one is answered: nobody holds a place."""
    path = str(web.instance.paths.amqp_socket)
    for sent in (b"", b"\n", b"{}\n", b"[1]\n", b'{"do": "close"}\n', b'{"do": "fly"}\n',
                 b'{"do":"close","connection":"x","reason":1,"by":2}\n', b"x" * 9000,
                 b"[" * 4000 + b"\n"):
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(WAIT_S)
            line.connect(path)
            with suppress(OSError):
                line.sendall(sent)
                line.shutdown(socket.SHUT_WR)
                assert b"connections" not in line.recv(1 << 16)
    silent = [socket.socket(socket.AF_UNIX) for _ in range(7)]
    try:
        for line in silent:
            line.connect(path)
        assert web.instance.run("omq connections").code == 0
    finally:
        for line in silent:
            line.close()


# a token for monitoring

def test_a_token_for_monitoring_sees_figures_and_does_nothing(web: Web) -> None:
    pytest.importorskip("prometheus_client", reason="of the extra metrics")
    figures = ask(web, WATCHER, "GET", "metrics")
    assert figures.status == 200 and 'omq_queue_messages{' in figures.text
    assert figures.headers["content-type"].startswith("text/plain")
    for path in ("overview", "queues", "queues/A", "services", "connections"):
        assert ask(web, WATCHER, "GET", path).status == 200, path
    for route in ROUTES:
        if not route.path.startswith("/api/") or route.open:
            continue
        path = re.sub(r"\{(\w+)(:[^{}]*(\{[^{}]*\}[^{}]*)*)?\}", r"1", route.path)[8:]
        status = ask(web, WATCHER, route.method, path, {} if route.method != "GET" else None).status
        assert (status != 403) == (route.scope == "look"), (route, status)
        assert route.scope != "look" or route.method == "GET", route
    for bad in (SPENT, "omqt_wrong", "", "\u00e9"):
        assert ask(web, bad, "GET", "metrics").status == 401, bad


def test_a_file_of_tokens_that_others_can_read_is_refused(tmp_path: Path) -> None:
    made = Instance(tmp_path / "spool")
    file = made.conf / "web.tokens"
    configure(made, web_tokens=file)
    file.write_text(tokens.make("t", "bin", ("look",))[1] + "\n")
    file.chmod(0o644)
    made.start()
    try:
        assert popen("omq-web", made.arguments).wait(WAIT_S) == 78
    finally:
        made.end()


# users and rights

def test_users_and_rights_are_shown_to_who_is_admin(web: Web) -> None:
    found = ask(web, ADMIN, "GET", "rights").json
    assert {"section": "C", "who": "user:nobody", "may": "put get"} in found["rights"]
    assert {"user": "daemon", "role": "operate", "passwords": ["the console"]} in found["users"]
    assert {"token": WATCHER, "user": "bin", "scopes": ["look"], "until": None} in found["tokens"]
    page = web.browser("games").get("/rights").text
    assert "user:nobody" in page and WATCHER in page
    for secret in ("argon2", "omqt_", "$"):
        assert secret not in page and secret not in json.dumps(found)
    assert web.browser("daemon").get("/rights").status == 403


# below a path

class Below:
    """A reverse proxy that shows the console below ROOT, and nothing else."""

    def __init__(self, web: Web) -> None:
        self._goal = web.host, web.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.strays: list[str] = []
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                self._open.append(line)
                thread = threading.Thread(target=self._serve, args=(line,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, line: socket.socket) -> None:
        with suppress(OSError), line:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (more := line.recv(65536)):
                    return
                head += more
            method, _, rest = head.partition(b" ")
            if not rest.startswith(f"{ROOT}/".encode()):
                self.strays.append(head.split(b"\r\n")[0].decode())
                line.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n"
                             b"Connection: close\r\n\r\n")
                return
            rest = re.sub(rb"(?i)\r\nConnection: [^\r]*", b"", rest[len(ROOT):], count=1)
            first, _, others = rest.partition(b"\r\n")
            with socket.create_connection(self._goal) as inner:
                self._open.append(inner)
                inner.sendall(method + b" " + first + b"\r\nConnection: close\r\n" + others)
                length = re.search(rb"(?i)content-length: (\d+)", head)
                left = int(length[1]) - len(head.partition(b"\r\n\r\n")[2]) if length else 0
                while left > 0:
                    data = line.recv(65536)
                    inner.sendall(data)
                    left -= len(data)
                while data := inner.recv(65536):
                    line.sendall(data)

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def below(web: Web) -> Iterator[Below]:
    with closing(Below(web)) as made:
        yield made


@needs_chromium
def test_a_browser_below_a_path_never_leaves_it(web: Web, below: Below, page: Page) -> None:
    base = f"http://127.0.0.1:{below.port}{ROOT}"
    page.go(f"{base}/queues/A")
    assert page.script("location.pathname") == f"{ROOT}/login"
    page.fill("input[name=user]", "games")
    page.fill("input[name=password]", PASSWORD)
    page.click("Log in")
    assert page.script("location.pathname") == f"{ROOT}/queues/A"
    page.until("document.getElementById('following').textContent === 'live'")
    seen = set[str]()
    left = [f"{ROOT}/", f"{ROOT}/queues/A/messages"]
    while left:
        path = left.pop()
        seen.add(path)
        page.go(f"http://127.0.0.1:{below.port}{path}")
        links = page.script(
            "[...document.querySelectorAll('a[href],form[action],link[href],script[src]')].map("
            "each => new URL(each.getAttribute('href') || each.getAttribute('action') || "
            "each.getAttribute('src'), location.href)).filter(each => each.host === location.host)"
            ".map(each => each.pathname)")
        assert links and all(each.startswith(f"{ROOT}/") for each in links), (path, links)
        left += {each for each in links if re.fullmatch(rf"{ROOT}/[a-z]+", each)
                 and each not in (f"{ROOT}/logout", f"{ROOT}/plan")} - seen - set(left)
    assert {f"{ROOT}/{each}" for each in ("queues", "connections", "definitions", "rights")} <= seen
    page.go(f"{base}/")
    page.key("g")
    page.key("c")
    page.until(f"location.pathname === '{ROOT}/connections'")
    assert below.strays in ([], ["GET /favicon.ico HTTP/1.1"]), below.strays


def test_cookie_and_document_name_the_path(web: Web) -> None:
    browser = web.browser()
    answer = browser.login("bin")
    assert answer.headers["location"] == f"{ROOT}/"
    assert f"Path={ROOT}" in answer.headers["set-cookie"]
    assert ask(web, WATCHER, "GET", "openapi.json").json["servers"] == [{"url": ROOT}]
    for odd in ("omq", "/omq/", "//x", "/a b", "/<b>"):
        conf = web.instance.conf / "omq.conf"
        text = conf.read_text()
        try:
            conf.write_text(text.replace(f"web_path = {ROOT}", f"web_path = {odd}"))
            assert web.instance.run("omq conf").code == 78, odd
        finally:
            conf.write_text(text)


# many queues

@needs_chromium
def test_as_many_queues_as_there_can_be(web: Web, below: Below, page: Page) -> None:
    """More than the index has room for are refused whole. They are shown by pages of some hundred
    rows; the rate of one has axes."""
    more = [{"name": f"MORE.{at:05}"} for at in range(NAMED_QUEUES_MAX)]
    answer = ask(web, ADMIN, "POST", "definitions", {"version": 1, "queues": more, "reason": "x"})
    assert answer.status == 422 and f"{NAMED_QUEUES_MAX} is the most" in answer.text
    assert "MORE." not in ask(web, ADMIN, "GET", "definitions").text
    queues = [{"name": f"MANY.{at:05}"} for at in range(MANY)]
    file = {"version": 1, "queues": queues, "reason": "many"}
    answer = ask(web, ADMIN, "POST", "definitions", file)
    assert answer.status == 200 and answer.json["changed"] == MANY, answer.text[:2000]
    browser = web.browser("bin")
    first = browser.until("/queues?filter=many", f"{MANY:,} of ")
    assert first.text.count("<th scope=\"row\">") == 200 and "page 1 of 3" in first.text
    assert len(first.text) < 1 << 20
    last = browser.get("/queues?filter=many&page=3").text
    assert f"MANY.{MANY - 1:05}" in last and "Next page" not in last
    for odd in ("0", "-1", "99999999999", "x", "11"):
        assert browser.get(f"/queues?filter=many&page={odd}").status == 200
    page.go(f"http://127.0.0.1:{below.port}{ROOT}/queues?filter=many")
    page.fill("input[name=user]", "bin")
    page.fill("input[name=password]", PASSWORD)
    page.click("Log in")
    page.until("document.getElementById('following').textContent === 'live'")
    assert axe.findings(page) == []
    page.click("Next page")
    assert "page 2 of 3" in page.text()

    web.instance.put("A", b"one", b"two")
    browser.until("/queues/A", 'class="chart"')
    page.go(f"http://127.0.0.1:{below.port}{ROOT}/queues/A")
    assert page.script("document.querySelectorAll('.chart .clock span').length") == 7
    assert page.script("document.querySelectorAll('.chart .scale span').length") == 5
    assert page.script("document.querySelectorAll('.chart .plot path').length") == 3
    assert axe.findings(page) == []
