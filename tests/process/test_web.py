"""The console by an HTTP client: log in, look, act; beside a manager that hangs or is dead."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

import pytest

from tests.process.operator_world import Instance
from tests.process.processes import WAIT_S, claimant
from tests.process.web_world import Web, configure, console, follows, world


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with world(tmp_path_factory.mktemp("web")) as made:
        made.instance.put("A", b"one", b"two", b"three")
        made.instance.put("B", b"secret")
        yield made


PAGES = ("/", "/queues", "/queues/A", "/queues/A/messages", "/services", "/readers", "/peers",
         "/events")


def test_nobody_sees_anything_before_the_login(web: Web) -> None:
    for path in (*PAGES, "/audit", "/units", "/schedules", "/live", "/events/live", "/messages/1"):
        answer = web.browser().get(path)
        assert answer.status == 303, path
        assert answer.headers["location"].startswith("/login?next="), path


def test_each_page_shows_what_it_should(web: Web) -> None:
    browser = web.browser("daemon")
    for path in (*PAGES, "/audit", "/units"):
        answer = browser.get(path)
        assert answer.status == 200, (path, answer.text)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert "<h1>" in answer.text and "style=" not in answer.text
        assert "onclick" not in answer.text and "<script>" not in answer.text


def test_the_figures_are_those_of_the_index(web: Web) -> None:
    """Once they are: a page shows a look that may be web_period_ms old, from before the puts when
    the machine is quick."""
    answer = web.browser("bin").until("/queues", 'data-live="q:B:ready">1<')
    assert 'data-live="q:A:ready">3<' in answer.text


def test_live_figures_come_as_events(web: Web) -> None:
    browser = web.browser("bin")
    with follows(browser, "/live?queue=B&ages=B") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        found = _next(answer)
        assert found["q:B:ready"] == found["a:B:0"] == "1" and found["a:B:0:bar"] == "100.00"
        web.instance.put("B", b"more")
        while "q:B:messages" not in (found := _next(answer)):
            pass
        assert found["q:B:messages"] == "2"
    with follows(browser, "/live?ages=NONE") as answer:  # no such queue: the figures go on
        assert "f:manager" in _next(answer)


def _next(answer: HTTPResponse) -> dict[str, str]:
    while True:
        line = answer.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            found: dict[str, str] = json.loads(line[6:])
            return found


def test_a_message_is_shown_to_who_may_browse_its_queue(web: Web) -> None:
    number, other = web.instance.on("A")[0], web.instance.on("B")[0]
    looks = web.browser("bin")
    assert "<pre" in looks.get(f"/messages/{number}").text
    assert "one" in looks.get(f"/messages/{number}").text
    assert looks.get(f"/messages/{other}").status == 403
    assert looks.get("/queues/B/messages").status == 403
    assert looks.get(f"/messages/{other}/biography").status == 403
    assert web.browser("games").get(f"/messages/{other}").status == 200
    assert "put on A" in looks.get(f"/messages/{number}/biography").text


def test_channels_are_shown_as_their_sender_says(web: Web) -> None:
    browser, file = web.browser("bin"), web.instance.paths.run / "channels.json"
    sender = claimant(web.instance.paths.pid_file("channels"))
    assert "None is running" in browser.get("/peers").text
    told = {"channel": "EAST", "state": "retrying", "peer": "<b>east</b>:5672", "batch": 7,
            "messages": 42, "bytes": 1, "in_doubt": 1, "tries": 3, "reason": "\x1b[31mno answer",
            "service": "channels", "pid": sender.pid}
    ended = told | {"channel": "ENDED", "pid": os.getpid()}  # another one runs now
    file.write_text(json.dumps([told, told | {"channel": "OTHER"}, ended]))
    text = browser.get("/peers").text
    file.write_text("{")  # half of it
    assert "None is running" in browser.get("/peers").text
    file.unlink()
    sender.kill()
    assert all(each in text for each in ("EAST", ">retrying<", "&lt;b&gt;east", ">42<", "OTHER"))
    assert "\x1b" not in text and "ENDED" not in text


def test_hold_release_with_a_plan_and_a_reason(web: Web) -> None:
    browser = web.browser("daemon")
    page = browser.get("/queues/A")
    plan = browser.post("/plan", {"csrf": page.csrf, "queue": "A", "doing": "hold",
                                  "where": "priority>=0"})
    assert "Nothing was changed yet" in plan.text and "3 ready" in plan.text
    name = plan.found(r'action="(/plan/[^"]+)"')
    assert browser.post(name, {"csrf": page.csrf, "reason": " "}).status == 400
    done = browser.post(name, {"csrf": page.csrf, "reason": "a customer asked"})
    assert "3 of 3 done" in done.text
    assert 'data-live="q:A:held">3<' in browser.get("/queues/A").text
    audit = browser.get("/audit?by=daemon").text
    assert "omq-web daemon: hold" in audit and "a customer asked" in audit
    assert browser.post(name, {"csrf": page.csrf, "reason": "again"}).status == 400
    plan = browser.post("/plan", {"csrf": page.csrf, "queue": "A", "doing": "release",
                                  "all": "yes"})
    browser.post(plan.found(r'action="(/plan/[^"]+)"'), {"csrf": page.csrf, "reason": "over"})
    assert 'data-live="q:A:ready">3<' in browser.get("/queues/A").text


def test_a_delete_is_undone(web: Web) -> None:
    browser = web.browser("daemon")
    number = web.instance.put("A", b"by mistake")[0]
    page = browser.get(f"/messages/{number}")
    plan = browser.post("/plan", {"csrf": page.csrf, "queue": "A", "doing": "delete",
                                  "id": str(number)})
    done = browser.post(plan.found(r'action="(/plan/[^"]+)"'),
                        {"csrf": page.csrf, "reason": "wrong one"})
    assert number not in web.instance.on("A")
    assert "operator deleted it" in browser.get(f"/messages/{number}").text
    undone = browser.post(done.found(r'action="(/undo/[^"]+)"'), {"csrf": page.csrf})
    assert "1 of 1 done" in undone.text
    assert number in web.instance.on("A")


def test_a_message_is_put_by_hand_with_a_reason(web: Web) -> None:
    browser, looks = web.browser("daemon"), web.browser("bin")
    page = browser.get("/queues/A")
    assert 'action="/queues/A/put"' in page.text
    assert 'action="/queues/A/put"' not in looks.get("/queues/A").text
    said = {"csrf": page.csrf, "body": "line 1\r\nline \u00fc", "properties": "customer=42\r\n\r\n"
            "note= a=b ", "priority": "8", "reason": "a customer asked"}
    before = set(web.instance.on("A"))
    for wrong in ({"reason": " "}, {"priority": "10"}, {"priority": "x"}, {"priority": "\u0667"},
                  {"properties": "customer"}, {"properties": "a=1\na=2"}, {"properties": "=1"},
                  {"properties": "a b=1"}, {"properties": "n=" + "x" * 70_000}):
        assert browser.post("/queues/A/put", {**said, **wrong}).status in (400, 413, 422), wrong
    csrf = looks.get("/").csrf
    assert looks.post("/queues/A/put", {**said, "csrf": csrf}).status == 403
    assert browser.post("/queues/LOCAL/put", said).status == 403  # no put there
    assert browser.post("/queues/NONE/put", said).status in (403, 404)
    assert set(web.instance.on("A")) == before
    done = browser.post("/queues/A/put", said)
    assert done.status == 303, done.text
    shown = browser.get(done.headers["location"])
    assert shown.status == 200 and "line \u00fc" in shown.text
    (number,) = set(web.instance.on("A")) - before
    with web.instance.connect() as connection:
        (row,) = (row for row in connection.browse("A") if row.qpool_id == number)
        assert (row.body, row.priority) == ("line 1\nline \u00fc".encode(), 8)
        assert row.properties == {"customer": "42", "note": " a=b "}
    audit = browser.get("/audit?by=daemon").text
    assert "omq-web daemon: put 1 message on A" in audit and "a customer asked" in audit
    with web.instance.connect() as connection, connection.reader("A") as reader:
        (message,) = reader.next(timeout_s=WAIT_S, message_id=row.message_id)
        message.done()


def test_a_queue_is_held_and_released(web: Web) -> None:
    browser = web.browser("daemon")
    page = browser.get("/queues/A")
    for what, word in (("hold", "held"), ("close", "held, no puts"), ("release", "no puts"),
                       ("open", "moves")):
        answer = browser.post("/queues/A/inhibit", {"csrf": page.csrf, "what": what,
                                                    "reason": "a try"})
        assert answer.status == 303, answer.text
        state = browser.get("/queues/A").found(r'data-live="q:A:state">([^<]*)<')
        assert state in (word, f"{word}, no reader", "no reader"), what
    log = web.instance.paths.event_log.read_text()
    assert '"user": "daemon"' in log and "hold A" in log


def test_who_looks_cannot_act_and_who_operates_not_everywhere(web: Web) -> None:
    looks, operates = web.browser("bin"), web.browser("daemon")
    fields = {"queue": "A", "doing": "hold", "all": "yes"}
    assert looks.post("/plan", {"csrf": looks.get("/").csrf, **fields}).status == 403
    assert looks.get("/audit").status == 403
    csrf = operates.get("/").csrf
    assert operates.post("/plan", {"csrf": csrf, **fields, "queue": "B"}).status == 403
    assert operates.post("/services/router", {"csrf": csrf, "turn": "off",
                                              "reason": "x"}).status == 403
    plan = {"csrf": csrf, "queue": "A", "doing": "move", "to": "LOCAL", "all": "yes"}
    assert operates.post("/plan", plan).status == 403  # no put there
    assert operates.post("/plan", {**plan, "to": "B"}).status == 200


def test_a_manager_that_hangs_or_is_dead_is_told(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        number = made.instance.put("A", b"left")[0]
        browser = made.browser("daemon")
        with made.instance.stopped():
            assert "is stopped by a signal" in browser.until("/", ">hangs<").text
            assert browser.get(f"/messages/{number}").status == 200
            csrf = browser.get("/queues/A").csrf
            plan = browser.post("/plan", {"csrf": csrf, "queue": "A", "doing": "hold",
                                          "all": "yes"})
            answer = browser.post(plan.found(r'action="(/plan/[^"]+)"'),
                                  {"csrf": csrf, "reason": "hung"})
            assert answer.status == 503 and "hang" in answer.text
        made.instance.kill()
        text = browser.until("/", ">is dead<").text
        assert 'data-live="q:A:messages">1<' in text
        assert "left" in browser.get(f"/messages/{number}").text
        made.instance.end()
        browser.until("/", ">does not run<")
        assert browser.get("/queues/A").status == 503


def test_a_full_disk_is_told_and_messages_can_still_be_deleted(tmp_path: Path) -> None:
    made = Instance(tmp_path / "spool")
    configure(made)
    made.start()
    number = made.put("A", b"before")[0]
    made.stop()
    conf = made.conf / "omq.conf"
    conf.write_text(conf.read_text().replace("disk_reserve_bytes = 0",
                                             "disk_reserve_bytes = 1023 GiB"))
    made.start()
    try:
        with console(made) as web:
            browser = web.browser("daemon")
            assert "disk space LOW" in browser.until("/", "disk space LOW").text
            csrf = browser.get("/queues/A").csrf
            refused = browser.ask("POST", "/api/v1/queues/A/messages", b"x", {"X-CSRF-Token": csrf})
            assert refused.status in (503, 507) and refused.json["detail"], refused.text
            plan = browser.post("/plan", {"csrf": csrf, "queue": "A", "doing": "delete",
                                          "id": str(number)})
            done = browser.post(plan.found(r'action="(/plan/[^"]+)"'),
                                {"csrf": csrf, "reason": "room"})
            assert "1 of 1 done" in done.text
    finally:
        made.end()


def test_nine_hundred_queues_are_five_pages(tmp_path: Path) -> None:
    made = Instance(tmp_path / "spool")
    queues = made.conf / "queues.conf"
    queues.write_text(queues.read_text() + "".join(f"\n[Q{n}]\n" for n in range(900)))
    configure(made)
    made.start()
    try:
        with console(made) as web:
            browser = web.browser("bin")
            pages = [browser.get(f"/queues?page={page}").text for page in range(1, 6)]
            rows = [text.count('<th scope="row">') for text in pages]
            assert rows[:4] == [200] * 4 and 100 < rows[4] < 200
            assert "page 5 of 5" in pages[-1] and not any("<svg" in text for text in pages)
            chosen = browser.get("/queues?filter=q89&sort=messages").text
            assert chosen.count('<th scope="row">') == 11 and "11 of 90" in chosen
    finally:
        made.end()
