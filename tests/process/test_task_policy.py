"""What functions of `omq worker` say of themselves: chains, results, errors, middleware."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omq
from omq import codec
from omq.base.errors import BadArgument
from omq.tasks.natives import Natives
from omq.tasks.results import Results
from omq.tasks.task import Again, Aside, Drop, Later, task
from omq.testing.instance import LiveInstance
from tests.process.ipc_space import ipc_space
from tests.process.processes import WAIT_S

MODULE = '''
from omq.tasks.task import task

@task(then="B")
def first(order):
    return {"id": order["id"], "steps": ["first"]}

@task(then="C")
def second(order):
    return order | {"steps": [*order["steps"], "second"]}

@task(reply=True)
def answer(question):
    return question["a"] + question["b"]
'''


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveInstance]:
    with ipc_space(), LiveInstance(tmp_path_factory.mktemp("live")) as made:
        yield made


@pytest.fixture
def live(started: LiveInstance) -> Iterator[LiveInstance]:
    for queue in ("A", "B", "C", "BAD", "REPLIES"):
        started.queues.define(queue, retry_delay_ms=60_000, attempts_max=5)
    yield started
    started.clean()


def put(live: LiveInstance, value: object, **more: Any) -> str:
    with live.connect() as c:
        return codec.put(c, "A", value, **more)


def raising(error: BaseException) -> Callable[[object], object]:
    def work(_: object) -> object:
        raise error
    return work


def test_a_chain_over_workers_that_are_killed(live: LiveInstance, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(MODULE)

    def worker(function: str, queue: str) -> Any:
        return live.run("omq", "worker", f"steps:{function}", "--queue", queue, "--path",
                        str(tmp_path))

    workers = [worker("first", "A"), worker("second", "B")]
    ids = [put(live, {"id": number}, properties={"customer": "42"}) for number in range(20)]
    workers[0].kill()
    live.kill_manager()
    workers.append(worker("first", "A"))
    found: dict[int, str] = {}
    with live.connect() as c, c.reader("C") as reader:
        while len(found) < 20:
            for message in reader.next(timeout_s=WAIT_S):
                order = codec.decode(message)
                assert order["steps"] == ["first", "second"]
                assert message.properties["customer"] == "42" and order["id"] not in found
                found[order["id"]] = message.correlation
                message.done()
    assert [found[number] for number in range(20)] == ids


def test_a_result_is_waited_for(live: LiveInstance, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(MODULE)
    live.run("omq", "worker", "steps:answer", "--queue", "A", "--path", str(tmp_path))
    with live.connect() as c:
        reply = c.request("A", json.dumps({"a": 3, "b": 4}).encode(), timeout_s=WAIT_S)
        assert json.loads(reply.body) == 7
        c.queues.alter("A", get="inhibited")
        with pytest.raises(omq.NoReply):
            c.request("A", b"{}", timeout_s=0.2)
    live.queues.alter("A", get="allowed")
    live.pass_time(1)
    assert live.drain("A") == live.drain("REPLIES") == []  # the question has expired


def test_a_result_that_nobody_fetches_expires(live: LiveInstance) -> None:
    """An answer is there for its questioner alone and for the question's time; what a backend of
    Celery or dramatiq keeps is there until its own expiry. Neither stays for ever."""
    natives = Natives(f"omq://{live.spool}", "test", WAIT_S)
    results = Results(natives, "RESULTS")
    results.set("kept", b"7", 3600.0)
    results.set("for ever", b"8", None)
    with live.connect() as c:
        c.put("A", b"1", reply_to="REPLIES", expiry_s=3600.0)
    assert [each.error for each in live.drain("A", task(reply=True)(lambda _: 7))] == [""]
    assert depths(live) == {"RESULTS": 2, "REPLIES": 1}
    live.pass_time(3599)
    assert depths(live) == {"RESULTS": 2, "REPLIES": 1}
    live.pass_time(2)
    assert depths(live) == {"RESULTS": 1}
    assert (results.get("kept"), results.get("for ever")) == (None, b"8")
    results.close()
    natives.close()


def depths(live: LiveInstance) -> dict[str, int]:
    return {each.name: each.messages for each in live.queues.list()
            if each.messages and each.kind == "local" and each.name != "IDEL"}


def test_errors_by_class(live: LiveInstance) -> None:
    policy = task(on={OSError: Again(5.0), TimeoutError: Later(7.0), ValueError: Aside("BAD"),
                      KeyError: Drop()})
    for error, waits_s, attempts in ((ConnectionError("x"), 5, 1), (TimeoutError("x"), 7, 0),
                                     (RuntimeError("x"), 60, 1)):
        put(live, 1)
        (taken,) = live.drain("A", policy(raising(error)))
        assert type(error).__name__ in taken.error
        live.pass_time(waits_s - 1)
        assert live.drain("A") == []
        live.pass_time(1)
        assert [each.attempts for each in live.drain("A")] == [attempts], error
    number = put(live, 1)
    live.drain("A", policy(raising(ValueError("bad"))))
    assert [each.message_id for each in live.drain("BAD")] == [number]
    put(live, 1)
    live.drain("A", policy(raising(KeyError("gone"))))
    live.pass_time(3600)
    assert live.drain("A") == []


def test_a_queue_that_refuses_what_follows_costs_no_attempt(live: LiveInstance) -> None:
    put(live, 1)
    (taken,) = live.drain("A", task(then="NOWHERE")(lambda value: value))
    assert "NOWHERE" in taken.error
    live.pass_time(5)
    (taken,) = live.drain("A", task(on={ValueError: Aside("NOWHERE")})(raising(ValueError("x"))))
    live.pass_time(60)
    (taken,) = live.drain("A", task(then="B")(lambda value: value + 1))
    assert (taken.error, taken.attempts) == ("", 1)
    assert [each.json for each in live.drain("B")] == [2]


class Around:
    """Middleware that writes down what it is told."""

    def __init__(self, name: str, said: list[str], bad: str = "") -> None:
        self.name, self.said, self.bad = name, said, bad

    def _note(self, what: str) -> None:
        self.said.append(f"{self.name} {what}")
        if what == self.bad:
            raise RuntimeError(f"{self.name} cannot")

    def before(self, message: omq.Message) -> None:
        assert message.message_id
        self._note("before")

    def after(self, message: omq.Message, result: object) -> None:
        assert result == 7
        self._note("after")

    def failed(self, message: omq.Message, error: BaseException) -> None:
        assert message.queue == "A" and error
        self._note("failed")


def test_middleware(live: LiveInstance) -> None:
    said: list[str] = []
    put(live, 7)
    live.drain("A", task(around=[Around("a", said), object(), Around("b", said)])(lambda v: v))
    assert said == ["a before", "b before", "b after", "a after"]
    for bad, wanted in (("before", ["a before", "a failed"]), ("after", [
            "a before", "a after", "a failed"]), ("failed", ["a before", "a failed"])):
        said.clear()
        put(live, 7)
        function = raising(RuntimeError("x")) if bad == "failed" else lambda v: v
        (taken,) = live.drain("A", task(around=[Around("a", said, bad)], then="B")(function))
        assert taken.error and said == wanted
        assert live.drain("B") == []
        live.pass_time(60)
        assert [each.attempts for each in live.drain("A")] == [1]


@pytest.mark.parametrize("keys", [
    {"on": {"ValueError": Drop()}}, {"on": {ValueError: "drop"}}, {"on": {ValueError: Again(-1)}},
    {"on": {ValueError: Later(float("nan"))}}, {"on": {ValueError: Aside("lower")}},
    {"then": "no queue"}, {"then": "B", "reply": True}])
def test_what_is_no_task(keys: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        task(**keys)


def test_a_result_that_cannot_be_written_is_the_functions_failure(live: LiveInstance) -> None:
    put(live, 1)
    (taken,) = live.drain("A", task(then="B")(lambda _: object()))
    assert "cannot write" in taken.error
    live.pass_time(60)
    assert [each.attempts for each in live.drain("A")] == [1]
