"""The Python API over AMQP, omq.connect("amqp://..."), beside native programs on its queues."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import omq
from tests.process.amqp_world import PASSWORD, SERVER, AmqpWorld, amqp_world, needs_proton

needs_proton()

from omq.base.errors import NotRemote, RemoteLost, RemoteRefused  # noqa: E402
from omq.ipc.client.connection import Client  # noqa: E402
from omq.ipc.client.remote.line import _Wait  # noqa: E402
from omq.ipc.client.remote.url import parse  # noqa: E402

WAIT_S = 120


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    with amqp_world(tmp_path_factory.mktemp("amqp")) as made:
        with made.connect() as native:
            native.queues.define("REPLIES")
        yield made


@pytest.fixture
def world(instance: AmqpWorld) -> Iterator[AmqpWorld]:
    yield instance
    instance.clear("A", "B")
    assert not instance.events(1007), instance.events(1007)


@pytest.fixture
def remote(world: AmqpWorld) -> Iterator[Client]:
    with omq.connect(f"amqp://{world.url}/", name="far", timeout_s=WAIT_S) as made:
        yield made


def test_put_says_what_a_native_put_says(world: AmqpWorld, remote: Client) -> None:
    given = remote.put("A", b"body", priority=7, properties={"k": "v"}, correlation_id="c",
                       reply_to="B", expiry_s=600, group_id="g")
    own = remote.put("A", b"", message_id="mine", persistent=False)
    with world.connect() as native:
        first, second = native.browse("A")
        assert (first.body, first.priority, first.properties) == (b"body", 7, {"k": "v"})
        assert (first.message_id, first.correlation, first.reply_to) == (given, "c", "B")
        assert first.persistent and first.expiry_ns and first.group_id == "g"
        assert (second.message_id, own, second.persistent) == ("mine", "mine", False)


def test_put_many_and_several_queues(world: AmqpWorld, remote: Client) -> None:
    ids = remote.put_many("A", (b"%d" % n for n in range(250)))
    assert len(set(ids)) == 250
    remote.put(["A", "B"], b"both")
    remote.put_pieces("B", iter([b"in ", b"pieces"]))
    assert [m.body for m in world.left("A")] == [*(b"%d" % n for n in range(250)), b"both"]
    assert [m.body for m in world.left("B")] == [b"both", b"in pieces"]


def test_put_on_several_queues_is_all_or_nothing(world: AmqpWorld, remote: Client) -> None:
    with pytest.raises(omq.UnknownQueue):
        remote.put(["A", "NOSUCH"], b"x")
    assert world.left("A") == []
    remote.put("A", b"the connection is as good as before")


def test_delays(world: AmqpWorld, remote: Client) -> None:
    """Also at a time."""
    remote.put("A", b"later", delay_s=3600)
    remote.put("A", b"then", at=datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2))
    with world.connect() as native:
        due = [row.due_ns for row in native.browse("A")]
        assert 3000 < (due[1] - due[0]) / 1e9 < 4000
        native.queues.clear("A")


@pytest.mark.parametrize("ack", ["prompt", "batch"])
def test_reading_and_how_it_ends(world: AmqpWorld, remote: Client, ack: str) -> None:
    with world.connect() as native:
        native.put_many("A", [b"done", b"failed", b"released", b"held"])
    with remote.reader("A", batch=4, ack=ack) as reader:
        found: list[omq.Message] = []
        while len(found) < 4:
            found += reader.next(4, timeout_s=WAIT_S)
        assert [each.body for each in found] == [b"done", b"failed", b"released", b"held"]
        found[0].done()
        found[1].fail("it cannot be")
        found[2].release()
        with pytest.raises(omq.LeaseLost):
            found[0].done()
        reader.flush()
        with world.connect() as native:
            assert native.queues.show("A").messages == 3
    with world.connect() as native:
        assert {row.body: row.attempts for row in native.browse("A")} == {
            b"failed": 1, b"released": 0, b"held": 0}


def test_an_exception_fails_the_message_in_hand(world: AmqpWorld, remote: Client) -> None:
    remote.put_many("A", [b"1", b"2"])
    with pytest.raises(ValueError), remote.reader("A", batch=2) as reader:
        for _ in reader:
            raise ValueError
    with world.connect() as native:
        assert {row.body: row.attempts for row in native.browse("A")} == {b"1": 1, b"2": 0}


def test_what_is_there_now(remote: Client) -> None:
    with remote.reader("A", batch=5) as reader:
        assert reader.next(5, timeout_s=0) == []
        remote.put_many("A", [b"1", b"2"])
        bodies = []
        for message in reader.next(5, timeout_s=0):
            bodies.append(message.body)
            message.done()
        assert bodies == [b"1", b"2"] and reader.next(timeout_s=0.01) == []
        threading.Timer(0, reader.interrupt).start()
        assert reader.next() == []


def test_selectors_and_browsing(remote: Client) -> None:
    for n in range(150):
        remote.put("A", b"%d" % n, properties={"odd": str(n % 2)})
    assert [row.body for row in remote.browse("A")] == [b"%d" % n for n in range(150)]
    assert [row.body for row in remote.browse("A", 2, where="odd = '1'")] == [b"1", b"3"]
    with remote.reader("A", where="odd = '1'") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        assert message.body == b"1"
        message.done()
    with pytest.raises(RemoteRefused, match="invalid-field"):
        remote.reader("A", where="odd = =")


@pytest.mark.parametrize("reply_to", ["REPLIES", ""])
def test_request_and_reply(world: AmqpWorld, remote: Client, reply_to: str) -> None:
    def serve() -> None:
        url = f"amqp://{world.url}/"
        with omq.connect(url, timeout_s=WAIT_S) as server, server.reader("A") as reader:
            (request,) = reader.next(timeout_s=WAIT_S)
            request.reply(b"that: " + request.body)

    thread = threading.Thread(target=serve)
    thread.start()
    reply = remote.request("A", b"what?", timeout_s=WAIT_S, reply_to=reply_to)
    thread.join()
    assert reply.body == b"that: what?"
    with pytest.raises(omq.NoReply):
        remote.request("B", b"nobody", timeout_s=0.1, reply_to=reply_to)


def test_units(world: AmqpWorld, remote: Client) -> None:
    remote.put_many("A", [b"1", b"2"])
    with remote.unit() as unit:
        order = unit.get("A", timeout_s=WAIT_S)
        assert order is not None
        unit.put("B", b"of " + order.body)
        with pytest.raises(omq.MessageInUnit):
            order.done()
        assert world.left("B") == []
    assert len(unit.ids) == 1
    with pytest.raises(KeyError), remote.unit() as unit:
        unit.put("B", b"never")
        assert unit.get("A", timeout_s=0) is not None
        raise KeyError
    with remote.unit() as unit:
        assert unit.get("B", timeout_s=WAIT_S) is not None and unit.get("B", timeout_s=0) is None
    with world.connect() as native:
        assert [row.attempts for row in native.browse("A")] == [1]
        assert list(native.browse("B")) == []


def test_moves(world: AmqpWorld, remote: Client) -> None:
    remote.put("A", b"1")
    with remote.reader("A") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        message.move((), [omq.Outgoing(b"new", queues=("B",))])
    assert world.left("A") == [] and [m.body for m in world.left("B")] == [b"new"]


def test_what_cannot_be_says_so(remote: Client) -> None:
    remote.put("A", b"1")
    for ask in (lambda: remote.group_reader("A"), lambda: remote.queues.define("X"),
                lambda: remote.units_in_doubt(), lambda: remote.reader("A", auxiliary=True),
                lambda: remote.put("A", b"", group_id="g", group_sequence=1)):
        with pytest.raises(NotRemote):
            ask()
    with remote.reader("A") as reader:
        with pytest.raises(NotRemote):
            reader.next(message_id="x")
        (message,) = reader.next(timeout_s=WAIT_S)
        for ask in (lambda: message.defer(1), message.touch, lambda: message.move("B"),
                    lambda: message.fail("x", delay_s=1)):
            with pytest.raises(NotRemote):
                ask()
    with pytest.raises(AttributeError):
        remote.nosuch  # type: ignore[attr-defined]  # noqa: B018


def test_a_program_that_works_long_stays_connected(tmp_path: Path) -> None:
    """Longer than the server's time for silence, and nobody calls meanwhile."""
    with amqp_world(tmp_path, amqp_idle_timeout_s=4) as world, omq.connect(
            f"amqp://{world.url}/", timeout_s=WAIT_S) as remote:
        remote.put("A", b"1")
        with remote.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            with world.connect() as native, native.reader("B") as other:
                other.next(timeout_s=9)
            message.done()
        assert world.left("A") == []


def test_a_server_that_is_killed(world: AmqpWorld) -> None:
    with omq.connect(f"amqp://{world.url}/", timeout_s=WAIT_S) as remote:
        remote.put("A", b"1")
        world.kill(SERVER)
        with pytest.raises(RemoteLost):
            while True:
                remote.put("A", b"2")
    world.start(SERVER)
    world.await_port()
    with omq.connect(f"amqp://{world.url}/", timeout_s=WAIT_S) as again:
        assert next(iter(again.browse("A"))).body == b"1"


def test_after_a_fork_and_after_the_end(remote: Client) -> None:
    child = os.fork()
    if not child:
        try:
            remote.put("A", b"x")
        except omq.ConnectionForked:
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    remote.close()
    with pytest.raises(omq.ConnectionClosed):
        remote.put("A", b"x")


@pytest.mark.parametrize("url", [
    "amqp://user:secret@example.org/", "amqp://", "amqp://host/queue", "amqp://host:x/",
    "amqps://host/?nosuch=1", "amqps://host/?ca_file=/nosuch"])
def test_urls_that_cannot_be(url: str) -> None:
    with pytest.raises(omq.BadArgument) as caught:
        omq.connect(url)
    assert "secret" not in str(caught.value)


def test_a_password_may_stand_in_the_environment(
        world: AmqpWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMQ_AMQP_PASSWORD", PASSWORD)
    assert parse("amqp://daemon@localhost/").password == PASSWORD
    assert parse("amqp://daemon:other@[::1]:7/").password == "other"
    with pytest.raises(RemoteLost):
        omq.connect("amqp://127.0.0.1:1/")


def test_the_commands_by_a_url(world: AmqpWorld) -> None:
    """On a host that has no instance."""
    url = f"amqp://{world.url}/"

    def ran(*words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "omq.cli.launch", *words, "--url", url], input=data, timeout=120,
            capture_output=True, check=False, env={**os.environ, "OMQ_SPOOL": "/nosuch"})

    sent = ran("omsend", "A", "--priority", "7", "--property", "k=v", data=b"hello")
    assert sent.returncode == 0, sent
    got = ran("omread", "A", "--timeout", "0", "--json")
    assert got.returncode == 0, got
    row = json.loads(got.stdout)
    assert (row["message_id"], row["priority"]) == (sent.stdout.decode().strip(), 7)
    assert row["properties"] == {"k": "v"}
    assert ran("omread", "A", "--timeout", "0").returncode == 1
    assert b"over AMQP" in ran("omsend", "-t", data=b"To: bob").stderr


def test_who_has_given_up_waiting_takes_nothing(remote: Client) -> None:
    """A caller whose time is over while the thread looks: what it waited for stays where it is,
    for its next call. Else a message would be in the hands of nobody."""
    line, taken = remote.line, list[str]()  # type: ignore[attr-defined]
    given_up = _Wait(lambda: taken.append("a message"))

    def meanwhile() -> bool:
        line._waits.remove(given_up)
        return True

    with line._lock:
        line._waits += [_Wait(meanwhile), given_up]
    line.until(lambda: True, WAIT_S)
    assert taken == []
