"""A request and the wait for its reply are one request to the manager, as are a reply and the next
message: over a manager's death, its refusals, an older manager, and whoever ends the wait."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

import omq
from omq.format import message as message_format
from omq.format.wire import Operation
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S, Child, start
from tests.waiting import until

Note = Callable[[bytes], object]


class Server:
    """Serves A in a thread, with what `function` says, until it is ended."""

    def __init__(self, instance: Instance, function: Callable[[omq.Message], bytes | None],
                 batch: int = 1, *, asks: bool = True) -> None:
        self.served = 0
        self._function, self._asks = function, asks
        self._client = instance.connect("serves")
        self._reader = self._client.reader("A", batch=batch)
        self.operations = spied(self._client)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._client._link.asks = self._asks

        def counted(message: omq.Message) -> bytes | None:
            self.served += 1
            return self._function(message)

        self._reader.serve(counted)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.interrupt()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self._client.close()


class Apart:
    """A server of A, or a requester, in a process of its own: it lives while managers come and go.
    `lines`: what it has noted."""

    def __init__(self, instance: Instance, name: str, work: Callable[[Client, Note], None]) -> None:
        self._path: Path = instance.root.parent / f"{name}.{len(os.listdir(instance.root.parent))}"
        self._path.touch()

        def run() -> int:
            with self._path.open("ab", buffering=0) as file, instance.connect(name) as c:
                work(c, lambda line: file.write(line + b"\n"))
            return 0

        self._child: Child = start(name, run, output=instance.output)

    @property
    def lines(self) -> list[bytes]:
        return self._path.read_bytes().split()

    def wait(self) -> list[bytes]:
        assert self._child.wait() == 0
        return self.lines

    def end(self) -> list[bytes]:
        os.kill(self._child.pid, signal.SIGTERM)
        return self.wait()


def serves(c: Client, note: Note) -> None:
    """Until SIGTERM; notes each message that is not redelivered."""
    with c.reader("A") as reader:
        signal.signal(signal.SIGTERM, lambda *_: reader.interrupt())

        def serve(message: omq.Message) -> bytes:
            note(b"again" if message.redelivered else message.body)
            return message.body.upper()

        reader.serve(serve)


def spied(client: Client) -> list[int]:
    """The operations that this client asks for from now on, but for settlements by themselves: what
    nothing takes along in time goes so."""
    link, told = client._link, list[int]()
    request = link.request

    def seen(operation: int, *rest: Any, **named: Any) -> Any:
        if operation != Operation.SETTLE:
            told.append(int(operation))
        return request(operation, *rest, **named)

    link.request = seen  # type: ignore[method-assign]
    return told


def upper(message: omq.Message) -> bytes:
    return message.body.upper()


def left(c: Client, queue: str) -> list[bytes]:
    return [row.body for row in c.browse(queue)]


def nothing_left(instance: Instance) -> None:
    with instance.connect() as c:
        assert left(c, "A") == left(c, "B") == []


@pytest.mark.parametrize("persistent", [True, False])
def test_one_request_each(omq_instance: Instance, persistent: bool) -> None:  # noqa: FBT001
    omq_instance.start()
    omq_instance.ready()
    with Server(omq_instance, upper) as server, omq_instance.connect("asks") as c:
        for number in range(5):
            if number == 1:
                asked = spied(c)
                before = len(server.operations)
            body = b"q%d" % number
            assert c.request("A", body, WAIT_S, reply_to="B",
                             persistent=persistent).body == body.upper()
        assert asked == [Operation.ASK] * 4
        assert server.operations[before:][:3] == [Operation.MOVE] * 3
    nothing_left(omq_instance)
    assert server.served == 5


def test_what_has_the_key_and_another_id_is_no_reply(omq_instance: Instance,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody makes a message whose correlation id has the same key: it is left, out of the way,
    and the reply is waited for again."""
    omq_instance.start()
    omq_instance.ready()
    with omq_instance.connect("forges") as forger:

        def answer(message: omq.Message) -> bytes:
            key = message_format.id_hash(bytes.fromhex(message.message_id))
            with monkeypatch.context() as meanwhile:
                meanwhile.setattr(message_format, "id_hash", lambda _: key)
                forger.put("B", b"forged", correlation_id=b"other")
            return b"true"

        with Server(omq_instance, answer), omq_instance.connect("asks") as c:
            c.request("A", b"q", WAIT_S, reply_to="B")
            asked = spied(c)
            assert c.request("A", b"q", WAIT_S, reply_to="B").body == b"true"
        assert asked == [Operation.ASK, Operation.GET]
        assert left(forger, "B") == [b"forged"] * 2


def test_with_a_manager_that_does_not_take_it(omq_instance: Instance) -> None:
    """One that was started before it could, and clients that were."""
    omq_instance.start()
    omq_instance.ready()
    with Server(omq_instance, upper, asks=False) as server, omq_instance.connect("asks") as c:
        c._link.asks = False
        asked = spied(c)
        assert c.request("A", b"q", WAIT_S, reply_to="B").body == b"Q"
        assert Operation.ASK not in asked and Operation.GET in asked
    assert Operation.NEXT in server.operations


@pytest.mark.parametrize("ends", ["stop", "kill"])
@pytest.mark.parametrize("persistent", [True, False])
def test_the_manager_ends_while_it_is_waited_for(omq_instance: Instance, ends: str,
                                                 persistent: bool) -> None:  # noqa: FBT001
    """What was put is not put again; what was not persistent is gone, and nobody answers it."""
    omq_instance.start()
    omq_instance.ready()

    def ask(c: Client, note: Note) -> None:
        try:
            note(c.request("A", b"q", WAIT_S if persistent else 3, reply_to="B",
                           persistent=persistent).body)
        except omq.NoReply:
            note(b"none")

    asker = Apart(omq_instance, "asks", ask)
    with omq_instance.connect() as c:
        until(lambda: left(c, "A") == [b"q"])
    getattr(omq_instance, ends)()
    omq_instance.start()
    server = Apart(omq_instance, "serves", serves)
    assert (asker.wait(), server.end()) == (
        ([b"Q"], [b"q"]) if persistent else ([b"none"], []))
    nothing_left(omq_instance)


@pytest.mark.parametrize("point", ["engine.before_append", "engine.after_append",
                                   "engine.before_reply", "engine.after_reply"])
def test_the_manager_dies_at_each_step(omq_instance: Instance, point: str) -> None:
    """Each request is put once and answered once, wherever the manager is killed."""
    def ask(c: Client, note: Note) -> None:
        for number in range(4):
            note(c.request("A", b"q%d" % number, WAIT_S, reply_to="B").body)

    for turn in range(4, 9):
        omq_instance.fault_log.unlink(missing_ok=True)
        fault = f"{point}:kill:{turn}"
        victim = omq_instance.start(WRITER, MANAGER, fault=fault)
        server, asker = Apart(omq_instance, "serves", serves), Apart(omq_instance, "asks", ask)
        victim.wait()
        omq_instance.start(MANAGER)
        assert asker.wait() == [b"Q%d" % n for n in range(4)]
        seen = [line for line in server.end() if line != b"again"]
        assert len(seen) == len(set(seen)), seen
        nothing_left(omq_instance)
        assert [line.split()[0] for line in omq_instance.fired()] == [fault]
        omq_instance.stop()


def test_what_is_refused_changes_nothing(omq_instance: Instance) -> None:
    omq_instance.start()
    omq_instance.ready()
    with Server(omq_instance, upper), omq_instance.connect("asks") as c:
        assert c.request("A", b"1", WAIT_S, reply_to="B").body == b"1"  # its end is not sent yet
        c.queues.define("NARROW", max_length=3)
        asked = spied(c)
        with pytest.raises(omq.MessageTooLong):
            c.request("NARROW", b"long", WAIT_S, reply_to="B")
        assert asked == [Operation.ASK]
        assert c.request("A", b"2", WAIT_S, reply_to="B").body == b"2"
        with pytest.raises(omq.UnknownQueue):
            c.request("NONE", b"3", WAIT_S, reply_to="B")
    nothing_left(omq_instance)


def test_a_queue_that_was_made_anew(omq_instance: Instance) -> None:
    """Its number is another queue's now: it is opened again, and the request put once."""
    omq_instance.start()
    omq_instance.ready()
    with omq_instance.connect("asks") as c, omq_instance.connect() as other:
        other.queues.define("ANEW")
        with pytest.raises(omq.NoReply):
            c.request("ANEW", b"1", 0.0, reply_to="B")
        with other.reader("ANEW") as reader:  # its time is over
            assert reader.next(1, 0) == []
        other.queues.delete("ANEW")
        other.queues.define("BETWEEN")
        other.queues.define("ANEW")
        asked = spied(c)
        with pytest.raises(omq.NoReply):
            c.request("ANEW", b"2", 1000.0 if Operation.PUT in asked else 0.5, reply_to="B")
        assert asked[:2] == [Operation.ASK, Operation.PUT]
        assert left(other, "BETWEEN") == []


def test_what_a_server_says(omq_instance: Instance) -> None:
    """No reply, one that it has given itself, and one that is too large for a request."""
    omq_instance.start()
    omq_instance.ready()

    def serve(message: omq.Message) -> bytes | None:
        if message.body == b"none":
            return None
        if message.body == b"itself":
            message.reply(b"by itself")
            return b"not this"
        return b"x" * int(message.body)

    with Server(omq_instance, serve, batch=3) as server, omq_instance.connect("asks") as c:
        for _ in range(4):
            c.put("A", b"none")
        assert c.request("A", b"itself", WAIT_S, reply_to="B").body == b"by itself"
        for size in (0, 70, 300_000, 3_000_000):
            assert len(c.request("A", b"%d" % size, WAIT_S, reply_to="B").body) == size
    nothing_left(omq_instance)
    assert server.served == 9


def test_an_error_of_the_function_fails_the_message(omq_instance: Instance) -> None:
    omq_instance.start()
    omq_instance.ready()

    def serve(message: omq.Message) -> bytes:
        raise RuntimeError("no")

    with omq_instance.connect() as c:
        c.put("A", b"x", reply_to="B")
        with (pytest.raises(RuntimeError), omq_instance.connect("serves") as other,
              other.reader("A") as reader):
            reader.serve(serve)
        (row,) = c.browse("A")
        assert (row.body, row.attempts) == (b"x", 1)


@pytest.mark.parametrize("how", ["interrupt", "wake"])
def test_the_wait_is_ended(omq_instance: Instance, how: str) -> None:
    """By another thread: the request stays put, and its reply comes for whoever asks by its id."""
    omq_instance.start()
    omq_instance.ready()
    said: list[str] = []
    with omq_instance.connect("asks") as c, omq_instance.connect() as other:
        def ask() -> None:
            try:
                c.request("A", b"q", WAIT_S, reply_to="B")
            except omq.NoReply as error:
                said.append(str(error.fields["request"]))

        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: left(other, "A") == [b"q"])
        replies = c._replies
        assert replies is not None
        getattr(replies, how)()
        thread.join(WAIT_S)
        with Server(omq_instance, upper), other.reader("B") as reader:
            (message,) = reader.next(1, WAIT_S, correlation=said[0])
            assert message.body == b"Q"
            message.done()
