"""Messages by their ids, and requests that wait for their own replies."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import omq
from omq.base import events
from omq.core.index.view import IndexView
from omq.format import message as message_format
from omq.ipc.client import ids_asked as wish_module
from omq.ipc.client import message as message_module
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S, start
from tests.waiting import pause, until


def serve(instance: Instance, count: int, name: str = "serves") -> threading.Thread:
    """A server of A that answers so many requests with what they say, in capitals."""
    def run() -> None:
        with instance.connect(name) as c, c.reader("A") as reader:
            for _ in range(count):
                (message,) = reader.next(1, WAIT_S)
                assert message.reply(message.body.upper(), properties={"by": name})
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def left(c: Any, queue: str) -> list[bytes]:
    return [row.body for row in c.browse(queue)]


@pytest.mark.parametrize("persistent", [True, False])
def test_messages_are_taken_by_their_ids(omq_instance: Instance, persistent: bool) -> None:  # noqa: FBT001
    omq_instance.start()
    with omq_instance.connect() as c:
        own = c.put("A", b"own", persistent=persistent)
        c.put("A", b"named", message_id="order-7", persistent=persistent)
        for body, correlation in ((b"1", "x"), (b"2", own), (b"3", "x"), (b"4", b"\x01\x02")):
            c.put("A", body, correlation_id=correlation, persistent=persistent)
        c.put("A", b"5", correlation_id="x", priority=9, persistent=persistent)
        c.put("B", b"other", correlation_id="x")
        with c.reader("A") as reader:
            def got(**asked: Any) -> list[bytes]:
                messages = reader.next(10, 0, **asked)
                bodies = [message.body for message in messages]
                for message in messages:
                    message.done()
                return bodies
            assert got(message_id=own) == [b"own"]
            assert got(message_id=own) == []
            assert got(message_id="order-7") == [b"named"]
            assert got(message_id=b"order-7") == []
            assert got(correlation=own) == [b"2"]
            assert got(correlation=b"\x01\x02") == [b"4"]
            assert got(correlation="x") == [b"5", b"1", b"3"]
            assert got(correlation="x") == []
        assert left(c, "A") == []
        assert left(c, "B") == [b"other"]


@pytest.mark.parametrize(("asked", "error"), [
    ({"correlation": "x", "message_id": "y"}, omq.BadRequest),
    ({"correlation": ""}, omq.BadArgument), ({"correlation": b"\0\0"}, omq.BadArgument),
    ({"message_id": "x" * 25}, omq.BadArgument), ({"message_id": 7}, omq.BadArgument),
])
def test_ids_that_are_none(omq_instance: Instance, asked: dict[str, Any],
                           error: type[omq.OmqError]) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, c.reader("A") as reader:
        with pytest.raises(error) as told:
            reader.next(1, 0, **asked)
        if error is omq.BadArgument:
            assert next(iter(asked)) in str(told.value)
        own = c.put("A", b"x")
        with pytest.raises(omq.BadArgument):
            reader.next(1, 0, message_id=own[:-16] + "0" * 16)


def until_waiting(instance: Instance, *names: str) -> None:
    """Until readers with these names wait for messages."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with IndexView.attach(instance.paths) as view:
            waiting = {row.name for row in view.readers() if row.response_ns < row.request_ns}
        if waiting >= set(names):
            return
        assert time.monotonic() < deadline, waiting
        pause()


def reload(instance: Instance, queues: str) -> None:
    """Other rules of queues, in force when this returns."""
    before = len(instance.events(events.SERVICE_RELOADED.number))
    instance.queues(queues)
    instance.children[MANAGER].signal(signal.SIGHUP)
    until(lambda: len(instance.events(events.SERVICE_RELOADED.number)) > before)


class Asker:
    """A process that waits for one message, or for the reply to one request; what it got."""

    def __init__(self, instance: Instance, name: str, work: Callable[[Client], list[bytes]]
                 ) -> None:
        self._said = instance.root.parent / f"{name}.said"

        def run() -> int:
            with instance.connect(name) as c:
                self._said.write_bytes(b",".join(work(c)))
            return 0

        self._child = start(name, run, output=instance.output)

    def end(self) -> list[bytes]:
        assert self._child.wait() == 0
        said = self._said.read_bytes()
        return said.split(b",") if said else []


def asks(instance: Instance, name: str, timeout_s: float = WAIT_S, **asked: Any) -> Asker:
    """A reader of A that asks for one message by an id."""
    def take(c: Client) -> list[bytes]:
        out = []
        with c.reader("A") as reader:
            for message in reader.next(1, timeout_s, **asked):
                out.append(message.body)
                message.done()
        return out
    return Asker(instance, name, take)


def among_thirty(c: Any) -> None:
    messages = [omq.Outgoing(b"no") for _ in range(29)]
    c.put_many("A", [*messages[:13], omq.Outgoing(b"it", correlation_id="x"), *messages[13:]])


def by_move(c: Any) -> None:
    c.put("B", b"it", correlation_id="x")
    with c.reader("B") as reader:
        (message,) = reader.next(1, WAIT_S)
        message.move("A")


@pytest.mark.parametrize("put", [
    lambda c: c.put("A", b"it", correlation_id="x"), among_thirty, by_move,
    lambda c: c.put(["B", "A"], b"it", correlation_id="x"),
    lambda c: c.put("A", b"it", correlation_id="x", delay_s=0.01),
    lambda c: c.put("A", b"it", correlation_id="x", persistent=False),
], ids=["one", "many", "move", "several", "later", "loose"])
def test_the_arrival_wakes_who_waits(omq_instance: Instance, put: Callable[[Any], Any]) -> None:
    """And nobody else: a reader that takes whatever comes waits before, and does not get it."""
    omq_instance.start()
    omq_instance.ready()
    with omq_instance.connect() as c:
        c.put("A", b"another", correlation_id="y")
        asker = asks(omq_instance, "asks", correlation="x")
        until_waiting(omq_instance, "asks")
        put(c)
        assert asker.end() == [b"it"]
        assert b"another" in left(c, "A")
        assert b"it" not in left(c, "A")


def test_who_waits_for_one_message_does_not_wait_for_others(omq_instance: Instance) -> None:
    omq_instance.start()
    omq_instance.ready()
    with omq_instance.connect() as c, omq_instance.connect("takes") as takes:
        asker = asks(omq_instance, "asks", message_id="mine")
        until_waiting(omq_instance, "asks")
        for number in range(3):
            c.put("A", b"%d" % number, message_id=f"other-{number}")
        with takes.reader("A", batch=10) as reader:
            assert [m.body for m in reader.next(3, WAIT_S)] == [b"0", b"1", b"2"]
            c.put("A", b"mine", message_id="mine")
            assert asker.end() == [b"mine"]
        assert asks(omq_instance, "late", 0.0, message_id="mine").end() == []


def test_a_message_that_comes_back_wakes_who_waits(omq_instance: Instance) -> None:
    omq_instance.start()
    omq_instance.ready()
    with omq_instance.connect() as c:
        c.put("A", b"it", correlation_id="x")
        with c.reader("A") as reader:
            (message,) = reader.next(1, WAIT_S)
            asker = asks(omq_instance, "asks", correlation="x")
            until_waiting(omq_instance, "asks")
            message.release()
            reader.flush()
            assert asker.end() == [b"it"]


def test_an_inhibited_queue_keeps_them_until_it_is_allowed(omq_instance: Instance) -> None:
    omq_instance.start()
    omq_instance.ready()
    with omq_instance.connect() as c:
        reload(omq_instance, "[*]\n\n[A]\nget = inhibited\n\n[B]\n")
        asker = asks(omq_instance, "asks", correlation="x")
        until_waiting(omq_instance, "asks")
        c.put("A", b"it", correlation_id="x")
        assert asks(omq_instance, "vain", 0.0, correlation="x").end() == []
        reload(omq_instance, "[*]\n\n[A]\n\n[B]\n")
        assert asker.end() == [b"it"]


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_after_a_restart_they_are_found(omq_instance: Instance, ends: str) -> None:
    """The chains are made anew with the index; who waited asks the next manager."""
    omq_instance.start()
    with omq_instance.connect() as c:
        own = c.put("A", b"own")
        c.put("A", b"named", message_id="order-7")
        for number in range(50):
            c.put("A", b"%d" % number, correlation_id=f"c{number}")
        asker = asks(omq_instance, "asks", correlation="later")
        until_waiting(omq_instance, "asks")
        getattr(omq_instance, ends)()
        omq_instance.start()
        c.put("A", b"came", correlation_id="later")
        assert asker.end() == [b"came"]
        with c.reader("A") as reader:
            wishes: list[tuple[dict[str, Any], bytes]] = [
                ({"message_id": own}, b"own"), ({"message_id": "order-7"}, b"named"),
                ({"correlation": "c37"}, b"37")]
            for asked, body in wishes:
                (message,) = reader.next(1, 0, **asked)
                assert message.body == body
                message.done()
        assert len(left(c, "A")) == 49


def test_another_id_with_the_same_key_is_left_to_others(
        omq_instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can make two ids with one key confuses nobody."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"other", correlation_id="other")
        key = message_format.id_hash(b"other")
        monkeypatch.setattr(wish_module, "id_hash", lambda _: key)
        with c.reader("A") as reader:
            assert reader.next(1, 0, correlation="mine") == []
        (row,) = c.browse("A")
        assert (row.state.name, row.attempts, row.body) == ("DEFERRED", 0, b"other")


def test_what_was_fetched_ahead_can_be_asked_for(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        for number in range(5):
            c.put("A", b"%d" % number, message_id=f"m{number}")
        with c.reader("A", batch=5) as reader:
            first = next(iter(reader))
            (fourth,) = reader.next(1, 0, message_id="m3")
            assert (first.body, fourth.body) == (b"0", b"3")
            fourth.done()
            assert [m.body for m in reader.next(5, 0)] == [b"1", b"2", b"4"]


def test_requests_get_their_own_replies(omq_instance: Instance) -> None:
    """Many requesters, one reply queue."""
    omq_instance.start()
    omq_instance.ready()
    said: dict[str, list[bytes]] = {}

    def work(name: str) -> None:
        with omq_instance.connect(name) as c:
            said[name] = [c.request("A", f"{name}-{i}".encode(), WAIT_S, reply_to="B",
                                    persistent=i % 2 == 0).body for i in range(20)]

    servers = [serve(omq_instance, 40, name=f"server{i}") for i in range(2)]
    clients = [threading.Thread(target=work, args=(f"client{i}",)) for i in range(4)]
    for thread in clients:
        thread.start()
    for thread in (*clients, *servers):
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert said == {f"client{i}": [f"CLIENT{i}-{j}".encode() for j in range(20)] for i in range(4)}
    with omq_instance.connect() as c:
        assert left(c, "A") == left(c, "B") == []


@pytest.mark.parametrize("persistent", [True, False])
def test_what_a_reply_says(omq_instance: Instance, persistent: bool) -> None:  # noqa: FBT001
    omq_instance.start()
    omq_instance.ready()
    with omq_instance.connect() as c:
        server = serve(omq_instance, 1)
        length = 300_000 if persistent else 3
        reply = c.request("A", b"x" * length, WAIT_S, reply_to="B", priority=8,
                          persistent=persistent)
        server.join(WAIT_S)
        assert reply.body == b"X" * length
        assert (reply.priority, reply.persistent, dict(reply.properties)) == (
            8, persistent, {"by": "serves"})
        assert reply.message_id != reply.correlation
        with c.reader("A") as reader:  # the reader of the replies has made room
            assert reader.next(1, 0) == []
            with pytest.raises(omq.BadRequest, match="one reader"):
                c.request("A", b"y", reply_to="B")
        assert left(c, "B") == []


def test_nobody_answers(omq_instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("serves") as server:
        with pytest.raises(omq.NoReply, match="on queue A within 0"):
            c.request("A", b"x", 0.0, reply_to="B")
        with server.reader("A") as reader:
            assert reader.next(1, 0) == []  # nobody serves it: its time is over
            c.put("A", b"x", reply_to="B", expiry_s=1000)
            (message,) = reader.next(1, WAIT_S)
            later = time.time_ns() + 1001 * 10**9
            monkeypatch.setattr(message_module, "clock", SimpleNamespace(wall_ns=lambda: later))
            assert message.reply(b"too late") is False
            with pytest.raises(omq.LeaseLost):
                message.done()
        assert left(c, "A") == left(c, "B") == []
        with pytest.raises(omq.UnknownQueue):
            c.request("A", b"x")  # there is no queue REPLIES here
        with pytest.raises(omq.BadArgument):
            c.request("A", b"x", -1.0)


def test_a_reply_that_comes_too_late_stays_with_what_is_left_of_its_time(
        omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("serves") as server:
        asked = c.put("A", b"x", reply_to="B", expiry_s=1000)
        with server.reader("A") as reader:
            (message,) = reader.next(1, WAIT_S)
            assert message.reply(b"y")
        (row,) = c.browse("B")
        assert row.correlation == asked
        now = time.time_ns()
        assert now < row.row.message.expiry_ns <= now + 1000 * 10**9


def test_a_message_that_wants_no_reply(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"x")
        with c.reader("A") as reader:
            (message,) = reader.next(1, WAIT_S)
            with pytest.raises(omq.BadRequest, match="reply_to"):
                message.reply(b"y")
            message.done()


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_a_request_outlives_the_manager(omq_instance: Instance, ends: str) -> None:
    omq_instance.start()
    omq_instance.ready()
    asker = Asker(omq_instance, "asks", lambda c: [
        c.request("A", b"q", WAIT_S, reply_to="B").body])
    until_waiting(omq_instance, "asks")
    getattr(omq_instance, ends)()
    omq_instance.start()
    serve(omq_instance, 1).join(WAIT_S)
    assert asker.end() == [b"Q"]
    with omq_instance.connect() as c:
        assert left(c, "A") == left(c, "B") == []


def test_browsing_chooses(omq_instance: Instance) -> None:
    """And the message under the cursor can be taken, while others work."""
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("takes") as takes:
        for number in range(20):
            c.put("A", b"%d" % number, properties={"customer": str(number % 5)},
                  priority=number % 10, correlation_id="odd" if number % 2 else "")
        c.put("A", b"Subject: late\r\nX-Kind: a\r\n\r\nx" + b"x" * 300_000, priority=0,
              reply_to="B", persistent=True)

        def found(where: str, limit: int = 0) -> list[bytes]:
            return [row.body for row in c.browse("A", limit, where)]
        assert found("customer = '3' AND priority > 4") == [b"8", b"18"]
        assert found("customer = 3", limit=1) == [b"8"]
        assert found("correlation = 'odd' AND priority = 9") == [b"9", b"19"]
        assert found("NOT customer <> 3 AND priority < 4") == [b"3", b"13"]
        assert len(found("customer IS NULL AND subject = 'late' AND reply_to = 'B'")) == 1
        assert len(found("header:X-Kind = 'a' AND size > 300000 AND state = 'ready'")) == 1
        assert len(found("queues = 1 AND pid > 0 AND lsn > 0 AND replayed = FALSE AND age < 3600"
                         " AND retries = 0 AND attempts = 0 AND persistent = TRUE AND id LIKE '%'"
                         " AND timestamp > 0 AND JMSDeliveryMode = 'PERSISTENT' AND queue = 'A'"
                         " AND sender IS NOT NULL AND recipient IS NULL")) == 21
        with takes.reader("A") as reader:
            rows = c.browse("A", where="customer = 4")
            first = next(rows)
            assert first.body == b"9"
            (taken,) = reader.next(1, 0, message_id=first.message_id)
            taken.done()
            assert [row.body for row in rows] == [b"19", b"4", b"14"]
            assert reader.next(1, 0, message_id=first.message_id) == []
        for where, error in (("customer =", omq.BadSelector), ("size>1M", omq.BadSelector),
                             (5, omq.BadArgument)):
            with pytest.raises(error):
                c.browse("A", where=where)  # type: ignore[arg-type]
