"""The console and whoever wants what is not his: forms, sessions, guesses, names, texts,
slowness."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.process.web_world import (
    PASSWORD,
    WAIT_S,
    Answer,
    Browser,
    Web,
    configure,
    console,
    hashed,
    world,
)
from tests.unit.services.mail.smtp.certificates import Certificates
from tests.waiting import pause

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
CONTROLS = "\x1b[31mred\x1b[0m \u202egnirts\u202c"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with world(tmp_path_factory.mktemp("websec")) as made:
        made.instance.put("A", b"one")
        yield made


def forms(browser: Browser) -> list[tuple[str, dict[str, str]]]:
    """Every form that changes something."""
    return [("/plan", {"queue": "A", "doing": "hold", "all": "yes"}), ("/plan/x", {"reason": "x"}),
            ("/undo/x", {}), ("/queues/A/inhibit", {"what": "hold", "reason": "x"}),
            ("/queues/A/put", {"body": "x", "reason": "x"}),
            ("/services/router", {"turn": "off", "reason": "x"}),
            ("/units/x", {"end": "commit", "reason": "x"}), ("/logout", {})]


def test_a_form_without_the_sessions_token_or_from_elsewhere_is_refused(web: Web) -> None:
    browser, other = web.browser("games"), web.browser("daemon")
    right = browser.get("/queues/A").csrf
    for path, fields in forms(browser):
        assert browser.post(path, fields).status == 403, path
        assert browser.post(path, {**fields, "csrf": right[:-1]}).status == 403, path
        assert browser.post(path, {**fields, "csrf": other.get("/").csrf}).status == 403, path
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"},
                        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
            assert browser.post(path, {**fields, "csrf": right}, **headers).status == 403, headers
        assert browser.ask("POST", path, b"{}", {"Content-Type": "text/plain"}).status == 403
    assert browser.get("/").status == 200, "nobody was logged out"
    assert 'data-live="q:A:held">0<' in browser.get("/queues/A").text


def test_a_login_from_elsewhere_is_refused(web: Web) -> None:
    fields = {"user": "daemon", "password": PASSWORD}
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert web.browser().post("/login", fields, **headers).status == 403


def test_a_key_that_was_set_before_the_login_is_none(web: Web) -> None:
    browser = web.browser()
    browser.cookie = "omq=chosen-by-somebody-else"
    assert browser.login("bin").status == 303
    assert "chosen" not in browser.cookie
    first = browser.cookie
    assert browser.login("bin").status == 303 and browser.cookie != first
    browser.cookie = first
    assert browser.get("/").status == 303, "the earlier session is over"


def test_the_cookie_and_a_logout(web: Web) -> None:
    browser = web.browser()
    answer = browser.login("bin")
    said = answer.headers["set-cookie"]
    assert "HttpOnly" in said and "SameSite=Strict" in said and "Path=/" in said
    kept = browser.cookie
    assert browser.post("/logout", {"csrf": browser.get("/").csrf}).status == 303
    browser.cookie = kept
    assert browser.get("/").status == 303


@pytest.mark.parametrize("goal", ["//evil.example/", "https://evil.example/", "/\\evil.example",
                                  "/x\r\nSet-Cookie: omq=1", "javascript:alert(1)"])
def test_a_login_leads_nowhere_else_and_adds_no_header(web: Web, goal: str) -> None:
    browser = web.browser()
    answer = browser.login("bin", next=goal)
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_root_who_has_no_role_and_who_is_no_account_stay_out(web: Web) -> None:
    assert web.browser().login("root").status == 403
    assert web.browser().login("nobody").status == 403
    assert web.browser().login("daemon\0x").status == 403
    assert web.browser().login("x" * 5000, "y" * 5000).status in (400, 403)


def test_passwords_are_not_guessed_without_end(tmp_path: Path) -> None:
    with world(tmp_path, web_logins_max=3) as made:
        browser = made.browser()
        assert [browser.login("bin", f"wrong {n}").status for n in range(5)] == [
            403, 403, 403, 429, 429]
        answer = browser.login("bin")
        assert answer.status == 429 and int(answer.headers["retry-after"]) > 0
        log = made.instance.paths.event_log.read_text()
        assert '"event": 1576' in log and "wrong 1" not in log and PASSWORD not in log
        assert "for this name from there: see web_logins_max" in log
        assert browser.login("games").status == 303, "another name is not kept out"


def test_invented_names_keep_nobody_out(web: Web) -> None:
    """A dozen were enough, for all of the host is one address."""
    browser = web.browser()
    assert {browser.login(f"invented{n}", "x").status for n in range(12)} == {403}
    assert browser.login("bin").status == 303


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_account_of_the_host_keeps_nobody_out(tmp_path: Path) -> None:
    """It guesses as often as it may, and holds all the connections it gets."""
    with world(tmp_path, web_logins_max=2, web_strangers_max=12, web_connections_max=20) as made:
        receive, send = os.pipe()
        stays, go = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setresuid(1, 1, 1)
                browser = made.browser()
                found = [browser.login(f"u{n % 15}", "x").status for n in range(30)]
                lines = [socket.create_connection((made.host, made.port)) for _ in range(60)]
                for line in lines:
                    with suppress(OSError):
                        line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
                os.write(send, f"{found.count(403)} {found.count(429)}".encode())
                os.close(go)
                os.read(stays, 1)
            finally:
                os._exit(0)
        try:
            assert os.read(receive, 99) == b"20 10", "ten times web_logins_max of one account"
            browser = made.browser("bin")
            assert browser.get("/").status == 200
            log = made.instance.paths.event_log.read_text()
            assert '"127.0.0.1 uid 1"' in log and "from there: see web_logins_max" in log
            assert "web_strangers_max: its oldest connection made room" in log
        finally:
            for end in (go, stays, receive, send):
                os.close(end)
            os.waitpid(child, 0)


def test_connections_that_say_nothing_make_room(web: Web) -> None:
    """More of them than anybody may have, of the account that logs in."""
    lines = [socket.create_connection((web.host, web.port), WAIT_S) for _ in range(60)]
    try:
        assert web.browser("bin").get("/").status == 200
    finally:
        for line in lines:
            line.close()


def test_who_does_not_agree_on_tls_has_a_place_and_no_more(
        tmp_path: Path) -> None:
    """Such connections were not counted, and had no limit but descriptors."""
    path = Certificates(tmp_path).make("localhost")
    with world(tmp_path, web_tls_certificate=path, web_client_connections_max=3) as made:
        lines = [socket.create_connection((made.host, made.port), WAIT_S) for _ in range(5)]
        assert all(map(_ends, lines[:2])), "the oldest made room"
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        with closing(http.client.HTTPSConnection(made.host, made.port, timeout=WAIT_S,
                                                 context=trusting)) as line:
            line.request("GET", "/login", headers={"Host": "localhost"})
            assert line.getresponse().status == 200
        with socket.create_connection((made.host, made.port), WAIT_S) as line:
            line.sendall(b"GET / HTTP/1.1\r\n\r\n")  # plain, where TLS is spoken
            assert _ends(line)
        for each in lines:
            each.close()


def test_a_host_that_is_not_ours_is_not_answered(web: Web) -> None:
    browser = web.browser("games")
    for host in ("evil.example", "evil.example:9816", "localhost.evil.example", "127.0.0.1.evil"):
        assert browser.get("/", Host=host).status == 421, host
        assert web.browser().get("/login", Host=host).status == 421, host
    for host in ("localhost", "127.0.0.1:1", "[::1]:9816"):
        assert browser.get("/", Host=host).status == 200, host


@pytest.mark.parametrize("path", [
    "/static/../gate.py", "/static/..%2fgate.py", "/static/%2e%2e/gate.py", "/static//etc/passwd",
    "/static/console.css%00", "/../../etc/passwd", "/queues/..%2f..%2fetc", "/queues/a",
    "/messages/..%2f..%2fetc%2fpasswd", "/plan", "/nothing"])
def test_there_are_no_paths_but_ours(web: Web, path: str) -> None:
    assert web.browser("games").get(path).status in (404, 405)


def test_no_text_of_anybodys_becomes_a_part_of_the_page(web: Web) -> None:
    evil = f"{HOSTILE} {CONTROLS}"
    with web.instance.connect("evil<b>x</b>") as connection:
        connection.put("A", f"Subject: {evil}\n\n{evil}".encode(), properties={
            "subject": evil, "mail.from": evil, "mail.to": evil,
            "customer": evil, "note": "{{7*7}}"})
    number = web.instance.on("A")[-1]
    browser = web.browser("games")
    pages = ["/queues/A/messages", f"/messages/{number}", f"/messages/{number}/biography",
             "/queues/A", "/readers", "/events", "/audit",
             *(f"/messages/{number}?as={kind}" for kind in ("text", "json", "mail", "hex"))]
    for path in ("/queues?filter=", "/queues/A/messages?where=", "/audit?by=", "/messages/",
                 "/queues?sort=", "/queues/A/messages?after=", f"/messages/{number}?as="):
        pages.append(path + quote(evil, safe=""))
    csrf = browser.get("/queues/A").csrf
    with web.instance.connect("evil<b>x</b>") as connection, connection.reader("A"):
        answers = {path: browser.get(path) for path in pages}
    answers["plan"] = browser.post("/plan", {"csrf": csrf, "queue": "A", "doing": "hold",
                                             "where": f"customer = '{HOSTILE[:20]}'"})
    answers["bad plan"] = browser.post("/plan", {"csrf": csrf, "queue": evil, "doing": evil})
    answers["done"] = browser.post("/queues/A/inhibit", {"csrf": csrf, "what": evil,
                                                         "reason": evil})
    answers["login"] = web.browser().post("/login", {"user": evil, "password": evil, "next": evil})
    for path, answer in answers.items():
        assert answer.status in (200, 400, 403, 404), (path, answer.status)
        _tame(path, answer)
    assert "customer" in answers[f"/messages/{number}"].text
    assert "{{7*7}}" in answers[f"/messages/{number}"].text


def _tame(path: str, answer: Answer) -> None:
    assert not any(each in answer.text for each in "\x1b\u202e\u202c"), path
    seen = _Elements()
    seen.feed(answer.text)
    assert "img" not in seen.tags, path
    assert seen.scripts == ["/static/console.js"], path
    assert not [name for name in seen.attributes if name.startswith("on") or name == "style"], path
    assert all(each.startswith(("/", "?", "#")) for each in seen.links), (path, seen.links)


class _Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts: list[str | None] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self.attributes |= found.keys()
        if tag == "script":
            self.scripts.append(found.get("src"))
        self.links += [str(found[name]) for name in ("href", "action", "src") if name in found]


def test_slow_and_many_connections_take_no_place_for_long(tmp_path: Path) -> None:
    with world(tmp_path, web_idle_timeout_s=1, web_request_timeout_s=1, web_connections_max=8,
               web_client_connections_max=5) as made:
        browser = made.browser("bin")
        lines = [socket.create_connection((made.host, made.port), WAIT_S) for _ in range(5)]
        lines.append(socket.create_connection((made.host, made.port), WAIT_S))
        with lines.pop(0) as oldest:
            assert _ends(oldest), "one more of a source: the oldest makes room"
        lines[0].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        lines[1].sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
                         b"Content-Type: application/x-www-form-urlencoded\r\n\r\nuser=")
        trickled = time.monotonic()
        while True:  # a byte now and then is no reason to stay
            try:
                lines[0].sendall(b"x")
            except OSError:
                break
            assert time.monotonic() - trickled < WAIT_S
            pause()
        assert all(map(_ends, lines))
        for each in lines:
            each.close()
        assert browser.get("/").status == 200


def _ends(line: socket.socket) -> bool:
    try:
        while line.recv(4096):
            pass
    except ConnectionError:
        return True
    return True


def test_more_than_a_request_may_be_is_not_read(tmp_path: Path) -> None:
    with world(tmp_path, web_request_bytes_max=65536) as made:
        browser = made.browser("daemon")
        csrf = browser.get("/").csrf
        answer = browser.post("/plan", {"csrf": csrf, "where": "x" * 70000})
        assert answer.status == 413


def test_a_proxy_is_believed_with_its_secret_alone(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret that is long enough\n")
    secret.chmod(0o600)
    with world(tmp_path, web_proxy_user_header="Remote-User", web_proxy_secret=secret) as made:
        told = {"Remote-User": "bin"}
        assert made.browser().get("/", **told).status == 303
        assert made.browser().get("/", **told, **{"Omq-Proxy-Secret": "guess"}).status == 303
        browser = made.browser()
        browser.headers = {**told, "Omq-Proxy-Secret": "a secret that is long enough",
                           "X-Forwarded-Proto": "https", "X-Forwarded-For": "1.1.1.1, 192.0.2.7"}
        answer = browser.get("/")
        assert answer.status == 200 and ">bin <" in answer.text
        assert browser.cookie.startswith("__Host-omq=")
        assert "strict-transport-security" in answer.headers
        browser.headers["Remote-User"] = "root"
        assert browser.get("/").status == 303, "the session is another's"
        browser.headers = {}
        assert browser.get("/").status == 303, "without the proxy it is nobody's"


def test_a_reload_takes_the_right_away(tmp_path: Path) -> None:
    from tests.process.operator_world import Instance

    made = Instance(tmp_path / "spool")
    configure(made)
    made.start()
    try:
        with console(made) as web:
            browser, changed = web.browser("daemon"), web.browser("games")
            users = made.conf / "web.users"
            lines = users.read_text().replace(f"games:{hashed()}", f"games:{hashed()[:-4]}AAAA")
            users.write_text(lines)
            authority = made.conf / "authority.conf"
            authority.write_text("[console]\nuser:bin = look\n")
            os.kill(web.child.pid, 1)
            ends = time.monotonic() + WAIT_S
            while browser.get("/").status == 200:
                assert time.monotonic() < ends
                pause()
            assert browser.get("/").status == 403
            assert changed.get("/").status == 303, "his password is another"
            log = made.paths.event_log.read_text()
            assert "1577" in log, "who is refused is in the event log"
    finally:
        made.end()
