"""The REST interface: tokens and scopes, put, get, settle, browse, define, act; errors; the
document."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from omq.cli.web import tokens
from tests.process.operator_world import Instance
from tests.process.web_world import Answer, Browser, Web, configure, console

SCOPES = {"all": "look browse put get operate define", "looks": "look", "puts": "put",
          "reads": "get browse"}


@dataclass
class Program:
    """A client with a token."""

    browser: Browser
    token: str

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        return self.browser.ask(method, f"/api/v1{path}", data, {
            "Authorization": f"Bearer {self.token}", "Content-Type": kind, **headers})


@dataclass
class Api:
    web: Web
    programs: dict[str, Program]

    def __getattr__(self, name: str) -> Program:
        return self.programs[name]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    made = Instance(tmp_path_factory.mktemp("api") / "spool")
    file, known = made.conf / "web.tokens", {}
    lines = []
    for name, user, scopes, until in (
            ("all", "games", SCOPES["all"], ""), ("looks", "games", SCOPES["looks"], ""),
            ("puts", "daemon", SCOPES["puts"], ""), ("reads", "daemon", SCOPES["reads"], ""),
            ("over", "games", "look", "2020-01-01"), ("root", "root", "look", ""),
            ("weak", "bin", SCOPES["all"], "")):
        token, line = tokens.make(name, user, scopes.split(), until)
        known[name] = token
        lines.append(f"{line}\n")
    file.write_text("".join(lines))
    file.chmod(0o600)
    configure(made, web_tokens=file, web_hold_s=1)
    with (made.conf / "authority.conf").open("a") as rights:
        rights.write("[TO.OTHERS]\nuser:daemon = put get\n")
    made.start()
    try:
        with console(made) as web:
            yield Api(web, {name: Program(web.browser(), token) for name, token in known.items()})
    finally:
        made.end()


def test_a_message_is_put_taken_and_settled(api: Api) -> None:
    put = api.puts.ask("POST", "/queues/A/messages", {
        "body": "one", "properties": {"customer": "42"}, "priority": 7})
    assert put.status == 201, put.text
    assert api.puts.ask("POST", "/queues/A/messages", b"\x00\xff").status == 201
    got = api.reads.ask("POST", "/queues/A/get", {"count": 5, "wait_s": 20}).json["deliveries"]
    assert [(each["body"], each["properties"]) for each in got[:1]] == [("one", {"customer": "42"})]
    assert got[0]["message_id"] == put.json["message_id"]
    assert base64.b64decode(got[1]["body_base64"]) == b"\x00\xff"
    first, second = (f"/deliveries/{each['delivery']}" for each in got)
    assert api.all.ask("POST", first, {"end": "done"}).status == 404, "it is another's"
    assert api.reads.ask("POST", first, {"end": "done"}).status == 204
    assert api.reads.ask("POST", first, {"end": "fail"}).status == 404, "once"
    assert api.reads.ask("POST", second, {"end": "fail", "reason": "no"}).status == 204
    assert api.web.instance.bodies("A") == [b"\x00\xff"]


def test_what_is_not_settled_in_time_has_failed(api: Api) -> None:
    api.web.instance.put("A", b"comes back")
    got = api.reads.ask("POST", "/queues/A/get", {"wait_s": 20}).json["deliveries"]
    again: list[dict[str, Any]] = []
    while not again:
        again = api.reads.ask("POST", "/queues/A/get", {"wait_s": 5}).json["deliveries"]
    assert again[0]["qpool_id"] == got[0]["qpool_id"] and again[0]["attempts"] == 1
    late = api.reads.ask("POST", f"/deliveries/{got[0]['delivery']}", {"end": "done"})
    assert late.status == 404 and late.json["omq_error"] == "DeliveryUnknown"
    api.reads.ask("POST", f"/deliveries/{again[0]['delivery']}", {"end": "done"})
    assert api.reads.ask("POST", "/queues/A/get").json == {"deliveries": []}


def test_rights_are_those_on_what_a_name_stands_for(api: Api) -> None:
    """daemon may put to and get from the alias and A, not LOCAL."""
    with api.web.instance.connect() as native:
        native.queues.define("TO.OTHERS", "alias", target="LOCAL")
        native.queues.define("TO.A", "alias", target="A")
    try:
        for asked in (api.puts.ask("POST", "/queues/TO.OTHERS/messages", b"x"),
                      api.reads.ask("POST", "/queues/TO.OTHERS/get", {})):
            assert (asked.status, asked.json["omq_error"]) == (403, "NoAuthority")
        assert api.web.instance.bodies("LOCAL") == []
        assert api.puts.ask("POST", "/queues/TO.A/messages", b"x").status == 201
        got = api.reads.ask("POST", "/queues/TO.A/get", {"wait_s": 20}).json["deliveries"]
        assert api.reads.ask("POST", f"/deliveries/{got[0]['delivery']}", {}).status == 204
    finally:
        with api.web.instance.connect() as native:
            native.queues.delete("TO.OTHERS")
            native.queues.delete("TO.A")


def test_messages_are_browsed_by_pages(api: Api) -> None:
    numbers = api.web.instance.put("LOCAL", *(b"%d" % n for n in range(5)))
    numbers += api.web.instance.put("LOCAL", b"first", priority=9)
    numbers = [numbers[-1], *numbers[:-1]]
    found, after = [], ""
    while True:
        page = api.all.ask("GET", f"/queues/LOCAL/messages?limit=2&after={after}").json
        assert len(page["messages"]) <= 2
        found += [each["qpool_id"] for each in page["messages"]]
        if page["after"] is None:
            break
        after = page["after"]
    assert found == numbers == api.web.instance.on("LOCAL")
    chosen = api.all.ask("GET", "/queues/LOCAL/messages?where=priority%3D4&limit=3").json
    assert [each["qpool_id"] for each in chosen["messages"]] == numbers[1:4]
    rest = api.all.ask("GET", f"/queues/LOCAL/messages?where=priority%3D4&after={chosen['after']}")
    assert [each["qpool_id"] for each in rest.json["messages"]] == numbers[4:]
    one = api.all.ask("GET", f"/messages/{numbers[0]}").json
    assert one["why"][0]["why"] == "no_reader" and one["queues"][0]["queue"] == "LOCAL"
    body = api.all.ask("GET", f"/messages/{numbers[0]}/body")
    assert (body.text, body.headers["content-type"]) == ("first", "application/octet-stream")


def test_an_order_by_selector_with_a_dry_run_first(api: Api) -> None:
    api.web.instance.put("B", b"1", b"2")
    order = {"do": "hold", "where": "priority=4", "dry_run": True}
    assert api.all.ask("POST", "/queues/B/act", order).json["messages"] == 2
    assert api.all.ask("GET", "/queues/B").json["held"] == 0
    assert api.all.ask("POST", "/queues/B/act", {**order, "dry_run": False}).status == 400
    done = api.all.ask("POST", "/queues/B/act", {
        "do": "hold", "where": "priority=4", "reason": "stop"}).json
    assert (done["done"], done["refused"]) == (2, [])
    assert api.all.ask("GET", "/queues/B").json["held"] == 2
    told = api.all.ask("GET", "/audit").json["commands"][0]["operator"]
    assert "omq-web games by token all: hold" in told["command"] and told["reason"] == "stop"


@pytest.mark.parametrize("words", ["id=@/etc/passwd", "id=-", "'id=@/etc/passwd'"])
def test_a_selector_from_elsewhere_reads_no_file(api: Api, words: str) -> None:
    where = quote(words)
    for asked in (api.all.ask("GET", f"/queues/A/messages?where={where}"),
                  api.all.ask("POST", "/queues/A/act", {"do": "delete", "where": words})):
        assert asked.status == 400 and "here stand ids alone" in asked.text, asked.text
    page = api.web.browser("games").get(f"/queues/A/messages?where={where}")
    assert page.status == 400 and "here stand ids alone" in page.text, page.text


def test_a_queue_is_defined_altered_held_and_removed(api: Api) -> None:
    say = {"reason": "a new customer"}
    assert api.all.ask("PUT", "/queues/NEW", {"keys": {"max_depth": "7"}, **say}).status == 204
    assert api.all.ask("GET", "/queues/NEW").json["max_depth"] == 7
    assert api.all.ask("PATCH", "/queues/NEW", {"keys": {"max_depth": "9"}, **say}).status == 204
    assert api.all.ask("GET", "/queues/NEW").json["max_depth"] == 9
    assert api.all.ask("POST", "/queues/NEW/inhibit", {"get": False, **say}).status == 204
    assert api.all.ask("GET", "/queues/NEW").json["why"][0]["code"] == "get_inhibited"
    assert api.all.ask("PUT", "/queues/NEW", {"keys": {}, **say}).status in (400, 409, 422)
    assert api.all.ask("DELETE", "/queues/NEW?reason=over").status == 204
    assert api.all.ask("GET", "/queues/NEW").status == 404


def test_a_token_may_what_its_scopes_and_its_user_may(api: Api) -> None:
    asks = {"look": ("GET", "/queues"), "browse": ("GET", "/queues/A/messages"),
            "put": ("POST", "/queues/A/messages"), "get": ("POST", "/queues/A/get"),
            "operate": ("GET", "/audit"), "define": ("PUT", "/queues/X")}
    for name, scopes in SCOPES.items():
        for scope, (method, path) in asks.items():
            status = api.programs[name].ask(method, path, None if method == "GET" else {}).status
            assert (status == 403) == (scope not in scopes.split()), (name, scope, status)
    assert api.puts.ask("POST", "/queues/LOCAL/messages", b"x").status == 403
    assert api.weak.ask("GET", "/queues").status == 200
    assert api.weak.ask("GET", "/audit").status == 403, "a token is not more than its user"
    assert api.weak.ask("POST", "/queues/A/messages", b"x").status == 403


@pytest.mark.parametrize("token", ["over", "root"])
def test_a_token_that_is_over_or_of_root_is_none(api: Api, token: str) -> None:
    answer = api.programs[token].ask("GET", "/queues")
    assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer")


def test_a_token_of_odd_bytes_is_a_wrong_one(api: Api) -> None:
    answer = api.web.browser().get("/api/v1/queues", Authorization="Bearer \xff\xfe")
    assert answer.status == 401 and answer.json["omq_error"] == "NotLoggedIn"


def test_a_token_is_for_the_interface_alone_and_a_session_needs_its_form_token(api: Api) -> None:
    headers = {"Authorization": f"Bearer {api.all.token}"}
    assert api.web.browser().get("/", **headers).status == 303
    person = api.web.browser("games")
    assert person.get("/api/v1/queues").status == 200
    path, body = "/api/v1/queues/A/messages", b"x"
    assert person.ask("POST", path, body).status == 403
    token = person.get("/queues/A").csrf
    assert person.ask("POST", path, body, {"X-CSRF-Token": token}).status == 201


@pytest.mark.parametrize(("method", "path", "body", "status"), [
    ("GET", "/nothing", None, 404), ("POST", "/queues", {}, 405),
    ("GET", "/queues/NONE", None, 404), ("GET", "/messages/999999", None, 404),
    ("POST", "/queues/A/act", b"{", 400),
    ("POST", "/queues/A/act", {"do": "hold", "odd": 1}, 400), ("POST", "/queues/A/act", [1], 400),
    ("POST", "/queues/A/act", {"do": "explode", "all": True}, 400),
    ("POST", "/queues/A/messages", {"body": 1}, 400),
    ("POST", "/queues/A/messages", {"body_base64": "!"}, 400),
    ("POST", "/queues/A/messages", {"priority": 99}, 400),
    ("POST", "/queues/A/messages", {"properties": {"": ""}}, 422),
    ("POST", "/queues/A/messages", {"properties": 7}, 400),
    ("POST", "/queues/A/messages", {"delay_s": "x"}, 400),
    ("POST", "/queues/POISON/messages", {"body": "x"}, 400),
    ("POST", "/queues/A/get", {"count": -1}, 400), ("POST", "/deliveries/x", {"end": "done"}, 404),
    ("GET", "/queues/A/messages?where=%3D%3D", None, 400),
    ("GET", "/queues/A/messages?limit=0", None, 400),
    ("GET", "/queues/A/messages?after=99.1", None, 400)])
def test_errors_are_problem_documents(api: Api, method: str, path: str, body: Any, status: int
                                      ) -> None:
    answer = api.all.ask(method, path, body)
    assert answer.status == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert answer.json["status"] == status and answer.json["detail"]
    assert answer.json["title"] and answer.json["instance"].startswith("/api/v1/")


def test_the_document_names_every_route_and_no_other(api: Api) -> None:
    document = api.web.browser().get("/api/v1/openapi.json").json
    assert document["openapi"] == "3.1.0"
    ids = []
    for path, operations in document["paths"].items():
        named = set(re.findall(r"\{(\w+)\}", path))
        for method, operation in operations.items():
            ids.append(operation["operationId"])
            there = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert there == named, path
            real = re.sub(r"\{queue\}", "A", path)
            real = re.sub(r"\{\w+\}", "1", real)
            status = api.web.browser().ask(method.upper(), real).status
            assert status == (200 if operation["security"] == [] else 401), (method, path, status)
            assert operation["responses"].keys() > {"default"}
    assert len(ids) == len(set(ids))
    text = json.dumps(document)
    assert all(each.split("/")[-1] in document["components"]["schemas"]
               for each in re.findall(r'"\$ref": "([^"]+)"', text))
    from omq.cli.web.app import ROUTES

    served = {(each.method.lower(), re.sub(r":.*?\}(?=[/]|$)", "}", each.path))
              for each in ROUTES if each.path.startswith("/api/")}
    assert served == {(method, path) for path, operations in document["paths"].items()
                      for method in operations}
