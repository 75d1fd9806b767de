"""The REST interface (REST.md) among users who mean no good, and what is taken and given back."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import pytest

from tests.process.operator_world import Instance
from tests.process.test_web_rest import Unix, client, unix
from tests.process.web_world import WAIT_S, Web, configure, console, world
from tests.waiting import until

QUEUES = "[*]\ndeath_delay_s = 0\nretry_delay_ms = 0\n\n[A]\n\n[B]\n\n[C]\n\n[SECRET]\n"
MEMORY = 16 << 20
LARGE = bytes(range(256)) * 2048
"""Half a MiB: no answer has it inline."""
_PROGRAM = """
import http.client, json, os, socket, sys
os.chdir(sys.argv[1]); os.setgroups([]); os.setresgid(1, 1, 1); os.setresuid(1, 1, 1)
def ask(method, path, body=None):
    line = http.client.HTTPConnection("localhost")
    line.sock = socket.socket(socket.AF_UNIX)
    line.sock.connect("web.sock")
    line.request(method, "/api/v1/" + path, body and json.dumps(body),
                 {"Content-Type": "application/json"})
    answer = line.getresponse()
    return answer.status, json.loads(answer.read() or "null")
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    made = Instance(tmp_path_factory.mktemp("trouble") / "spool")
    (made.conf / "queues.conf").write_text(QUEUES)
    configure(made, web_user_memory_bytes_max=MEMORY, web_user_deliveries_max=100)
    made.start()
    try:
        with console(made) as found:
            yield found
    finally:
        made.end()


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")


def as_daemon(web: Web, program: str) -> Any:
    """What a program of the account `daemon` prints as JSON."""
    needs_root()
    said = subprocess.run([sys.executable, "-c", _PROGRAM + program, str(web.instance.paths.run)],
                          capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def status(web: Web, path: str, body: bytes, kind: str = "text/plain", **headers: str) -> int:
    """Of the answer; what is refused before it was read is not sent to its end."""
    with closing(unix(web)) as line:
        with suppress(BrokenPipeError):
            line.request("POST", f"/api/v1/{path}", body, {"Content-Type": kind, **headers})
        return line.getresponse().status


def readers(line: Unix, queue: str) -> int:
    return len(line.ask("GET", f"queues/{queue}")[1]["readers"])


def test_a_reply_needs_the_right_to_put_where_it_goes(web: Web) -> None:
    """`daemon` may all on A and nothing on SECRET: a reply is no way around that."""
    assert as_daemon(web, """
told = [ask("POST", "queues/A/messages", {"body": "?", "reply_to": "SECRET"})[0]]
name = ask("POST", "queues/A/get", {"wait_s": 20})[1]["deliveries"][0]["delivery"]
said = {"end": "reply", "body": "x"}
told.append(ask("POST", "deliveries/" + name, said)[0])
told += [each["status"] for each in ask(
    "POST", "deliveries", {"settle": [{"delivery": name, **said}]})[1]["failed"]]
told.append(ask("POST", "deliveries/" + name)[0])
print(json.dumps(told))
""") == [201, 403, 403, 204]
    assert web.instance.on("SECRET") == []


def test_a_question_of_the_same_id_gets_nobody_elses_answer(web: Web) -> None:
    """Two accounts, one id: each is told what it was answered itself; of one account the last."""
    needs_root()

    def asks(queue: str) -> tuple[int, Any]:
        with client(web) as line:
            return line.ask("POST", f"queues/{queue}/request", {
                "body": "mine", "message_id": "same", "timeout_s": 20})

    program = """
print(json.dumps(ask("POST", "queues/B/request", {"body": "his", "message_id": "same",
                                                  "timeout_s": 20})))
"""
    with ThreadPoolExecutor(3) as threads, client(web) as line:
        mine = threads.submit(asks, "A")
        (first,) = line.take("A")
        his = threads.submit(as_daemon, web, program)
        (second,) = line.take("B")
        again = threads.submit(asks, "C")
        (third,) = line.take("C")
        for each, answer in ((first, "to root"), (second, "to daemon"), (third, "to root again")):
            assert line.ask("POST", f"deliveries/{each['delivery']}", {
                "end": "reply", "body": answer})[0] == 204
        status, told = his.result()
        assert (status, told["body"]) == (200, "to daemon")
        assert mine.result()[0] == 400 and "asked again" in mine.result()[1]["detail"]
        assert again.result()[0] == 200 and again.result()[1]["body"].startswith("to root")


def test_a_long_answer_goes_by_its_link(web: Web) -> None:
    with ThreadPoolExecutor(1) as threads, client(web) as line, client(web) as other:
        asking = threads.submit(other.ask, "POST", "queues/A/request",
                                {"body": "?", "timeout_s": 20})
        (each,) = line.take("A")
        with web.instance.connect() as native:
            reply_to = each["reply_to"]
            native.put(reply_to, LARGE, correlation_id=each["message_id"])
        assert line.ask("POST", f"deliveries/{each['delivery']}", {})[0] == 204
        status, told = asking.result()
        assert (status, told["body"], told["size"]) == (200, None, len(LARGE))
        assert line.ask("GET", told["body_url"].removeprefix("/api/v1/")) == (200, LARGE)
        assert line.ask("POST", f"deliveries/{told['delivery']}", {})[0] == 204
        assert line.ask("GET", told["body_url"].removeprefix("/api/v1/"))[0] == 404


def test_who_asked_and_is_gone_ends_nobodys_work(web: Web) -> None:
    """The queue for the reply went with its program: the message is read as any other."""
    with client(web) as line:
        with web.instance.connect() as native:
            gone = native.queues.temporary()
            native.put("B", b"?", reply_to=gone)
            native.put("A", b"held")
            native.queues.delete(gone)
        (held,) = line.take("A")
        (each,) = line.take("B")
        assert (each["body"], each["reply_to"], each["attempts"]) == ("?", "", 0)
        status, told = line.ask("POST", f"deliveries/{each['delivery']}",
                                {"end": "reply", "body": "x"})
        assert status >= 400 and told["omq_error"], told
        assert line.ask("POST", "deliveries", {"settle": [
            {"delivery": held["delivery"]}, {"delivery": each["delivery"]}]}) == (
                200, {"settled": 2, "failed": []})


def test_a_settlement_said_twice_is_told_the_same(web: Web) -> None:
    web.instance.put("A", b"1", b"2")
    with client(web) as line:
        first, second = line.take("A", 2)
        said = f"deliveries/{first['delivery']}"
        assert [line.ask("POST", said, {"end": "done"})[0] for _ in range(2)] == [204, 204]
        assert line.ask("POST", said, {"end": "fail"})[0] == 404, "that was not said before"
        for _ in range(2):
            assert line.ask("POST", "queues/A/get", {"done": [second["delivery"]]}) == (
                200, {"deliveries": [], "failed": []})
    assert web.instance.on("A") == []


def test_what_a_refused_get_has_settled_is_told(web: Web) -> None:
    """Of a get that finds no room the client must know what became of its settlements."""
    web.instance.put("A", *[b"x"] * 101)
    with client(web) as line:
        held = [each["delivery"] for each in line.take("A", 100)]
        status, told = line.ask("POST", "queues/A/get", {"done": ["unknown"]})
        assert (status, told["omq_error"], told["settled"]) == (503, "ConsoleBusy", 0)
        assert [each["delivery"] for each in told["failed"]] == ["unknown"]
        status, told = line.ask("POST", "queues/A/get", {"done": held})
        assert (status, told["failed"], len(told["deliveries"])) == (200, [], 1)
        assert line.ask("POST", f"deliveries/{told['deliveries'][0]['delivery']}", {})[0] == 204


def test_few_bytes_that_would_be_many_stay_few(web: Web) -> None:
    """A body is kept in the coding that it has; JSON and forms have none."""
    small = gzip.compress(bytes(64 << 20), 9)
    with client(web) as line:
        coded = {"Content-Encoding": "gzip", "Content-Type": "text/plain"}
        assert line.ask("POST", "queues/A/messages", small, **coded)[0] == 201
        (each,) = line.take("A")
        assert each["size"] == len(small)
        assert each["properties"]["amqp.content-encoding"] == "gzip"
        assert line.ask("POST", f"deliveries/{each['delivery']}", {})[0] == 204
    for path in ("queues/A/messages", "queues/A/get"):
        assert status(web, path, gzip.compress(b"{}"), "application/json",
                      **{"Content-Encoding": "gzip"}) == 415
    answer = web.browser().ask("POST", "/login", gzip.compress(b"user=daemon&password=x"), {
        "Content-Encoding": "gzip", "Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status != 200 or "daemon" not in answer.text


def test_what_waits_to_be_settled_and_read_is_reckoned(web: Web) -> None:
    """JSON with its objects, and pieces of bodies that somebody reads slowly."""
    web.instance.put("A", os.urandom(4 << 20))
    lines = [unix(web) for _ in range(40)]
    with client(web) as line:
        (each,) = line.take("A")
        try:
            for other in lines:
                other.request("GET", each["body_url"])
            until(lambda: status(web, "queues/B/messages", bytes(7 << 20)) == 503)
        finally:
            for other in lines:
                other.close()
        until(lambda: status(web, "queues/B/messages", bytes(7 << 20)) == 201)
        big = json.dumps({"body": "x" * (3 << 20)}).encode()
        waiting: list[Unix] = []

        def reckoned() -> bool:
            """Two whose JSON comes slowly: half of the memory each, if none was on its way back."""
            while waiting:
                waiting.pop().close()
            for _ in range(2):
                waiting.append(unix(web))
                waiting[-1].putrequest("POST", "/api/v1/queues/B/messages")
                waiting[-1].putheader("Content-Type", "application/json")
                waiting[-1].putheader("Content-Length", str(len(big)))
                waiting[-1].endheaders(b"{")
            return status(web, "queues/B/messages", bytes(5 << 20)) == 503

        try:
            until(reckoned)
        finally:
            for other in waiting:
                other.close()
        assert line.ask("POST", f"deliveries/{each['delivery']}", {})[0] == 204
    until(lambda: web.instance.on("A") == [])
    web.instance.bodies("B")


def test_a_stop_answers_who_waits(tmp_path: Any) -> None:
    with world(tmp_path) as found, closing(unix(found)) as waits, client(found) as line:
        waits.request("POST", "/api/v1/queues/A/get", b'{"wait_s": 20}',
                      {"Content-Type": "application/json"})
        until(lambda: readers(line, "A") == 1)
        found.child.send_signal(signal.SIGTERM)
        answer = waits.getresponse()
        assert (answer.status, json.loads(answer.read())) == (200, {"deliveries": []})


def test_work_that_is_cancelled_is_told_at_its_next_touch(web: Web) -> None:
    web.instance.put("A", b"long")
    browser = web.browser("games")
    with client(web) as line:
        (each,) = line.take("A")
        path = f"messages/{each['qpool_id']}"
        (told,) = line.ask("GET", f"{path}/progress")[1]["queues"]
        assert (told["progress"], told["time"]) == ("", None)
        delivery = f"deliveries/{each['delivery']}"
        assert line.ask("POST", delivery, {"end": "touch", "progress": "page <7>"})[0] == 204
        (told,) = line.ask("GET", f"{path}/progress")[1]["queues"]
        assert (told["queue"], told["progress"]) == ("A", "page <7>") and told["time"]
        assert "page &lt;7&gt;" in browser.get(f"/{path}").text
        assert line.ask("POST", "queues/A/act", {
            "do": "delete", "where": f"id={each['qpool_id']}", "force": True,
            "reason": "not wanted"})[1]["done"] == 1
        status, told = line.ask("POST", delivery, {"end": "touch"})
        assert (status, told["omq_error"]) == (410, "MessageCancelled")
        assert line.ask("POST", delivery, {"end": "touch"})[0] == 404
