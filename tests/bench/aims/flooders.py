"""Members of the group who flood the manager: another user's processes, one kind each.

Each function runs until it is killed. They use the API where a client would, and bare sockets and
System V calls where a client would not.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import multiprocess
import sysv_ipc

import omq
from omq.base.paths import SpoolPaths
from omq.format.wire import REQUEST, REQUEST_MAGIC, VERSION, Operation, PutFlag
from omq.ipc.client.link import Link
from omq.ipc.wire.outgoing import encode_plain
from omq.storage.segment import read_ids
from tests.bench.instance import BenchError

NOBODY = 65534
QUEUE = "FLOOD"
OPEN_MAX = 1100
BATCH, BODY_BYTES = 250, 2048
_TIMEOUT_S = 60.0
_fork = multiprocess.get_context("fork")


def spin(root: Path) -> None:
    """Asks for nothing: what two busy processes cost on this machine by themselves."""
    while True:
        os.getpid()


def connects(root: Path) -> None:
    """Connections that say nothing, as many as there may be, again and again."""
    doors: list[socket.socket] = []
    while True:
        try:
            doors.append(_knock(root))
        except OSError:
            os.sched_yield()
        if len(doors) >= OPEN_MAX:
            for door in doors:
                door.close()
            doors.clear()


def lines(root: Path) -> None:
    """Empty lines, as fast as the socket takes them."""
    while True:
        with contextlib.suppress(OSError), _knock(root) as door:
            while True:
                door.sendall(b"\n" * 65536)


def garbage(root: Path) -> None:
    """Garbage where requests go: on the request queue if it can be, else over a connection."""
    ids = read_ids(SpoolPaths(root))
    assert ids is not None
    queue = None
    with contextlib.suppress(sysv_ipc.PermissionsError):
        queue = sysv_ipc.MessageQueue(ids.requests[0], 0, 0o200)
    noise = os.urandom(96)
    while True:
        if queue is not None:
            queue.send(noise, type=1)
            continue
        with contextlib.suppress(OSError), _knock(root) as door:
            while True:
                door.sendall((b"=" + noise.hex().encode() + b"\n") * 100)


def requests(root: Path) -> None:
    """Valid puts of one byte, without waiting for an answer."""
    link = Link(SpoolPaths(root), "flooder", _TIMEOUT_S)
    number = int(link.control({"op": "open", "queue": QUEUE})["queue"])
    message = encode_plain(number, b"x")
    link._area[: len(message.payload)] = message.payload
    sequence = 0
    while True:
        sequence += 1
        head = REQUEST.pack(Operation.PUT, 5, int(PutFlag.PERSISTENT), number, 1, link._client,
                            len(message.payload), link._token, sequence, message.size, message.crc,
                            REQUEST_MAGIC, VERSION, 0, 0, -1, 0, 0, 0, 0)
        with contextlib.suppress(OSError, sysv_ipc.BusyError):
            link._requests.send(head, block=True, type=1)


def batches(root: Path) -> None:
    """Honest, but much: batches of half a MiB."""
    with omq.connect(spool=root, name="batches", timeout_s=_TIMEOUT_S) as connection:
        bodies = [bytes(BODY_BYTES)] * BATCH
        while True:
            with contextlib.suppress(omq.OmqError):
                connection.put_many(QUEUE, bodies)


def _knock(root: Path) -> socket.socket:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.connect(str(SpoolPaths(root).socket))
    except OSError:
        door.close()
        raise
    return door


@contextlib.contextmanager
def crowd(work: Callable[[Path], None], root: Path, count: int) -> Any:
    """`count` processes of a member that do this, as long as the block lasts. BenchError."""
    if os.geteuid() != 0:
        raise BenchError("members are other users: this needs root")
    gid = root.stat().st_gid

    def member(pipe: Any) -> None:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(NOBODY)
        pipe.send("here")
        work(root)

    running = []
    try:
        for _ in range(count):
            ours, theirs = _fork.Pipe()
            process = _fork.Process(target=member, args=(theirs,), daemon=True)
            process.start()
            running.append(process)
            theirs.close()
            if not select.select([ours], [], [], _TIMEOUT_S)[0]:
                raise BenchError("a flooder did not start")
            ours.close()
        yield
    finally:
        for process in running:
            process.kill()
            process.join()
