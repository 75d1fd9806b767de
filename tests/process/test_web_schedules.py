"""The console's page of schedules, and the same over REST: what comes next, and what is overdue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq.base import clock
from omq.base.errors import UnknownQueue
from omq.cli.web import schedule_pages
from omq.services.daemon.options import Location
from omq.tasks.schedule import QUEUE
from omq.tasks.schedule_step import LATE_NS
from omq.tasks.schedules import QueueMissing, Schedules
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


def test_a_queue_that_is_away_is_named(web: Web) -> None:
    """Of an alias, too, it is known that it is there."""
    with web.instance.connect() as connection:
        schedules = Schedules(connection)
        connection.queues.define("OTHERNAME", "alias", target="A")
        schedules.define("ALIASED", "OTHERNAME", "every 1 h")
        with pytest.warns(QueueMissing):
            schedules.define("LOST", "NOWHERE", "every 1 h")
        states = {}
        for stage in ("away", "there"):
            with closing(unix(web)) as line:
                _, told = line.ask("GET", "schedules")
            states[stage] = {each["name"]: each["queue_missing"] for each in told["schedules"]}
            page = web.browser("games").get("/schedules").text
            assert ("NOWHERE (not defined)" in page) == ("no queue" in page) == (stage == "away")
            if stage == "away":
                assert 'href="/queues/OTHERNAME"' in page and 'href="/queues/NOWHERE"' not in page
                connection.queues.define("NOWHERE")
    with web.instance.stopped():
        location = Location(None, web.instance.paths, web.instance.conf)
        there = schedule_pages.found(location)
        lacks = {each.name: there.lacks_queue(each) for each in there.schedules}
    assert (lacks["NIGHTLY"], lacks["ALIASED"]) == (False, None), "nobody can be asked of others"
    with web.instance.connect() as connection:
        for name in ("ALIASED", "LOST"):
            Schedules(connection).delete(name)
        for name in ("OTHERNAME", "NOWHERE"):
            connection.queues.delete(name)
    assert states["away"]["LOST"] and states["away"]["ALIASED"] is False
    assert not any(states["there"].values())


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
    there = schedule_pages.found(location)
    assert len(there.schedules) <= 1 and there.note.startswith("the first 1 messages")


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
        new = {each["name"] for each in first[1]["definitions"] if each["outcome"] == "defined"}
        assert first[0] == 200 and new >= {"NEW", "ALSO", "WEEKLY", "HELD"}, first
        assert line.ask("GET", "definitions") == (200, file)
        status, told = line.ask("POST", "definitions", {**file, "reason": "again"})
        assert (status, told["changed"]) == (200, 0)
        schedules = [{"name": "X", "when": 7}, 3]
        odd = {"version": 1, "reason": "odd", "schedules": schedules, "queues": [
            {"name": "A", "kind": "local", "keys": {"max_depth": "9"}}, {"name": "NEW", "keys": 1},
            {"name": "NEW", "keys": {"max_depth": "8", "note": "of shop"}}, []]}
        status, told = line.ask("POST", "definitions", odd)
        assert status == 422 and [each.partition(":")[0] for each in told["mistakes"]] == [
            "queues[2] (NEW)", "queues[3]", "schedules[0]", "schedules[1]"]
        judged = {"version": 1, "reason": "odd", "queues": [
            {"name": "NEW", "keys": {"max_depth": "8", "note": "of shop"}},
            {"name": "BAD", "keys": {"odd": "x"}}, {"name": "WORSE", "keys": {"rate": "-1"}},
            {"name": "NO", "kind": "alias", "keys": {"target": "NOBODY"}},
            {"name": "RING", "keys": {"dead_letter": "GNIR"}},
            {"name": "GNIR", "keys": {"dead_letter": "RING"}}, {"name": "POISON"}],
            "exchanges": [{"name": "x", "kind": "headers"}, {"name": "amq.x", "kind": "topic"}],
            "bindings": [{"exchange": "none", "queue": "A"},
                         {"exchange": "amq.topic", "queue": "NOBODY"},
                         {"exchange": "amq.topic", "to": "none"}, {"exchange": "amq.topic"},
                         {"exchange": "amq.topic", "to": "amq.topic", "queue": "A"},
                         {"exchange": "amq.topic", "to": 7}, {"exchange": "amq.topic", "queue": []},
                         {"exchange": "amq.topic", "to": []}],
            "schedules": [{"name": "S", "queue": "NOBODY", "when": "every 1 h"},
                          {"name": "T", "queue": "A", "when": "now and then"}],
            "rights": [{"section": "A", "who": "user:nobody-such", "may": "put"},
                       {"section": "A", "who": "user:bin", "may": "fly"}]}
        status, told = line.ask("POST", "definitions", judged)
        assert status == 422 and [each.partition(" ")[0] for each in told["mistakes"]] == [
            "queues[1]", "queues[6]", "queues[2]", "queues[3]", "queues[5]",
            "exchanges[0]", "exchanges[1]", *(f"bindings[{at}]" for at in range(8)),
            "schedules[1]", "rights[0]", "rights[1]"], told  # S: its queue may come
        assert line.ask("GET", "definitions") == (200, file), "refused whole"
        for wrong, code in (({**file}, 400), ({**file, "version": 2, "reason": "x"}, 422),
                            ({"version": 1, "queues": {}, "reason": "x"}, 422)):
            assert line.ask("POST", "definitions", wrong)[0] == code
    assert web.browser("daemon").get("/api/v1/definitions").status == 403


WHOLE: dict[str, Any] = {
    "version": 1,
    "queues": [
        {"name": "MANY", "kind": "alias", "keys": {"target": "ZED ONE"}},
        {"name": "ONE", "keys": {"rate": "50/s", "in_work_max": "3", "dead_letter": "ZED"}},
        {"name": "ZED", "keys": {}}, {"name": "A", "by": "queues.conf", "keys": {
            "max_depth": "77"}}],
    "exchanges": [{"name": "shop", "kind": "topic"}],
    "bindings": [{"exchange": "shop", "key": "order.*", "queue": "ONE"},
                 {"exchange": "amq.fanout", "queue": "ZED"},
                 {"exchange": "amq.topic", "key": "order.#", "to": "shop"}],
    "schedules": [{"name": "DAILY", "queue": "ONE", "when": "0 3 * * *", "paused": True}],
    "rights": [{"section": "ONE", "who": "user:bin", "may": "put get"},
               {"section": "NEVER", "who": "group:daemon", "may": "browse"}],
}


def test_one_file_has_all_definitions(web: Web, tmp_path: Path) -> None:
    """By the command: looked at first, then imported, journaled, imported once more; an export says
    the same again, and an instance that never heard of it takes that."""
    instance, file = web.instance, tmp_path / "all.json"
    file.write_text(json.dumps(WHOLE))
    before = (instance.conf / "authority.conf").read_text()

    def ran(*words: str, code: int = 0) -> str:
        told = instance.run("omq definitions", *words)
        assert told.code == code, told
        return told.out + told.err

    assert "11 of 11 definitions would change" in ran("check", str(file))
    assert (instance.conf / "authority.conf").read_text() == before
    assert "11 of 11" in ran("import", str(file), "--reason", "from the shop")
    assert "0 of 11" in ran("import", str(file))
    found = json.loads(ran("export"))
    assert {"name": "shop", "kind": "topic", "auto_delete": False, "internal": False} in (
        found["exchanges"])
    for key, names in (("bindings", ("exchange", "queue", "to")),
                       ("rights", ("section", "who", "may"))):
        assert {tuple(each.get(name) for name in names) for each in WHOLE[key]} <= {
            tuple(each.get(name) for name in names) for each in found[key]}
    assert {"name": "A", "kind": "local", "by": "queues.conf"}.items() <= next(
        each for each in found["queues"] if each["name"] == "A").items()
    assert [each["paused"] for each in found["schedules"] if each["name"] == "DAILY"] == [True]
    assert "[NEVER]\ngroup:daemon = browse" in (instance.conf / "authority.conf").read_text()
    logged = map(json.loads, instance.paths.event_log.read_text().splitlines())
    orders = [each for each in logged if each["event"] == 1251
              and each.get("things") == "definitions" and each["command"].startswith("omq def")]
    assert [(each["count"], each["reason"]) for each in orders] == [(11, "from the shop")]

    file.write_text(json.dumps({"version": 1, "schedules": [
        {"name": "SOON", "queue": "LATER", "when": "every 1 h"}, {"name": "DAY", "queue": "MANY",
                                                                  "when": "0 4 * * *"}]}))
    for do, told in (("check", "2 of 2"), ("import", "2 of 2"), ("import", "0 of 2")):
        said = ran(do, str(file))
        assert told in said and "omq queue define LATER" in said and "queue MANY" not in said
    found = json.loads(ran("export"))

    wrong = {**WHOLE, "queues": [{"name": "OTHER"}, {"name": "ONE", "kind": "alias"}]}
    file.write_text(json.dumps(wrong))
    assert "queues[1] (ONE)" in ran("import", str(file), code=65)
    with instance.connect() as connection, pytest.raises(UnknownQueue):
        connection.queues.show("OTHER")
    file.write_text("[" * 100_000)
    assert "is not JSON" in ran("check", str(file), code=64)

    file.write_text(json.dumps(found))
    with world(tmp_path) as other:
        assert other.instance.run("omq definitions", "import", str(file)).code == 0
        with closing(unix(other)) as line:
            again = line.ask("GET", "definitions")[1]
        assert {key: again[key] for key in ("exchanges", "bindings", "rights")} == {
            key: found[key] for key in ("exchanges", "bindings", "rights")}
        assert {each["name"] for each in again["queues"]} == {
            each["name"] for each in found["queues"]}


def test_definitions_on_a_page(web: Web) -> None:
    admin = web.browser("games")
    page = admin.get("/definitions")
    assert page.status == 200 and "queue" in page.text
    exported = admin.get("/definitions/export")
    assert "attachment" in exported.headers["content-disposition"]
    text = json.dumps({"version": 1, "queues": [{"name": "PAGED", "keys": {"max_depth": "5"}}]})
    judged = admin.post("/definitions", {"csrf": page.csrf, "file": text, "do": "check"})
    assert judged.status == 200 and "Nothing was changed yet" in judged.text
    assert "PAGED" in judged.text and "PAGED" not in admin.get("/definitions/export").text
    refused = admin.post("/definitions", {"csrf": page.csrf, "file": text, "do": "import"})
    assert refused.status == 400, "no reason"
    done = admin.post("/definitions", {
        "csrf": page.csrf, "file": text, "do": "import", "reason": "a page"})
    assert "1 changed" in done.text and "PAGED" in admin.get("/definitions/export").text
    wrong = admin.post("/definitions", {
        "csrf": page.csrf, "do": "check", "file": '{"version": 1, "queues": [{"name": "<b>"}]}'})
    assert wrong.status == 422 and "queues[0] (&lt;b&gt;)" in wrong.text
    assert "<b>\u0027" not in wrong.text and "<b>'" not in wrong.text
    for body in ("no JSON", "", '{"version": 2}', "[" * 5000):
        assert admin.post("/definitions", {"csrf": page.csrf, "do": "check", "file": body}
                          ).status in (400, 422), body
    assert web.browser("daemon").get("/definitions").status == 403
