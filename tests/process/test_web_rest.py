"""Queues over HTTP (REST.md): the Unix socket, lists, long polls, requests, and clients that mean
no good."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process.operator_world import Instance
from tests.process.processes import popen
from tests.process.web_world import WAIT_S, Web, configure, console, world
from tests.waiting import until

REST = (Path(__file__).resolve().parents[2] / "lib/omq/docs/REST.md").read_text(encoding="utf-8")
DAEMON = 1
"""uid of the account `daemon`, of every Debian."""
QUEUES = ("[*]\ndeath_delay_s = 0\nretry_delay_ms = 0\n\n[A]\n\n[B]\n\n[LOCAL]\n\n[ERROR]\n\n"
          "[ORDERS]\n\n[ONCE]\ndedupe_s = 3600\n\n[SMALL]\nmax_depth = 3\n")
POLLS = 400
NAMES = re.compile(r"\{(\w+)\}")


class Unix(http.client.HTTPConnection):
    """A connection to the socket, kept open."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WAIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(str(self._path))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """(status, JSON of the answer or its bytes)."""
        raw = isinstance(body, bytes)
        data = body if body is None or raw else json.dumps(body).encode()
        kind = {"Content-Type": "application/octet-stream" if raw else "application/json"}
        self.request(method, f"/api/v1/{path}", data, {**kind, **headers})
        answer = self.getresponse()
        text = answer.read()
        json_ = "json" in (answer.getheader("content-type") or "")
        return answer.status, json.loads(text) if json_ else text

    def take(self, queue: str, count: int = 1, wait_s: float = 20) -> list[dict[str, Any]]:
        status, told = self.ask("POST", f"queues/{queue}/get", {"count": count, "wait_s": wait_s})
        assert status == 200, told
        found: list[dict[str, Any]] = told["deliveries"]
        return found


def unix(web: Web) -> Unix:
    return Unix(web.instance.paths.web_socket)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    made = Instance(tmp_path_factory.mktemp("rest") / "spool")
    (made.conf / "queues.conf").write_text(QUEUES)
    configure(made, web_user_memory_bytes_max=16 << 20, web_user_polls_max=POLLS,
              web_request_timeout_s=30)
    with (made.conf / "authority.conf").open("a") as rights:
        rights.write("[REPLIES]\nuser:daemon = get\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # as the unit of omq-web has it
    made.start()
    try:
        with console(made) as found:
            yield found
    finally:
        made.end()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def client(web: Web) -> Iterator[Unix]:
    with closing(unix(web)) as line:
        yield line


def test_the_lines_of_the_document_run(web: Web, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is missing: apt-get install curl")
    lines = re.findall(r"^```console\n(.*?)^```$", REST, re.MULTILINE | re.DOTALL)[0]
    lines = lines.replace("/var/tmp/orders", str(web.instance.root))
    function = re.sub(r"alias omq-curl='(.*)'", r'omq_curl() { \1 "$@"; echo; }', lines)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    said = subprocess.run(["sh", "-euc", function.replace("omq-curl", "omq_curl")], cwd=tmp_path,
                          capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert said.returncode == 0, said
    taken = json.loads((tmp_path / "taken.json").read_text())["deliveries"]
    assert [each.get("body") for each in taken] == ["order 1", "order 2"]
    listed = json.loads(said.stdout.splitlines()[-2])["messages"]
    assert {each["state"] for each in listed} >= {"active"} and len(listed) == 3, listed
    with client(web) as line:  # what is left, and the other one
        assert line.ask("POST", f"deliveries/{taken[1]['delivery']}", {})[0] == 204
        left: dict[str, Any] = {}
        while len(left) < 2:
            for each in line.take("ORDERS"):
                left[each.get("body") or each["body_base64"]] = each
                assert line.ask("POST", f"deliveries/{each['delivery']}", {})[0] == 204
    assert set(left) == {"order 3", "iVBOR/8="}
    assert left["iVBOR/8="]["properties"] == {"amqp.content-type": "image/png"}
    assert left["iVBOR/8="]["priority"] == 2


def test_the_document_is_one(web: Web) -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason="openapi-spec-validator")
    with client(web) as line:
        status, document = line.ask("GET", "openapi.json")
        assert status == 200
        validator.validate(document)
        document["paths"]["/api/v1/queues"]["get"]["responses"] = {"200": {"odd": 1}}
        with pytest.raises(Exception, match="description"):
            validator.validate(document)


def test_answers_are_as_the_document_says(web: Web) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema")
    with client(web) as line:
        paths = line.ask("GET", "openapi.json")[1]["paths"]

        def answers(method: str, path: str, body: Any = None, **names: str) -> Any:
            real = NAMES.sub(lambda found: names[found[1]], path)
            status, told = line.ask(method, real, body)
            rule = paths[f"/api/v1/{path}"][method.lower()]
            if body is not None:
                jsonschema.validate(
                    body, rule["requestBody"]["content"]["application/json"]["schema"])
            content = rule["responses"][str(status)].get("content")
            if content is not None:
                jsonschema.validate(told, content["application/json"]["schema"])
            return told

        answers("POST", "queues/{queue}/messages", {"body": "x", "properties": {"n": 1}}, queue="B")
        answers("POST", "queues/{queue}/messages", {"messages": [{"body": "y"}]}, queue="B")
        got = answers("POST", "queues/{queue}/get", {"count": 2, "wait_s": 20}, queue="B")
        names = [each["delivery"] for each in got["deliveries"]]
        told = answers("POST", "deliveries", {"settle": [
            {"delivery": names[0]}, {"delivery": "none", "end": "fail"}]})
        assert told["settled"] == 1 and told["failed"][0]["omq_error"] == "DeliveryUnknown"
        answers("POST", "deliveries/{delivery}", {"end": "done"}, delivery=names[1])
        answers("GET", "queues")


def test_the_same_request_asked_twice_is_put_once(web: Web) -> None:
    with client(web) as line:
        first = line.ask("POST", "queues/ONCE/messages", {"body": "pay 7"},
                         **{"Idempotency-Key": "invoice-7"})
        again = line.ask("POST", "queues/ONCE/messages", {"body": "pay 7"},
                         **{"Idempotency-Key": "invoice-7"})
        assert first == again == (201, {"message_id": "invoice-7"})
        raw = [line.ask("POST", "queues/ONCE/messages", b"raw", **{"Idempotency-Key": '"r-1"'})
               for _ in range(2)]
        assert raw == [(201, {"message_id": "r-1"})] * 2
        both = {"messages": [{"body": "1"}, {"body": "2"}]}
        lists = [line.ask("POST", "queues/ONCE/messages", both, **{"Idempotency-Key": "list"})
                 for _ in range(2)]
        assert lists == [(201, {"message_ids": ["list/0", "list/1"]})] * 2
        nobody = line.ask("POST", "queues/A/messages", {"body": "x", "unique_key": "k"})
        assert nobody[0] == 422 and nobody[1]["omq_error"] == "NoDeduplication"
    assert web.instance.bodies("ONCE") == [b"pay 7", b"raw", b"1", b"2"]


@pytest.mark.parametrize("odd", [{}, {"delay_s": 3600}, {"body": "x" * 200_000}])
def test_a_list_is_put_all_or_none(web: Web, odd: dict[str, Any]) -> None:
    with client(web) as line:
        some = [{"body": str(each)} for each in range(4)]
        some[1] |= odd
        status, told = line.ask("POST", "queues/SMALL/messages", {"messages": some})
        assert (status, told["omq_error"]) == (503, "QueueFull"), told
        assert web.instance.on("SMALL") == []
        status, told = line.ask("POST", "queues/SMALL/messages", {"messages": some[:3]})
        assert status == 201 and len(set(told["message_ids"])) == 3
    assert len(web.instance.on("SMALL")) == 3
    with web.instance.connect() as native:
        native.queues.clear("SMALL")


def test_what_is_touched_stays_and_what_is_not_has_failed(tmp_path: Path) -> None:
    with world(tmp_path, web_hold_s=3) as web, client(web) as line:
        web.instance.put("A", b"1", b"2")
        first, second = line.take("A", 2)
        until_s = time.monotonic() + 4  # more than web_hold_s
        came: list[dict[str, Any]] = []
        while time.monotonic() < until_s or not came:
            assert line.ask("POST", f"deliveries/{first['delivery']}", {"end": "touch"})[0] == 204
            came += line.take("A", 1, wait_s=0.2)
        assert came[0]["qpool_id"] == second["qpool_id"] and came[0]["attempts"] >= 1
        assert line.ask("POST", f"deliveries/{second['delivery']}", {})[0] == 404
        assert line.ask("POST", f"deliveries/{first['delivery']}", {})[0] == 204
        until(lambda: web.instance.bodies("A") == [b"2"])


def test_many_wait_and_each_message_goes_to_one_account_has_its_share(web: Web) -> None:
    """Hundreds of long polls, one reader, no message twice and none lost; one more is refused."""
    lines = [unix(web) for _ in range(POLLS)]

    def polls(line: Unix) -> None:
        line.request("POST", "/api/v1/queues/B/get", b'{"wait_s": 20}',
                     {"Content-Type": "application/json"})

    def answered(line: Unix) -> list[Any]:
        """The deliveries of a poll; without any it asks again: its 20 s were over, or it came last
        while the poll that looks for the limit had its place (503)."""
        answer = line.getresponse()
        told = json.loads(answer.read())
        assert answer.status == 200 or (
            answer.status == 503 and "web_user_polls_max" in told["detail"])
        found: list[Any] = told.get("deliveries", [])
        if not found:
            polls(line)
        return found

    try:
        for line in lines:
            polls(line)
        with client(web) as other:
            until(lambda: [each["readers"] for each in other.ask("GET", "queues")[1]["queues"]
                           if each["queue"] == "B"] == [1])

            def refused() -> bool:
                for line in lines:
                    if select.select([line.sock], [], [], 0)[0]:
                        assert not answered(line)
                status, told = other.ask("POST", "queues/B/get", {"wait_s": 0})
                return status == 503 and "web_user_polls_max" in told["detail"]

            until(refused)  # all are there
            body = {"messages": [{"body": str(each)} for each in range(POLLS)]}
            assert other.ask("POST", "queues/B/messages", body)[0] == 201
        got = []
        for line in lines:
            while not (found := answered(line)):
                pass
            (each,) = found
            got.append(each)
        assert sorted(int(each["body"]) for each in got) == list(range(POLLS))
        names = [{"delivery": each["delivery"]} for each in got]
        assert lines[0].ask("POST", "deliveries", {"settle": names}) == (
            200, {"settled": POLLS, "failed": []})
    finally:
        for line in lines:
            line.close()
    assert web.instance.on("B") == []


def test_a_taker_that_goes_gets_nothing(web: Web) -> None:
    line = unix(web)
    line.request("POST", "/api/v1/queues/LOCAL/get", b'{"wait_s": 20}',
                 {"Content-Type": "application/json"})
    with client(web) as other:
        until(lambda: [each["readers"] for each in other.ask("GET", "queues")[1]["queues"]
                       if each["queue"] == "LOCAL"] == [1])
        line.close()
        until(lambda: other.ask("GET", "queues")[0] == 200)
        web.instance.put("LOCAL", b"stays")
        (each,) = other.take("LOCAL")
        assert (each["body"], each["attempts"]) == ("stays", 0)
        assert other.ask("POST", f"deliveries/{each['delivery']}", {})[0] == 204


def test_a_request_is_answered_over_http(web: Web) -> None:
    def asks(number: int) -> tuple[int, Any]:
        with client(web) as line:
            return line.ask("POST", "queues/A/request", {"body": f"question {number}",
                                                         "timeout_s": 20})

    with ThreadPoolExecutor(8) as threads, client(web) as line:
        asked = [threads.submit(asks, number) for number in range(8)]
        answered = 0
        while answered < 8:
            for each in line.take("A", 8):
                said = {"end": "reply", "body": each["body"].replace("question", "answer"),
                        "properties": {"by": "http"}}
                assert line.ask("POST", f"deliveries/{each['delivery']}", said)[0] == 204
                answered += 1
        for number, future in enumerate(asked):
            status, told = future.result()
            assert (status, told["body"]) == (200, f"answer {number}"), told
            assert told["properties"] == {"by": "http"}
        status, told = line.ask("POST", "queues/A/request", {"body": "?", "timeout_s": 0.2})
        assert (status, told["omq_error"]) == (504, "NoReply")
        no = line.ask("POST", "queues/A/request", {"body": "?", "reply_to": "B"})
        assert no[0] == 400
    until(lambda: web.instance.on("A") == [])  # what nobody answered has expired


def test_a_large_body_goes_by_its_link(web: Web) -> None:
    body = os.urandom(3 << 20)
    with client(web) as line:
        assert line.ask("POST", "queues/A/messages", body)[0] == 201
        (each,) = line.take("A")
        assert each["body"] is None and each["size"] == len(body)
        path = each["body_url"].removeprefix("/api/v1/")
        assert line.ask("GET", path) == (200, body)
        assert line.ask("POST", path.removesuffix("/body"), {})[0] == 204
        assert line.ask("GET", path)[0] == 404


def test_huge_bodies_are_refused_before_they_are_read(web: Web) -> None:
    with client(web) as line:
        line.putrequest("POST", "/api/v1/queues/A/messages")
        line.putheader("Content-Length", str(1 << 40))
        line.endheaders()
        answer = line.getresponse()
        assert answer.status == 413, answer.read()
    lines = [unix(web) for _ in range(6)]  # more than web_user_memory_bytes_max at once
    try:
        for line in lines:
            line.putrequest("POST", "/api/v1/queues/A/messages")
            line.putheader("Content-Length", str(7 << 20))
            line.endheaders(b"begins")
        found = []
        for line in lines[2:]:
            answer = line.getresponse()
            found.append((answer.status, b"web_user_memory" in answer.read()))
        assert found == [(503, True)] * 4
    finally:
        for line in lines:
            line.close()
    with client(web) as line:  # what they had is given back
        until(lambda: line.ask("POST", "queues/A/messages", bytes(7 << 20))[0] == 201)
    assert web.instance.bodies("A") == [bytes(7 << 20)]


def test_a_form_of_a_stranger_is_small(web: Web) -> None:
    line = http.client.HTTPConnection(web.host, web.port, timeout=WAIT_S)
    with closing(line):
        line.putrequest("POST", "/login")
        line.putheader("Content-Length", str(2 << 20))
        line.endheaders()
        assert line.getresponse().status == 413


def test_who_still_sends_is_told_of_the_refusal(web: Web) -> None:
    """Its body goes nowhere, and its connection is as good as before."""
    line = http.client.HTTPConnection(web.host, web.port, timeout=WAIT_S)
    with closing(line):
        line.putrequest("POST", "/login")
        line.putheader("Content-Length", str(2 << 20))
        line.endheaders()
        assert select.select([line.sock], [], [], WAIT_S)[0], "the refusal is here"
        line.send(bytes(2 << 20))
        with closing(line.getresponse()) as answer:
            assert answer.status == 413
            answer.read()
        line.request("GET", "/login")
        assert line.getresponse().status == 200


def test_rights_over_the_socket_are_those_of_the_account(web: Web) -> None:
    """`daemon` may all on A, put on B, nothing on ORDERS; the kernel says that it is him."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    program = """
import http.client, json, os, socket, sys
os.chdir(sys.argv[1]); os.setgroups([]); os.setresgid(1, 1, 1); os.setresuid(1, 1, 1)
def ask(method, path, body=None, **headers):
    line = http.client.HTTPConnection("localhost")
    line.sock = socket.socket(socket.AF_UNIX)
    line.sock.connect("web.sock")
    line.request(method, "/api/v1/" + path, body, {"Content-Type": "application/json", **headers})
    return line.getresponse().status
print(json.dumps([
    ask("POST", "queues/A/messages", '{"body": "of daemon"}'),
    ask("POST", "queues/B/get", "{}"), ask("POST", "queues/ORDERS/messages", '{"body": "x"}'),
    ask("GET", "queues/A/messages"), ask("GET", "queues/B/messages"),
    ask("PUT", "queues/NEW", '{"reason": "x"}'),
    ask("GET", "queues", None, Authorization="Bearer wrong")]))
"""
    said = subprocess.run([sys.executable, "-c", program, str(web.instance.paths.run)],
                          capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == [201, 403, 403, 200, 403, 403, 401]
    assert web.instance.bodies("A") == [b"of daemon"]


@pytest.mark.parametrize(("path", "body"), [
    ("queues/A/messages", b'{"body": "\\ud800"}'), ("queues/A/messages", b'{"priority": NaN}'),
    ("queues/A/messages", b'{"properties": {"n": ' + b"9" * 5000 + b"}}"),
    ("queues/A/messages", b'{"delay_s": 1e999}'), ("queues/A/messages", b"[" * 100_000),
    ("queues/A/messages", b'{"messages": []}'), ("queues/A/messages", b'{"messages": [7]}'),
    ("queues/A/messages?delay_s=nan", b"{}"), ("queues/A/messages?odd=1", b""),
    ("queues/A/get", b'{"count": 0}'), ("queues/A/get", b'{"count": 1001}'),
    ("queues/A/get", b'{"wait_s": -1}'),
    ("queues/A/get", b'{"done": [[]]}'), ("deliveries", b'{"settle": [{"end": "eat"}]}'),
    ("deliveries", b'{"settle": {}}'), ("queues/A/request", b'{"timeout_s": 21}')])
def test_odd_requests_are_refused(web: Web, path: str, body: bytes) -> None:
    with client(web) as line:
        kind = "text/plain" if "?" in path else "application/json"
        status, told = line.ask("POST", path, body, **{"Content-Type": kind})
        assert status == 400 and told["detail"], told
    assert web.instance.on("A") == []


def test_what_is_odd_is_named(web: Web) -> None:
    with client(web) as line:
        for method, path, body, status, said in (
                ("POST", "queues/A/messages", b'{"bdy": "x"}', 400, "'bdy' is not one of them"),
                ("POST", "queues/A/get", b'{"cuont": 1}', 400, "'cuont' is not one of them"),
                ("POST", "queues/A/message", b"{}", 404, "openapi.json lists those"),
                ("PUT", "queues/A/messages", b"{}", 405, "PUT is not for this path: GET, ")):
            got, told = line.ask(method, path, body, **{"Content-Type": "application/json"})
            assert (got, said in told["detail"]) == (status, True), told


def test_pages_are_not_served_at_the_socket(web: Web) -> None:
    with client(web) as line:
        line.request("GET", "/")
        assert line.getresponse().status == 303  # to the login: nobody is known there


def test_a_slow_reader_is_cut(tmp_path: Path) -> None:
    with world(tmp_path, web_request_timeout_s=1, web_hold_s=600) as found, client(found) as line:
        found.instance.put("A", os.urandom(7 << 20))
        (each,) = line.take("A")
        slow = socket.socket(socket.AF_UNIX)
        with closing(slow):
            slow.connect(str(found.instance.paths.web_socket))
            slow.sendall(f"GET {each['body_url']} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            slow.settimeout(WAIT_S)
            got = slow.recv(1000)
            assert got.startswith(b"HTTP/1.1 200")
            until(lambda: _cut(slow))
        assert line.ask("POST", f"deliveries/{each['delivery']}", {})[0] == 204


def _cut(line: socket.socket) -> bool:
    """Whether the other end is gone: what is written fails; nothing is read."""
    try:
        line.send(b"x", socket.MSG_NOSIGNAL)
    except OSError:
        return True
    return False


def test_the_manager_is_killed_and_the_web_stops(tmp_path: Path) -> None:
    with world(tmp_path, web_hold_s=600) as found:
        instance = found.instance
        with client(found) as line, client(found) as waits:
            instance.put("A", b"held", b"goes on")
            held = line.take("A")
            waits.request("POST", "/api/v1/queues/B/get", b'{"wait_s": 20}',
                          {"Content-Type": "application/json"})
            until(lambda: [each["readers"] for each in line.ask("GET", "queues")[1]["queues"]
                           if each["queue"] == "B"] == [1])  # before that a poll is refused
            instance.kill()
            instance.start()
            status, told = line.ask("POST", "queues/B/messages", {"body": "after"})
            assert status == 201, told
            answer = waits.getresponse()
            (came,) = json.loads(answer.read())["deliveries"]
            assert came["body"] == "after"
            assert line.ask("POST", f"deliveries/{held[0]['delivery']}", {})[0] == 204
            (second,) = line.take("A")
            assert second["body"] == "goes on"
    with found.instance.connect() if _running(found) else closing(_started(found)) as native:
        rows = {row.body: row.attempts for row in native.browse("A")}
        assert rows == {b"goes on": 0}, "a stop in order gives back untouched"
    found.instance.end()


def _running(found: Web) -> bool:
    return found.instance.manager is not None and found.instance.manager.poll() is None


def _started(found: Web) -> Any:
    found.instance.start()
    return found.instance.connect()


def test_a_killed_web_costs_an_attempt_of_what_was_in_hand(tmp_path: Path) -> None:
    made = Instance(tmp_path / "spool")
    configure(made)
    made.start()
    child = popen("omq-web", made.arguments)
    try:
        until(lambda: (made.paths.run / "web.port").exists())
        with closing(Unix(made.paths.web_socket)) as line:
            made.put("A", b"in hand")
            line.take("A")
            child.kill()
            child.wait(WAIT_S)
        with made.connect() as native:
            until(lambda: [row.attempts for row in native.browse("A")] == [1])
        with console(made) as again, client(again) as line:  # beside the socket that was left
            assert line.take("A")[0]["body"] == "in hand"
    finally:
        child.kill()
        child.wait(WAIT_S)
        made.end()
