"""Nobody in the group may stop or starve the manager: SECURITY.md, "Stopping and starving".

A member is a process of another user with the spool's group, as the kernel shows it to the manager.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sysv_ipc

import omq
from omq.base.errors import BadRequest, Exit, IndexFull, NoAuthority, TooManyOfUser
from omq.core.look.look import Source, look
from omq.core.look.space import Space
from omq.format.wire import (
    REPLY,
    REQUEST,
    REQUEST_MAGIC,
    VERSION,
    Operation,
    PutFlag,
    request_line,
)
from omq.ipc.client.link import Link
from omq.ipc.wire.outgoing import Encoded, encode_plain
from omq.storage.segment import read_ids
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S, Child, start
from tests.process.test_bad_input import reachable
from tests.waiting import until

NOBODY = 65534
BURST = 10
NONE_FREE = 3  # as a limit: these are stdin, stdout and stderr; what is open stays open
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user's process: needs root")


@pytest.fixture
def served(open_instance: Instance) -> Instance:
    """Runs; `nobody` may put on A and get from B."""
    return run(open_instance)


def run(instance: Instance, **settings: object) -> Instance:
    (instance.conf / "authority.conf").write_text(
        "[A]\nuser:nobody = put\n[B]\nuser:nobody = get\n")
    instance.settings(event_burst=BURST, **settings)
    instance.start()
    instance.ready()
    reachable(instance.paths.run)
    return instance


def member(instance: Instance, work: Callable[[], int], output: Path | None = None) -> Child:
    """`work` in a process of another user who is in the spool's group."""
    group = instance.root.stat().st_gid

    def as_nobody() -> int:
        os.setgroups([])
        os.setgid(group)
        os.setuid(NOBODY)
        return work()

    return start("member", as_nobody, output=output)


def knock(instance: Instance) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(WAIT_S)
    made.connect(str(instance.paths.socket))
    return made


def answer(door: socket.socket) -> dict[str, Any] | None:
    """The next line; None when it is closed."""
    with door.makefile("rb") as lines:
        line = lines.readline()
    found: dict[str, Any] | None = json.loads(line) if line else None
    return found


def put_some(instance: Instance, count: int = 50) -> None:
    with instance.connect() as c:
        for i in range(count):
            c.put("A", b"%d" % i)
    assert instance.children[MANAGER].running, instance.said()


def open_files(instance: Instance) -> int:
    return len(os.listdir(f"/proc/{instance.children[MANAGER].pid}/fd"))


@needs_root
def test_silent_connections(served: Instance) -> None:
    """1,100 of them, with a soft limit of 1,024 descriptors: a few are let in."""
    number = 1100

    def crowd() -> int:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * number, 2 * number))
        doors = [knock(served) for _ in range(number)]
        return 0 if _turned_away(doors, number - 16) == number - 16 else 1

    before = open_files(served)
    assert member(served, crowd).wait() == 0
    assert open_files(served) <= before + 16
    put_some(served)
    assert len(served.events(1253)) == BURST


def _turned_away(doors: list[socket.socket], wanted: int) -> int:
    """How many were told so, once `wanted` have been, or after WAIT_S."""
    poll = select.poll()
    numbers = {door.fileno(): door for door in doors}
    for number in numbers:
        poll.register(number, select.POLLIN)
    told = 0
    while told < wanted and (ready := poll.poll(WAIT_S * 1000)):
        for number, _ in ready:
            poll.unregister(number)
            told += bool((answer(numbers[number]) or {}).get("status") == 150)
    return told + sum(bool((answer(numbers[number]) or {}).get("status") == 150)
                      for number, _ in poll.poll(0))


def test_a_caller_that_says_nothing_is_closed(open_instance: Instance) -> None:
    run(open_instance, register_timeout_s=1)
    with knock(open_instance) as silent, open_instance.connect() as c:
        assert answer(silent) is None
        c.put("A", b"who has registered stays")


@needs_root
@pytest.mark.parametrize("line", [b"\n", b'{"op":"status"}\n', b"=00\n", b"x" * 1000 + b"\n"])
def test_lines_of_strangers(served: Instance, line: bytes) -> None:
    """The connection is closed, the log has a few lines, and the watchdog has nothing to do."""

    def flood() -> int:
        for _ in range(200):
            with knock(served) as door, contextlib.suppress(OSError):
                for _ in range(1000):
                    door.sendall(line * 100)
                return 1  # it should have been closed
        return 0

    child = member(served, flood)
    put_some(served)
    assert child.wait() == 0
    put_some(served)
    for number in (1215, 1253, 1254):
        assert len(served.events(number)) <= BURST


def test_one_who_errs_now_and_then_stays(served: Instance) -> None:
    """More mistakes over the life of a connection than a stranger may make in a row."""
    link = Link(served.paths, "careless", WAIT_S)
    first = link._line
    for _ in range(20):
        with pytest.raises(BadRequest):
            link.control({"op": "reader"})
        link.control({"op": "status"})
    assert link._line is first  # it would have come back by itself
    link.close()


@needs_root
def test_requests_without_waiting(served: Instance) -> None:
    """A registered member pours valid requests into its connection; all others are served."""

    def flood() -> int:
        link = Link(served.paths, "flooder", WAIT_S)
        line = link._line
        assert line is not None and link._requests is line
        number = int(link.control({"op": "open", "queue": "A"})["queue"])
        message = encode_plain(number, b"x")
        link._area[: len(message.payload)] = message.payload
        for i in range(1, 3000):
            line.send(put_of(link, i, message), block=False, type=1)
        assert link.control({"op": "status"})["counters"]["garbage"] == 0
        return 0

    child = member(served, flood)
    put_some(served)
    assert child.wait() == 0
    put_some(served)


def test_one_wait_at_a_time(served: Instance) -> None:
    """A client that asked twice without waiting and went away: what came was handed to nobody."""
    link = Link(served.paths, "twice", WAIT_S)
    link.control({"op": "reader", "queue": "B"})
    for sequence in (1, 2, 3):
        link._requests.send(REQUEST.pack(
            Operation.NEXT, 0, 0, 0, 0, link._client, 0, link._token, sequence, 0, 0,
            REQUEST_MAGIC, VERSION, 0, 1, -1, 0, 0, 0, 0), block=False, type=1)
    link.control({"op": "status"})
    link._drop()
    with served.connect() as c, c.reader("B") as reader:
        c2 = served.connect()
        c2.put("B", b"for who is there")
        c2.close()
        assert [message.body for message in reader.next(1, WAIT_S)] == [b"for who is there"]
        reader.flush()
    served.drain("B")


@needs_root
def test_a_note_needs_a_right(served: Instance) -> None:
    """Without a queue it needed none, and each was a frame in the journal and a line in the log."""

    def noter() -> int:
        with omq.connect(served.root) as c:
            for targets in ([], ["B"]):
                with contextlib.suppress(BadRequest, NoAuthority):
                    c.control({"op": "note", "targets": targets, "messages": 1})
                    return 1
        return 0

    assert member(served, noter).wait() == 0
    assert not served.events(1251)


def put_of(link: Link, sequence: int, message: Encoded, **wrong: int) -> bytes:
    """A PUT of a message that lies in the channel; `wrong`: what the request says wrongly of it."""
    said = {"flags": message.flags, "size": message.size, "crc": message.crc, "correlation": 0,
            "want": 0, "parts": 0, "expiry": 0, "length": len(message.payload)} | wrong
    return REQUEST.pack(
        Operation.PUT, 5, said["flags"], message.queue, 1, link._client, said["length"],
        link._token, sequence, said["size"], said["crc"], REQUEST_MAGIC, VERSION,
        said["correlation"], said["want"], 0, 0, said["parts"], 0, said["expiry"])


WRONG = [{"crc": 1}, {"size": 7}, {"length": 160}, {"length": 3}, {"length": 0},
         {"correlation": 5}, {"want": 5}, {"flags": 1 | int(PutFlag.GIVEN_ID)}, {"expiry": 1},
         {"parts": 1}]


@needs_root
def test_what_a_member_puts_is_looked_at(served: Instance) -> None:
    """A payload that is no message, or not the one that the request describes, was acknowledged,
    then found as damage by pool.writer and each start, with a file in quarantine."""

    def liar() -> int:
        link = Link(served.paths, "liar", WAIT_S)
        number = int(link.control({"op": "open", "queue": "A"})["queue"])
        message = encode_plain(number, b"x" * 5)
        for sequence, wrong in enumerate([*WRONG, {}], 1):
            link._area[: len(message.payload)] = message.payload
            link._requests.send(put_of(link, sequence, message, **wrong), block=False, type=1)
            link._semaphore.acquire()
            status = REPLY.unpack_from(link.reply)[1]
            if bool(status) is not bool(wrong):
                os.write(2, f"{wrong}: {status}".encode())
                return 1
        link._sequence = sequence
        with omq.connect(served.root, name="batch") as c:
            c.put_many("A", [b"good", b"good too"] * 20)
            rows = [c.encode(omq.Outgoing(body=b"bad"), ("A",)) for _ in range(20)]
            rows[19] = replace(rows[19], crc=1)
            with contextlib.suppress(BadRequest):
                c._wire.put_batch(number, rows, [b""] * 20)
                return 2
        return 0

    said = served.root.parent / "liar"
    assert member(served, liar, said).wait() == 0, said.read_text()
    assert len(served.drain("A")) == 41


@needs_root
def test_the_request_queue_is_not_theirs(served: Instance) -> None:
    """A member can neither write to it nor need it: its requests come over its connection."""
    ids = read_ids(served.paths)
    assert ids is not None
    key = ids.requests[0]

    def member_work() -> int:
        with contextlib.suppress(sysv_ipc.PermissionsError):
            sysv_ipc.MessageQueue(key, 0, 0o200)
            return 1
        with omq.connect(served.root) as c:
            c.put("A", b"a member's")
            c.put_many("A", [b"1", b"2"])
        return 0

    assert member(served, member_work).wait() == 0
    assert [m.body for m in served.drain("A")] == [b"a member's", b"1", b"2"]


@needs_root
def test_a_member_reads_too(served: Instance) -> None:
    with served.connect() as c:
        c.put("B", b"for the member")

    def reader() -> int:
        with omq.connect(served.root) as c, c.reader("B") as messages:
            (message,) = messages.next(1, WAIT_S)
            message.done()
            return 0 if message.body == b"for the member" else 1

    assert member(served, reader).wait() == 0


@needs_root
def test_clients_of_one_user(open_instance: Instance) -> None:
    run(open_instance, clients_per_uid_max=3)

    def comes_in() -> bool:
        with contextlib.suppress(TooManyOfUser):
            omq.connect(open_instance.root).close()
            return True
        return False

    def crowd() -> int:
        made = [omq.connect(open_instance.root, name=f"c{i}") for i in range(3)]
        with contextlib.suppress(TooManyOfUser):
            omq.connect(open_instance.root)
            return 1
        made.pop().close()
        until(comes_in)  # its place is free when the manager has heard of its end
        return 0

    assert member(open_instance, crowd).wait() == 0
    made = [open_instance.connect() for _ in range(10)]  # the owner is not counted
    for each in made:
        each.close()


@needs_root
def test_a_member_fills_the_index(open_instance: Instance) -> None:
    """Members stop at the reserve, the owner's puts in the middle of it, a service's moves at the
    end of the table; each step is told, and over when messages have gone."""
    run(open_instance, messages_max=500, queue_entries_max=500, index_reserve_percent=10)

    def flood() -> int:
        with omq.connect(open_instance.root) as c, contextlib.suppress(IndexFull):
            for taken in range(1000):
                c.put("A", b"%d" % taken)
        return 0 if taken == 450 else 1

    assert member(open_instance, flood).wait() == 0
    _until(open_instance, 1)
    with open_instance.connect() as c, open_instance.connect() as c2, c2.reader("A") as reader:
        c.put_many("B", [b"the owner's"] * 20)
        for _ in range(5):
            c.put("B", b"the owner's")
        for put in (lambda: c.put("B"), lambda: c.put_many("B", [b"x"] * 20)):
            with pytest.raises(IndexFull, match="475"):
                put()
        for _ in range(25):  # one more each
            (message,) = reader.next(1, WAIT_S)
            message.move("B", [omq.Outgoing(body=b"report", queues=("C",))])
        (message,) = reader.next(1, WAIT_S)
        with pytest.raises(IndexFull, match="500"):
            message.move(["B", "C"])
        message.move("B")  # needs no room
        _until(open_instance, 2)
    open_instance.drain("A")
    _until(open_instance, 0)
    assert [(each["refused"]) for each in open_instance.events(1216)][-1] == "all"
    assert open_instance.events(1217)
    open_instance.settings(messages_max=500, queue_entries_max=500, messages_total_max=40)
    open_instance.children[MANAGER].signal(signal.SIGHUP)
    _until(open_instance, 2)


def _until(instance: Instance, low: int) -> None:
    """The index says so, and omstat tells it."""
    words = {0: "", 1: "the index is almost FULL", 2: "the index is FULL"}
    deadline = time.monotonic() + WAIT_S
    while (space := _seen(instance)).index_low != low:
        assert time.monotonic() < deadline, space
        select.select([], [], [], 0.05)
    assert space.note.startswith(words[low]) and bool(space.note) is bool(low)


def _seen(instance: Instance) -> Space:
    with look(instance.paths, Source.SEGMENT) as seen:
        return seen.space


@needs_root
def test_the_owner_finds_a_place(open_instance: Instance) -> None:
    """clients_reserved: others cannot take the last ones."""
    run(open_instance, clients_max=10, clients_per_uid_max=10, clients_reserved=4)

    def crowd() -> int:
        made = []
        with contextlib.suppress(omq.OmqError):
            while True:
                made.append(omq.connect(open_instance.root))
        os.write(1, b"%d" % len(made))
        os.read(0, 1)
        return 0

    ours, theirs = os.pipe()
    said, saying = os.pipe()

    def piped() -> int:
        os.dup2(ours, 0)
        os.dup2(saying, 1)
        return crowd()

    child = member(open_instance, piped)
    assert int(os.read(said, 10)) == 6
    made = [open_instance.connect() for _ in range(4)]
    for connection in made:
        connection.close()
    os.write(theirs, b"x")
    assert child.wait() == 0
    for each in (ours, theirs, said, saying):
        os.close(each)


def test_no_descriptor_is_free(served: Instance) -> None:
    """EMFILE in accept: clients are served on, callers wait in the backlog until it is over."""
    pid = served.children[MANAGER].pid
    with served.connect() as c:
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (NONE_FREE, limits[1]))
        with knock(served) as caller:
            caller.sendall(b"{}\n")
            while not served.events(1255):
                c.put("A", b"served all the time")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            assert (answer(caller) or {})["status"] == 3


def test_no_descriptor_for_a_client(served: Instance) -> None:
    """EMFILE in pidfd_open: that one is refused."""
    pid = served.children[MANAGER].pid
    with knock(served) as caller:
        caller.sendall(b"{}\n")
        assert (answer(caller) or {})["status"] == 3
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (NONE_FREE, limits[1]))
        caller.sendall(b'{"op": "register", "version": %d, "name": "x"}\n' % VERSION)
        assert (answer(caller) or {})["status"] == 152
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        caller.sendall(b'{"op": "register", "version": %d, "name": "x"}\n' % VERSION)
        assert (answer(caller) or {})["status"] == 0
    put_some(served)


def test_bye_ends_the_connection(served: Instance) -> None:
    """Who registered again and again over one connection left a descriptor there each time."""
    with knock(served) as door:
        door.sendall(b'{"op": "register", "version": %d, "name": "x"}\n' % VERSION)
        assert (answer(door) or {})["status"] == 0
        door.sendall(b'{"op": "bye"}\n')
        assert (answer(door) or {})["status"] == 0
        assert answer(door) is None


def test_an_oversize_message_is_taken_off(served: Instance) -> None:
    """Longer than the buffer of msgrcv: it ended the manager with code 70."""
    ids = read_ids(served.paths)
    assert ids is not None
    queue = sysv_ipc.MessageQueue(ids.requests[0], max_message_size=8192)
    for size in (2049, 8192, 5000):
        queue.send(b"x" * size)
    put_some(served)
    with served.connect() as c:
        assert c.control({"op": "status"})["counters"]["garbage"] == 3
    assert len(served.events(1257)) == 3


def test_the_request_queue_is_removed(served: Instance) -> None:
    """ipcrm -q: one event, an exit code that restarts, no traceback of any thread; the client goes
    on with the next manager."""
    ids = read_ids(served.paths)
    assert ids is not None
    with served.connect() as c:
        c.put("A", b"before")
        assert ctypes.CDLL(None).msgctl(ids.requests[1], sysv_ipc.IPC_RMID if hasattr(
            sysv_ipc, "IPC_RMID") else 0, None) == 0
        assert served.children[MANAGER].wait() == Exit.TEMPORARY
        assert "Traceback" not in served.said()
        assert len([e for e in served.events(1204) if "ipcrm" in e["reason"]]) == 1
        served.start()
        c.put("A", b"after")
    assert [m.body for m in served.drain("A")] == [b"before", b"after"]


def test_a_semaphore_is_removed(served: Instance) -> None:
    """ipcrm -s of a client's semaphore: that client registers anew."""
    with served.connect() as c:
        c.put("A", b"before")
        sysv_ipc.remove_semaphore(c._link._semaphore.id)
        c.put("A", b"after")
    assert [m.body for m in served.drain("A")] == [b"before", b"after"]


@pytest.mark.parametrize("which", ["index", "channel"])
def test_a_segment_is_removed(served: Instance, which: str) -> None:
    """ipcrm -m: who has it attached keeps it, and others may attach it by id as long."""
    ids = read_ids(served.paths)
    assert ids is not None
    with served.connect() as c:
        c.put("A", b"before")
        sysv_ipc.remove_shared_memory(ids.segment if which == "index" else c._link._segment.id)
        c.put("A", b"after")
        assert len(list(c.browse("A"))) == 2
    put_some(served, 3)


def test_a_late_reader_of_answers(served: Instance) -> None:
    """Who asks and never reads is closed when its socket is full; nothing is cut in the middle."""
    with knock(served) as door:
        door.sendall(b'{"op": "register", "version": %d, "name": "x"}\n' % VERSION)
        assert (answer(door) or {})["status"] == 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(100_000):
                door.sendall(b'{"op": "status"}\n')
            pytest.fail("it was never closed")
    put_some(served)


def test_request_line_is_a_line() -> None:
    assert request_line(b"\n" * 96).count(b"\n") == 1
