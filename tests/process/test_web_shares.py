"""What one user of the console can take leaves room for the others: threads, pages that follow,
gets of the API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.process.web_world import WAIT_S, Web, follows, world
from tests.waiting import pause


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with world(tmp_path_factory.mktemp("shares"), web_user_workers=1, web_user_waiting_max=1,
               web_user_follow_max=1, web_user_deliveries_max=1) as made:
        with made.instance.connect("fills") as connection:
            connection.put_many("A", [b"%d" % number for number in range(3000)])
        yield made


def test_who_reads_all_waits_behind_himself_alone(web: Web) -> None:
    much, other = web.browser("daemon"), web.browser("bin")
    path = "/queues/A/messages?where=property:customer%3D42"  # each message is read
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            answers = [threads.submit(much.get, path) for _ in range(8)]
            assert other.get("/queues/A/messages").status == 200
            found = [each.result() for each in answers]
            assert {each.status for each in found} <= {200, 503}
            refused = [each for each in found if each.status == 503]
            if refused:
                break
    assert "web_user_waiting_max" in refused[0].text
    assert int(refused[0].headers["retry-after"]) > 0
    assert much.get(path).status == 200, "his turn comes again"


def test_who_follows_much_leaves_room_for_others(web: Web) -> None:
    much, other = web.browser("daemon"), web.browser("bin")
    with follows(much, "/live") as first, follows(other, "/live") as others:
        assert first.status == others.status == 200
        with follows(much, "/live") as refused:
            assert refused.status == 503 and b"web_user_follow_max" in refused.read()
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:  # until the console has seen that nobody takes it any more
        with follows(much, "/live") as again:
            if again.status == 200:
                return
        pause()
    raise AssertionError("his share is not given back")


def test_who_holds_much_leaves_room_for_others(web: Web) -> None:
    got = []
    for user, statuses in (("daemon", [200, 503]), ("games", [200])):
        browser = web.browser(user)
        told = {"X-CSRF-Token": browser.get("/").csrf, "Content-Type": "application/json"}
        for status in statuses:
            answer = browser.ask("POST", "/api/v1/queues/A/get", b'{"wait_s": 20}', told)
            assert answer.status == status, answer.text
            got.append((browser, told, answer))
    assert "web_user_deliveries_max" in got[1][2].json["detail"]
    browser, told, held = got[0]
    delivery = held.json["deliveries"][0]["delivery"]
    assert browser.ask("POST", f"/api/v1/deliveries/{delivery}", b"{}", told).status == 204
    assert browser.ask("POST", "/api/v1/queues/A/get", b"{}", told).status == 200
