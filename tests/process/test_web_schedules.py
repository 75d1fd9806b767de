"""The console's page of schedules, and the same over REST: what comes next, and what is overdue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base import clock
from omq.cli.web import schedule_pages
from omq.services.daemon.options import Location
from omq.tasks.schedule import QUEUE
from omq.tasks.schedule_step import LATE_NS
from omq.tasks.schedules import Schedules
from tests.process.test_web_rest import unix
from tests.process.web_world import Web, world

pytest.importorskip("cronsim", reason="the package cronsim, of the extra schedule")
EVIL = "<b>&{planned}"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with world(tmp_path_factory.mktemp("schedules")) as made:
        yield made


def test_next_and_last_times_are_shown(web: Web) -> None:
    admin = web.browser("games")
    assert "None." in admin.get("/schedules").text, "the queue is not there yet"
    with web.instance.connect() as connection:
        schedules = Schedules(connection)
        nightly = schedules.define("NIGHTLY", "A", "0 3 * * *", zone="Europe/Berlin", body=EVIL)
        schedules.define("OFTEN", "B", "every 15 min")
        schedules.define("OFTEN", "B", "every 20 min")  # another generation
        schedules.pause("OFTEN")
        connection.put(QUEUE, b"no schedule")
        connection.put(QUEUE, b'{"name": "<i>", "queue": 7}')
    with closing(unix(web)) as line:
        status, told = line.ask("GET", "schedules")
        assert (status, told["note"]) == (200, "")
        first, second = told["schedules"]
        assert (first["name"], first["zone"], first["last"]) == ("NIGHTLY", "Europe/Berlin", None)
        assert first["next"] is not None and not first["overdue"] and not first["paused"]
        assert (second["when"], second["paused"], second["next"]) == ("every 20 min", True, None)
    page = admin.get("/schedules").text
    assert "Europe/Berlin" in page and "every 20 min" in page and "paused" in page
    assert "every 15 min" not in page and "<i>" not in page and EVIL not in page
    now = clock.wall_ns()
    assert schedule_pages.overdue(replace(nightly, next_ns=now - LATE_NS - 10**9))
    assert not schedule_pages.overdue(replace(nightly, next_ns=now - LATE_NS - 10**9, paused=True))
    assert not schedule_pages.overdue(replace(nightly, next_ns=now))


def test_who_may_not_browse_them_sees_none(web: Web) -> None:
    """They say what is put where: `browse` on their queue is asked for."""
    look = web.browser("bin")
    assert look.get("/schedules").status == 403
    link = 'href="/schedules"'
    assert link not in look.get("/").text and link in web.browser("games").get("/").text


def test_no_more_than_can_be_shown_are_read(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location(None, web.instance.paths, web.instance.conf)
    monkeypatch.setattr(schedule_pages, "SCHEDULES_MAX", 1)
    with web.instance.connect() as connection:
        for name in ("MORE.A", "MORE.B"):
            Schedules(connection).define(name, "A", "every 1 h")
    there, note = schedule_pages.found(location)
    assert len(there) <= 1 and note.startswith("the first 1 messages")


def test_definitions_are_taken_from_one_instance_to_another(web: Web, tmp_path: Path) -> None:
    with web.instance.connect() as connection:
        queues = connection.queues
        queues.define("NEW", max_depth=7, note="of shop")
        queues.define("ALSO", "alias", target="NEW")
        Schedules(connection).define("WEEKLY", "NEW", "0 4 * * 1", body="w", properties={"a": "b"})
        Schedules(connection).define("HELD", "NEW", "every 1 h")
        Schedules(connection).pause("HELD")
    with closing(unix(web)) as line:
        status, file = line.ask("GET", "definitions")
    assert status == 200 and {each["name"] for each in file["queues"]} >= {"NEW", "ALSO"}
    with world(tmp_path) as other, closing(unix(other)) as line:
        first = line.ask("POST", "definitions", {**file, "reason": "moved"})
        assert first[0] == 200 and first[1]["changed"] == len(first[1]["definitions"]), first
        assert line.ask("GET", "definitions") == (200, file)
        status, told = line.ask("POST", "definitions", {**file, "reason": "again"})
        assert (status, told["changed"]) == (200, 0)
        schedules = [{"name": "X", "when": 7}, 3]
        odd = {"version": 1, "reason": "odd", "schedules": schedules, "queues": [
            {"name": "A", "kind": "local", "keys": {"max_depth": "9"}}, {"name": "NEW", "keys": 1},
            {"name": "NEW", "keys": {"max_depth": "8", "note": "of shop"}},
            {"name": "BAD", "keys": {"reason": "x", "odd": "x"}}, [], {"name": "NEW", "kind": []}]}
        told = line.ask("POST", "definitions", odd)[1]
        outcomes = [each["outcome"] for each in told["definitions"]]
        assert told["changed"] == 1 and outcomes.count("refused") == 7, told
        for wrong in ({**file}, {**file, "version": 2, "reason": "x"},
                      {"version": 1, "queues": {}, "reason": "x"}):
            assert line.ask("POST", "definitions", wrong)[0] == 400
    assert web.browser("daemon").get("/api/v1/definitions").status == 403
