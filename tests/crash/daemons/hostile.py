"""A member of the spool's group that means harm: raw access to the wire, and random requests.

It has a session of its own (anybody in the group may have one) and may put on A and read it; B is
not its business.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sysv_ipc

from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.format.journal import FRAME
from omq.format.message import PART
from omq.format.wire import (
    REQUEST,
    REQUEST_MAGIC,
    REQUEST_TYPE,
    SETTLE,
    VERSION,
    Operation,
)
from omq.ipc.client.link import Link
from omqtools.omqtest.child import Child

HOSTILE_UID, VICTIM_UID, GROUP = 64001, 64002, 64003
EDGES = (0, 1, 2, 3, 7, 8, 9, 10, 15, 16, 17, 255, 256, 1000, 1001, 4096, 65535, 1 << 20,
         (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1)


def as_user(uid: int, work: Callable[[], int], output: Path) -> Child:
    """Run `work` in a child as this user, with the spool's group only."""
    def run() -> int:
        os.setgroups([])
        os.setgid(GROUP)
        os.setuid(uid)
        return work()

    return Child(run, output)


class RawLink(Link):
    """A registered client that says what it likes."""

    def __init__(self, spool: Path) -> None:
        super().__init__(SpoolPaths(spool), "hostile", 20.0)
        self.number = 0

    def raw(self, **fields: int | bytes) -> None:
        """One request, as it is; the caller does not wait for an answer."""
        self.number += 1
        values: dict[str, int | bytes] = {
            "client": self._client, "token": self._token, "sequence": self.number,
            "magic": REQUEST_MAGIC, "version": VERSION, **fields}
        packed = [values.get(name, 0) for name in REQUEST.names]
        try:
            self._requests.send(REQUEST.pack(*packed), block=False, type=REQUEST_TYPE)
        except sysv_ipc.BusyError:
            self.number -= 1

    def bytes_out(self, raw: bytes) -> bool:
        """Bytes on the request queue; False when it is full."""
        try:
            self._requests.send(raw, block=False, type=REQUEST_TYPE)
        except sysv_ipc.BusyError:
            return False
        return True

    def scribble(self, data: bytes, at: int = 0) -> None:
        """Write into the request half."""
        self._area[at : at + len(data)] = data

    def forget_answers(self) -> None:
        """Keep the semaphore low."""
        self._semaphore.value = 0


def random_requests(spool: Path, seed: int, count: int) -> int:
    """Requests with the right token and wrong everything else; 0 when all were sent."""
    chance = random.Random(seed)
    link = RawLink(spool)
    link.control({"op": "reader", "queue": "A"})
    for i in range(count):
        link.scribble(_area(chance), chance.choice((0, 0, 0, 8, 40)))
        fields: dict[str, int | bytes] = {
            "operation": chance.choice((*Operation, *Operation, 0, 99)),
            "count": _number(chance, 16), "length": _number(chance, 32),
            "queue": chance.choice((0, 1, 2, 3, 4, 5, 99, 65535)),
            "priority": chance.choice((0, 4, 9, 10, 255)), "flags": _number(chance, 16),
            "size": _number(chance, 64), "crc": _number(chance, 32),
            "want": _number(chance, 64), "argument": _number(chance, 63),
            "parts": _number(chance, 16), "correlation": _number(chance, 64),
            "expiry": _number(chance, 63)}
        link.raw(**fields)
        if i % 50 == 0:
            link.forget_answers()
            try:  # in step with the manager
                link.control({"op": "status"})
            except OmqError:
                continue
    return 0


def _number(chance: random.Random, bits: int) -> int:
    return chance.choice((0, 0, 1, chance.choice(EDGES))) & ((1 << bits) - 1)


def _area(chance: random.Random) -> bytes:
    """Something that might be a payload, settlements, parts, or frames."""
    def fill(layout: Any) -> bytes:
        packed: bytes = layout.unpack(chance.randbytes(layout.size)) and chance.randbytes(
            layout.size)
        return packed

    pieces = []
    for _ in range(chance.randint(1, 20)):
        kind = chance.randrange(4)
        if kind == 0:
            pieces.append(SETTLE.pack(chance.randrange(6), 0, chance.choice((0, 3, 65535)),
                                      chance.choice((0, 1, 5, 1 << 31)),
                                      chance.choice((1, 2, 3, 1 << 60)), chance.randrange(100),
                                      chance.choice((0, 1 << 62, -1)), chance.choice((0, 1 << 30)),
                                      0))
        elif kind == 1:
            pieces.append(fill(FRAME))
        elif kind == 2:
            pieces.append(bytes(PART.size) + fill(PART))
        else:
            pieces.append(bytes(chance.choice((1, 64, 300))))
    return b"".join(pieces)


LINES: tuple[bytes, ...] = (
    b"", b"{}", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000,
    b'{"op": 5}', b'{"op": ["register"]}', b'{"op": "status"}',
    *(json.dumps({"op": "register", "version": VERSION, "name": "x", **more}).encode() for more in (
        {"token": "zz"}, {"token": "00"}, {"token": 7}, {"name": "x" * 1000}, {"name": None},
        {"held": 5}, {"held": [[1]]}, {"held": [["a", "b"]]}, {"held": [[1 << 80, -1]]},
        {"in_doubt": "x"}, {"in_doubt": -5}, {"in_doubt": 1 << 90}, {"queue": "NOWHERE"},
        {"queue": ["A"]}, {"version": VERSION - 1}, {"auxiliary": {"x": 1}})),
    *(b'{"op": "register", "version": %d, "name": "x", %s}' % (VERSION, more) for more in (
        b'"in_doubt": Infinity', b'"held": [[Infinity, 1]]', b'"in_doubt": 1e999')),
)
QUESTIONS: tuple[bytes, ...] = (
    b'{"op": "locate", "qpool": Infinity}', b'{"op": "locate", "qpool": -1}',
    b'{"op": "locate", "qpool": NaN}', b'{"op": "locate", "qpool": 1e999}',
    b'{"op": "locate", "qpool": ' + b"9" * 4000 + b"}", b'{"op": "locate", "qpool": 1e30}',
    b'{"op": "locate", "qpool": 99999999999999999999999999}', b'{"op": "locate"}',
    b'{"op": "reader", "queue": "B"}', b'{"op": "reader", "queue": {"x": 1}}',
    b'{"op": "open", "queue": 3}', b'{"op": "checkpoint", "lsn": Infinity}',
    b'{"op": "free", "queue": "A", "pid": Infinity}', b'{"op": "free"}',
    b'{"op": "operate"}', b'{"op": "operate", "what": "delete", "messages": [[1, "B", 0]]}',
    b'{"op": "operate", "what": 1, "messages": Infinity, "argument": Infinity}',
    b'{"op": "bell"}', b'{"op": "bell", "bell": {}}',
    b'{"op": "unread"}', b'{"op": "unread"}', b'{"op": "cancel"}', b'{"op": "status"}',
    b'{"op": "said"}', b'{"op": "said", "message": 1e30, "queue": {}}', b'{"op": "lost"}',
    b'{"op": "said", "message": 99999999999999999999999999, "queue": "A"}',
    b'{"op": "lost", "message": Infinity, "lease": -1}',
)


def odd_lines(spool: Path) -> int:
    """Every odd line, each unregistered and each over a registered connection. After a few of them
    that is closed (bad_lines_max), so each has one of its own."""
    for line in (*LINES, *QUESTIONS):
        _say(spool, [line])
    for line in QUESTIONS:
        link = RawLink(spool)
        try:
            assert link._line is not None
            link._line._socket.sendall(line + b"\n")
            answer = link._line._socket.recv(65536)
            assert answer, f"the manager closed after {line[:60]!r}"
        except OmqError:
            continue
        finally:
            link.close()
    return 0


def _say(spool: Path, lines: list[bytes]) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(120)
        s.connect(str(SpoolPaths(spool).socket))
        for line in lines:
            s.sendall(line + b"\n")
            answer = s.recv(65536)
            assert answer.endswith(b"\n"), f"no answer to {line[:60]!r}"


def endless_line(spool: Path) -> int:
    """A line without an end, and hundreds of silent connections: the first is closed."""
    silent = []
    for _ in range(300):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(SpoolPaths(spool).socket))
        s.settimeout(5)
        silent.append(s)
    try:
        for _ in range(1000):
            silent[0].sendall(b"x" * 65536)
    except (BrokenPipeError, ConnectionResetError):
        return 0
    return 1
