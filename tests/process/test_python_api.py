"""The Python interface: ids that round-trip, replies, browsing, arguments that are wrong, help."""

from __future__ import annotations

import asyncio
import json
import math
import os
import pydoc
import signal
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import omq
import omq.aio
from omq.base import errors, form
from omq.cli import launch
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S, start

NAN, INF = math.nan, math.inf


def took(c: Client, queue: str = "A") -> omq.Message:
    """The next message, taken and finished; what it says can be read on."""
    with c.reader(queue) as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        assert message.body is not None
        message.done()
    return message


def test_a_request_and_its_reply(omq_instance: Instance) -> None:
    """`reply_to` can be read, and what `put` returned is the reply's correlation."""
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("serves") as server:
        for given in ("", "order-7", b"order-8", b"\x01\x02"):
            asked = c.put("A", b"how much?", reply_to="B", message_id=given)
            request = took(server)
            assert request.message_id == asked
            assert request.reply_to == "B"
            server.put(request.reply_to, b"7", correlation_id=request.message_id)
            reply = took(c, "B")
            assert reply.correlation == asked
            assert (reply.reply_to, request.correlation) == ("", "")


def test_properties_are_decoded_once_and_are_the_callers_own(
        omq_instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of a message that is set aside need not be read again; large ones are."""
    omq_instance.start()
    large = {"x": "y" * 5000}
    with omq_instance.connect() as c, c.reader("A") as reader:
        given = [c.put("A", b"1", properties={"color": "red"}), c.put("A", b"2", properties=large)]
        small, other = reader.next(2, timeout_s=WAIT_S)
        small.properties["color"] = "blue"
        assert (small.properties, small.message_id) == ({"color": "red"}, given[0])
        small.set_aside()
        other.set_aside()
        reads: list[int] = []
        whole = omq.Message._load

        def counted(message: omq.Message) -> bytes:
            reads.append(message.qpool_id)
            return whole(message)

        monkeypatch.setattr(omq.Message, "_load", counted)
        assert (small.properties, small.message_id) == ({"color": "red"}, given[0])
        assert not reads
        assert (other.properties, other.message_id, other.body) == (large, given[1], b"2")
        assert reads
        small.done()
        other.done()


@pytest.mark.parametrize(("given", "shown"), [
    ("order-7", "order-7"), (b"order-7", "order-7"), ("ä1", "c3a431" + "00" * 21),
    ("12", "3132" + "00" * 22), ("ab" * 24, "ab" * 24), (bytes(range(24)), bytes(range(24)).hex()),
])
def test_ids_are_the_same_everywhere(omq_instance: Instance, capfd: pytest.CaptureFixture[str],
                                     given: str | bytes, shown: str) -> None:
    """Text stays text; digits alone would be a QPoolId, so they do not."""
    omq_instance.start()
    where = ["--spool", str(omq_instance.root), "--conf", str(omq_instance.conf)]
    with omq_instance.connect() as c:
        c.put("A", b"another")
        assert c.put("A", b"x", message_id=given, correlation_id=given) == shown
        (row,) = [row for row in c.browse("A") if row.message_id == shown]
        assert (row.body, row.correlation) == (b"x", shown)
        for command in (["omqwhy", shown], ["omqlog", "--message", shown]):
            capfd.readouterr()
            assert launch.run(command[0], [*command[1:], *where]) == 0, capfd.readouterr()
            assert str(row.qpool_id) in capfd.readouterr().out


def test_what_put_returns_is_accepted(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        first = c.put("A", b"x")
        second = c.put("A", b"y", correlation_id=first)
        assert c.body(second) == b"y"
        assert [row.message_id for row in c.browse("A")] == [first, second]
        assert [row.correlation for row in c.browse("A")] == ["", first]


def test_browsing_says_all_of_a_message(omq_instance: Instance) -> None:
    omq_instance.start()
    large = b"l" * 300_000
    with omq_instance.connect() as c:
        c.put("A", b"body", properties={"customer": "42"}, priority=7, reply_to="B")
        c.put("A", large, priority="low")
        c.put("A", b"later", delay_s=1000, priority=0, persistent=False)
        one, two, three = c.browse("A")
        assert (one.body, one.properties, one.priority, one.reply_to) == (
            b"body", {"customer": "42"}, 7, "B")
        assert (one.state.name, one.size, one.attempts, one.defers) == ("READY", 4, 0, 0)
        assert one.persistent and one.queue == "A" and one.due_ns == 0
        assert two.body == large and two.message.item_ref.startswith("~/data/")
        assert (three.state.name, three.persistent) == ("DEFERRED", False)
        assert three.due_ns > three.put_time_ns
        assert three.body == b"later"
        assert [row.size for row in c.browse("A", limit=2)] == [4, 300_000]
        with pytest.raises(omq.UnknownQueue):
            c.browse("NOWHERE")


def test_a_browsed_message_that_is_gone_says_so(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"g" * 300_000)
        (row,) = c.browse("A")
        took(c)
        row.message.item_ref  # noqa: B018
        for path in (omq_instance.root / "data").rglob("*"):
            if path.is_file():
                path.unlink()
        with pytest.raises((omq.NoMessage, omq.BodyUnavailable, omq.BodyDamaged)):
            row.body  # noqa: B018


def test_browsing_streams(omq_instance: Instance) -> None:
    """No list of all is made first: the first row comes while thousands are left."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"%d" % i for i in range(9000)])
        rows = c.browse("A")
        assert next(rows).body == b"0"
        assert sum(1 for _ in rows) == 8999


class Iterated:
    """Something that can be iterated over once."""

    def __iter__(self) -> Any:
        return iter([b"1", omq.Outgoing(b"2"), bytearray(b"3")])


def test_many_may_come_from_anywhere(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        assert len(c.put_many("A", Iterated())) == 3
        assert len(c.put_many("A", (b"%d" % i for i in range(4, 6)))) == 2
        assert c.put_many("A", []) == []
    assert [m.body for m in omq_instance.drain("A")] == [b"1", b"2", b"3", b"4", b"5"]


WRONG: list[tuple[str, Callable[[Client], object]]] = [
    ("body", lambda c: c.put("A", "text")),  # type: ignore[arg-type]
    ("body", lambda c: c.put("A", 5, properties={"a": "b"})),  # type: ignore[arg-type]
    ("queue", lambda c: c.put(5, b"")),  # type: ignore[arg-type]
    ("queues", lambda c: c.put([5], b"")),  # type: ignore[list-item]
    ("queue", lambda c: c.put("a b", b"")),
    ("priority", lambda c: c.put("A", b"", priority=7.0)),  # type: ignore[arg-type]
    ("priority", lambda c: c.put("A", b"", priority=True)),
    ("priority", lambda c: c.put("A", b"", priority=10)),
    ("priority", lambda c: c.put("A", b"", priority="high")),
    ("persistent", lambda c: c.put("A", b"", persistent=1)),  # type: ignore[arg-type]
    ("delay_s", lambda c: c.put("A", b"", delay_s=NAN)),
    ("delay_s", lambda c: c.put("A", b"", delay_s=-1)),
    ("delay_s", lambda c: c.put("A", b"", delay_s=INF)),
    ("delay_s", lambda c: c.put("A", b"", delay_s="5")),  # type: ignore[arg-type]
    ("expiry_s", lambda c: c.put("A", b"", expiry_s=NAN)),
    ("at", lambda c: c.put("A", b"", at=5)),  # type: ignore[arg-type]
    ("at", lambda c: c.put("A", b"", at=datetime.max)),
    ("at", lambda c: c.put("A", b"", at=datetime.now(UTC), delay_s=1)),
    ("properties", lambda c: c.put("A", b"", properties=["a"])),  # type: ignore[arg-type]
    ("count", lambda c: c.put("A", b"", properties={"count": [5]})),  # type: ignore[dict-item]
    ("a b", lambda c: c.put("A", b"", properties={"a b": "c"})),
    ("count", lambda c: c.put_many("A", [omq.Outgoing(b"", properties={"count": None})])),
    ("properties", lambda c: c.put("A", b"", properties={5: "a"})),  # type: ignore[dict-item]
    ("correlation_id", lambda c: c.put("A", b"", correlation_id=b"x" * 25)),
    ("message_id", lambda c: c.put("A", b"", message_id="x" * 25)),
    ("message_id", lambda c: c.put("A", b"", message_id=5)),  # type: ignore[arg-type]
    ("queue", lambda c: c.put("A", b"", reply_to="no queue")),
    ("outgoing", lambda c: c.put("A", outgoing=b"x")),  # type: ignore[arg-type]
    ("Outgoing", lambda c: c.put("A", b"x", outgoing=omq.Outgoing(b"y"))),
    ("queues", lambda c: c.put([], b"")),
    ("group_id", lambda c: c.put("A", b"", group_id=3)),  # type: ignore[arg-type]
    ("group_sequence", lambda c: c.put("A", b"", group_id="g", group_sequence=-1)),
    ("unique_key", lambda c: c.put("A", b"", unique_key=3)),  # type: ignore[arg-type]
    ("pieces", lambda c: c.put_pieces("A", 7)),  # type: ignore[arg-type]
    ("outgoing", lambda c: c.put_pieces("A", [b"x"], 3)),  # type: ignore[arg-type]
    ("timeout_s", lambda c: c.request("A", b"", NAN)),
    ("reply_to", lambda c: c.request("A", b"", reply_to=5)),  # type: ignore[arg-type]
    ("queue", lambda c: c.group_reader(5)),  # type: ignore[arg-type]
    ("name", lambda c: c.queues.define(5)),  # type: ignore[arg-type]
    ("kind", lambda c: c.queues.define("Q", 5)),  # type: ignore[arg-type]
    ("max_depth", lambda c: c.queues.define("Q", max_depth=1.5)),  # type: ignore[arg-type]
    ("to", lambda c: c.queues.rename("A", 5)),  # type: ignore[arg-type]
    ("force", lambda c: c.queues.delete("A", force=5)),  # type: ignore[arg-type]
    ("model", lambda c: c.queues.temporary(5)),  # type: ignore[arg-type]
    ("n", lambda c: c.unit().next("A", 0)),
    ("timeout_s", lambda c: c._unit.next("A", 1, NAN)),  # type: ignore[union-attr]
    ("body", lambda c: c._unit.put("A", "x")),  # type: ignore[union-attr, arg-type]
    ("name", lambda c: c._unit.prepare(5)),  # type: ignore[union-attr, arg-type]
    ("messages", lambda c: c._unit.part_with([5], done=True)),  # type: ignore[union-attr, list-item]
    ("unit", lambda c: c.commit_unit(7)),  # type: ignore[arg-type]
    ("messages", lambda c: c.put_many("A", b"abc")),  # type: ignore[arg-type]
    ("messages", lambda c: c.put_many("A", 5)),  # type: ignore[arg-type]
    ("messages[1]", lambda c: c.put_many("A", [b"x", "y"])),  # type: ignore[list-item]
    ("queues", lambda c: omq.Outgoing(b"", queues="AB")),  # type: ignore[arg-type]
    ("body", lambda c: omq.Outgoing("text")),  # type: ignore[arg-type]
    ("priority", lambda c: omq.Outgoing(b"", priority=7.0)),  # type: ignore[arg-type]
    ("delay_s", lambda c: omq.Outgoing(b"", delay_s=NAN)),
    ("batch", lambda c: c.reader("A", batch=0)),
    ("batch", lambda c: c.reader("A", batch=1001)),
    ("batch", lambda c: c.reader("A", batch=1.5)),  # type: ignore[arg-type]
    ("auxiliary", lambda c: c.reader("A", auxiliary="no")),  # type: ignore[arg-type]
    ("ack", lambda c: c.reader("A", ack="sometimes")),
    ("queue", lambda c: c.reader(None)),  # type: ignore[arg-type]
    ("limit", lambda c: c.browse("A", limit=-1)),
    ("message", lambda c: c.body("order-7")),
    ("message", lambda c: c.body(0)),
    *(("message", lambda c, end=end: c.body(c._link.id_prefix + end))
      for end in ("x" * 16, "-" + "0" * 14 + "1", "0_" * 7 + "00", " " * 15 + "1")),
    ("timeout_s", lambda c: omq.connect(c.paths.root, timeout_s=NAN)),
    ("timeout_s", lambda c: omq.connect(c.paths.root, timeout_s=-1)),
    ("timeout_s", lambda c: omq.connect(c.paths.root, timeout_s="5")),  # type: ignore[arg-type]
    ("name", lambda c: omq.connect(c.paths.root, name=5)),  # type: ignore[arg-type]
    ("spool", lambda c: omq.connect(5)),  # type: ignore[arg-type]
]
OF_A_READER: list[tuple[str, Callable[[omq.Reader, omq.Message], object]]] = [
    ("n", lambda r, m: r.next(-1)),
    ("n", lambda r, m: r.next(2.5)),  # type: ignore[arg-type]
    ("timeout_s", lambda r, m: r.next(timeout_s=NAN)),
    ("timeout_s", lambda r, m: r.next(timeout_s=-0.1)),
    ("timeout_s", lambda r, m: r.next(timeout_s=INF)),
    ("seconds", lambda r, m: m.defer(NAN)),
    ("seconds", lambda r, m: m.defer(-1)),
    ("seconds", lambda r, m: m.defer(INF)),
    ("seconds", lambda r, m: m.defer("5")),  # type: ignore[arg-type]
    ("reason", lambda r, m: m.defer(1, reason=b"x")),  # type: ignore[arg-type]
    ("reason", lambda r, m: m.fail(5)),  # type: ignore[arg-type]
    ("delay_s", lambda r, m: m.fail("x", delay_s=-1)),
    ("delay_s", lambda r, m: m.fail("x", delay_s=NAN)),
    ("queues", lambda r, m: m.move(5)),  # type: ignore[arg-type]
    ("queue", lambda r, m: m.move("no queue")),
    ("new", lambda r, m: m.move("B", new=omq.Outgoing(b""))),  # type: ignore[arg-type]
    ("new", lambda r, m: m.move("B", new=[b"bytes"])),  # type: ignore[list-item]
    ("moves", lambda r, m: r.move_many(5)),  # type: ignore[arg-type]
    ("moves[0]", lambda r, m: r.move_many([5])),  # type: ignore[list-item]
    ("moves[1]", lambda r, m: r.move_many([(m, []), (m, [b"x"])])),  # type: ignore[list-item]
    ("properties", lambda r, m: m.reply(b"", properties=5)),  # type: ignore[arg-type]
    ("correlation", lambda r, m: r.next(correlation=5)),  # type: ignore[arg-type]
    ("row", lambda r, m: r.take(5)),  # type: ignore[arg-type]
]


def test_wrong_arguments_are_named(omq_instance: Instance) -> None:
    """Before anything happens: nothing was put, nothing was settled."""
    omq_instance.start()
    with omq_instance.connect() as c:
        for number, (name, call) in enumerate(WRONG):
            with pytest.raises(omq.OmqError) as caught:
                call(c)
            assert name in str(caught.value), (number, str(caught.value))
            assert caught.value.exit_code in (errors.Exit.USAGE, errors.Exit.DATA), number
            if c._unit is not None and c._unit.open and name == "messages":
                c._unit.backout()
        assert list(c.browse("A")) == []
        c.put("A", b"x", reply_to="B")
        with c.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            for number, (name, bad) in enumerate(OF_A_READER):
                with pytest.raises(omq.OmqError) as caught:
                    bad(reader, message)
                assert name in str(caught.value), (number, str(caught.value))
            message.done()
            for again in (message.done, message.release, lambda: message.move("B")):
                with pytest.raises(omq.LeaseLost):
                    again()


def test_one_reader_a_connection(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        first = c.reader("A")
        with pytest.raises(omq.BadRequest, match="one reader"):
            c.reader("A")
        first.close()
        c.reader("B").close()


# what is public


def test_what_omq_exports_is_there() -> None:
    for name in omq.__all__:
        assert getattr(omq, name) is not None
    with pytest.raises(AttributeError):
        omq.nothing_of_this_name  # noqa: B018
    raised = {name for name in omq.__all__ if isinstance(getattr(omq, name), type)
              and issubclass(getattr(omq, name), errors.OmqError)}
    assert {"OmqError", "BadArgument", "QueueFull", "LeaseLost", "TimedOut", "ConnectionBusy",
            "ConnectionForked", "ManagerUnavailable", "ShuttingDown"} <= raised


def test_help_shows_what_users_use(tmp_path: Path) -> None:
    shown = pydoc.plain(pydoc.render_doc(omq))
    for word in ("put_many", "browse", "reply_to", "flush", "ack:", "BadArgument"):
        assert word in shown, word
    for word in ("relocate", "with_bodies", "control(", "queue_number", "encode(", "_wire",
                 "put_plain"):
        assert word not in shown, word


LIKE_NOTHING: list[tuple[dict[str, Any], str]] = [
    ({"delay_s": None}, "delay_s"), ({"delay_s": ""}, "delay_s"), ({"at": 0}, "at"),
    ({"message_id": None}, "message_id"), ({"message_id": b"\0"}, "message_id"),
    ({"message_id": "\udc80"}, "message_id"), ({"correlation_id": 0}, "correlation_id"),
    ({"group_id": None}, "group_id"), ({"group_id": "\udc80"}, "group_id"),
    ({"reply_to": None}, "reply_to"), ({"properties": []}, "properties"),
    ({"properties": {"a": "\udc80"}}, "'a'"), ({"unique_key": "\udc80"}, "unique_key"),
    ({"unique_key": 0}, "unique_key"), ({"expiry_s": ""}, "expiry_s"),
    ({"unique_key": ""}, "unique_key"), ({"unique_key": b""}, "unique_key")]


def test_what_is_wrong_and_looks_like_nothing_is_named(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        for said, named in LIKE_NOTHING:
            with pytest.raises(omq.OmqError, match=named) as caught:
                c.put("A", b"x", **said)
            assert type(caught.value) in (omq.BadArgument, omq.BadProperty), said
        assert list(c.browse("A")) == []


def test_asyncio_names_the_same(omq_instance: Instance) -> None:
    omq_instance.start()

    async def run() -> None:
        async with omq.aio.connect(omq_instance.paths.root) as c:
            for said, named in LIKE_NOTHING:
                with pytest.raises(omq.OmqError, match=named):
                    await c.put("A", b"x", **said)

    asyncio.run(run())
    with omq_instance.connect() as c:
        assert list(c.browse("A")) == []


@pytest.mark.parametrize(("spool", "named"), [
    ("redis://localhost/0", "redis://localhost/0"), ("file:///var/lib/omq", "amqps://"),
    ("/" + "x" * 300, "File name too long"), ("/x" * 3000, "File name too long"),
    ("a\0b", "null byte")])
def test_what_can_be_no_spool_is_a_request_that_is_wrong(spool: str, named: str) -> None:
    with pytest.raises(omq.OmqError, match=named) as caught:
        omq.connect(spool)
    assert type(caught.value) in (omq.BadArgument, omq.BadRequest)


def test_a_name_of_a_unit_that_is_no_text_is_named(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        for end in (c.commit_unit, c.back_out_unit):
            with pytest.raises(omq.BadArgument, match="unit"):
                end("\udc80")
        with pytest.raises(omq.BadArgument, match="name"):
            c.unit().prepare("\udc80")


def test_what_a_prompt_shows_of_a_connection_and_a_message(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect("shop") as c:
        assert repr(c) == f"<omq.Connection 'shop' to {omq_instance.paths.root}>"
        assert type(c).__name__ == "Connection", "as the guide says"
        c.put("A", b"12345", priority=7)
        with c.reader("A") as reader:
            (message,) = reader.next(timeout_s=60)
            said = f"<omq.Message {message.qpool_id} of A: priority 7, 5 bytes, 0 failed attempts>"
            assert repr(message) == said
            message.done()
        assert repr(message) == said, "also when it is over"


def test_a_closed_connection_says_so_at_once(omq_instance: Instance) -> None:
    omq_instance.start()
    c = omq_instance.connect()
    c.put("A", b"x")
    c.close()
    for ask in (lambda: c.browse("A"), c.unit, lambda: c.put("A", b"x"), lambda: c.queues.list(),
                lambda: c.reader("A")):
        with pytest.raises(omq.ConnectionClosed):
            ask()


PUTS = 200


class Calls:
    """The functions of omq that this thread calls while it is looked at, by module and name."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def look(self, frame: Any, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and "/lib/omq/" in path:
            self.seen[f"{path.rpartition('/lib/omq/')[2]}:{frame.f_code.co_qualname}"] += 1

    def of_each_put(self) -> set[str]:
        """Those that every second put passes, or more."""
        return {name for name, count in self.seen.items() if count >= PUTS // 2}


@pytest.mark.skipif(form.build() is None, reason="no C compiler: apt-get install gcc python3-dev")
def test_a_plain_put_passes_few_functions(omq_instance: Instance) -> None:
    """Client and manager together, compiled, whose functions are not seen."""
    said, says = os.pipe()

    def watched() -> int:
        calls = Calls()

        def turn(*_: object) -> None:
            known = sys.getprofile() is not None
            sys.setprofile(None if known else calls.look)
            os.write(says, json.dumps(sorted(calls.of_each_put())).encode() + b"\n")

        signal.signal(signal.SIGUSR2, turn)
        return launch.run(MANAGER, ["--spool", str(omq_instance.root), "--conf",
                                    str(omq_instance.conf)])

    manager = omq_instance.children[MANAGER] = start(
        MANAGER, watched, output=omq_instance.output, environment={"OMQ_FAST": form.COMPILED})
    os.close(says)
    calls = Calls()
    with omq_instance.connect() as c, open(said, "rb") as lines:
        for _ in range(20):  # what is looked up once is known then
            c.put("A", b"x" * 100)
        manager.signal(signal.SIGUSR2)
        assert json.loads(lines.readline()) == []
        sys.setprofile(calls.look)
        for _ in range(PUTS):
            c.put("A", b"x" * 100)
        sys.setprofile(None)
        manager.signal(signal.SIGUSR2)
        passed = {*json.loads(lines.readline()), *calls.of_each_put()}
    assert {"ipc/client/connection.py:Connection.put", "storage/disk.py:Disk.fdatasync"} <= passed
    assert len({name.partition(":")[0] for name in passed}) <= 14, sorted(passed)
    assert len(passed) <= 40, sorted(passed)
