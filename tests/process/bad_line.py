"""A bad line: a process between a sender and a port of loopback that delays, stalls, cuts and goes
dark, for the lack of netem in many kernels (what TCP makes of loss is a stall of a direction).

What it does is fixed by what it was given: `Cut`s, one a connection and in order, each at a frame
of AMQP; or a `Weather`, drawn from its seed by the bytes that pass. Behind the last Cut it is a
good line. Each cut is a line in `log`. A cut line is reset, or (every other one) ended.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.process.processes import Child, start

THERE, BACK = "there", "back"
HEADER, EMPTY = 0x100, 0x101  # beside the codes of performatives: the protocol's header; heart-beat
_HELD_MAX = 1 << 22
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Cut:
    """`share` of the nth frame of this kind on a connection passes this way, nothing behind it."""

    way: str
    kind: int
    nth: int
    share: float


@dataclass(frozen=True, slots=True)
class Weather:
    """Of all connections. Bytes: the mean between two of such events; 0: never."""

    seed: int = 0
    delay_s: float = 0.0
    cut_bytes: int = 0
    stall_bytes: int = 0
    stall_s: float = 0.0
    dark_bytes: int = 0
    dark_s: float = 0.0


@dataclass(eq=False)
class _End:
    """One side of a connection: what it says goes to `other`."""

    line: socket.socket
    way: str
    number: int
    other: _End | None = None
    frames: _Frames = field(default_factory=lambda: _Frames())
    at: float = 0.0  # when the last piece of it is due
    held: int = 0
    cut_left: float = 0.0
    over: bool = False


class _Frames:
    """Where frames begin and end in a stream."""

    def __init__(self) -> None:
        self._data = b""
        self._passed = 0  # bytes of the stream before these
        self._seen: dict[int, int] = {}

    @property
    def length(self) -> int:
        """All that came."""
        return self._passed + len(self._data)

    def found(self, data: bytes) -> list[tuple[int, int, int, int]]:
        """Frames that are whole now: kind, its count, where it begins and ends in the stream."""
        self._data += data
        out = []
        while len(self._data) >= 8:
            header = self._data[:4] == b"AMQP"
            size = 8 if header else int.from_bytes(self._data[:4], "big")
            if len(self._data) < size:
                break
            kind = HEADER if header else _kind(self._data[:size])
            self._seen[kind] = self._seen.get(kind, 0) + 1
            out.append((kind, self._seen[kind], self._passed, self._passed + size))
            self._data, self._passed = self._data[size:], self._passed + size
        return out


def _kind(frame: bytes) -> int:
    body = frame[4 * frame[4]:]
    return body[2] if len(body) > 2 else EMPTY


class _Carrier:
    """See the module."""

    def __init__(self, listening: socket.socket, port: int, plan: Sequence[Cut] | Weather,
                 log: Path) -> None:
        self._listening, self._port, self._log = listening, port, log
        self._weather = plan if isinstance(plan, Weather) else Weather()
        self._cuts = () if isinstance(plan, Weather) else tuple(plan)
        self._chance = random.Random(self._weather.seed)
        self._ends: dict[socket.socket, _End] = {}
        self._due: list[tuple[float, int, _End, bytes]] = []
        self._connections = self._pieces = self._cut_count = 0
        self._dark_until = 0.0
        self._dark_left = self._drawn(self._weather.dark_bytes)
        self._stall_left = self._drawn(self._weather.stall_bytes)

    def _drawn(self, mean: int) -> float:
        return self._chance.expovariate(1 / mean) if mean else float("inf")

    def run(self) -> int:
        while True:
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, _, end, data = heapq.heappop(self._due)
                end.held -= len(data)
                self._pass(end, data)
            dark = now < self._dark_until
            wait_s = max(0.0, self._due[0][0] - now) if self._due else None
            if dark:
                left_s = self._dark_until - now
                wait_s = left_s if wait_s is None else min(wait_s, left_s)
            lines = [each.line for each in self._ends.values() if each.held < _HELD_MAX]
            ready, _, _ = select.select([*lines, *([] if dark else [self._listening])],
                                        [], [], wait_s)
            for line in ready:
                if line is self._listening:
                    self._accept()
                elif line in self._ends:
                    self._take(self._ends[line])

    def _accept(self) -> None:
        one, _ = self._listening.accept()
        try:
            other = socket.create_connection(("127.0.0.1", self._port))
        except OSError:  # nobody is there
            one.close()
            return
        number = self._connections
        self._connections += 1
        ends = _End(one, THERE, number), _End(other, BACK, number)
        ends[0].other, ends[1].other = ends[1], ends[0]
        for end in ends:
            end.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.cut_left = self._drawn(self._weather.cut_bytes)
            self._ends[end.line] = end

    def _take(self, end: _End) -> None:
        try:
            data = end.line.recv(1 << 16)
        except OSError:
            data = b""
        now = time.monotonic()
        if data:
            self._count(len(data), now)
        end.at = max(end.at, now + self._weather.delay_s / 2, self._dark_until)
        if data and self._stall_left <= 0:
            self._stall_left = self._drawn(self._weather.stall_bytes)
            end.at += self._weather.stall_s
        self._pieces += 1
        if not data:
            self._ends.pop(end.line, None)
        end.held += len(data)
        heapq.heappush(self._due, (end.at, self._pieces, end, data))

    def _count(self, size: int, now: float) -> None:
        self._stall_left -= size
        self._dark_left -= size
        if self._dark_left <= 0:
            self._dark_left = self._drawn(self._weather.dark_bytes)
            self._dark_until = now + self._weather.dark_s
            self._note(f"dark {self._weather.dark_s}")

    def _pass(self, end: _End, data: bytes) -> None:
        if end.over:
            return
        keep = self._kept(end, data)
        other = end.other
        assert other is not None
        try:
            other.line.sendall(data if keep is None else data[:keep])
        except OSError:
            self._end(end, reset=False)
            return
        if keep is not None:
            self._end(end, reset=self._cut_count % 2 == 1)
        elif not data:
            self._end(end, reset=False)

    def _kept(self, end: _End, data: bytes) -> int | None:
        """None: all of these pass. Else so many, and it is cut behind them."""
        end.cut_left -= len(data)
        if end.cut_left <= 0:
            self._cut(f"{end.way} at a byte")
            return max(0, int(end.cut_left) + len(data))
        cut = self._cuts[end.number] if end.number < len(self._cuts) else None
        if cut is None or cut.way != end.way:
            return None
        before = end.frames.length
        for kind, nth, first, last in end.frames.found(data):
            if (kind, nth) == (cut.kind, cut.nth):
                self._cut(f"{cut.way} {cut.kind:#x} {cut.nth} {cut.share}")
                return max(0, first + int((last - first) * cut.share) - before)
        return None

    def _cut(self, what: str) -> None:
        self._cut_count += 1
        self._note(what)

    def _note(self, what: str) -> None:
        with self._log.open("a") as file:
            file.write(what + "\n")

    def _end(self, end: _End, *, reset: bool) -> None:
        assert end.other is not None
        for each in (end, end.other):
            each.over = True
            self._ends.pop(each.line, None)
            if reset and each.line.fileno() >= 0:
                each.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            each.line.close()


@dataclass(frozen=True, slots=True)
class BadLine:
    """What others connect to, and its process: stopped, it is a line on which nothing moves."""

    port: int
    child: Child


@contextmanager
def bad_line(port: int, plan: Sequence[Cut] | Weather, log: Path) -> Iterator[BadLine]:
    """A port that leads to this one, until then."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        child = start("bad line", lambda: _Carrier(listening, port, plan, log).run())
        try:
            yield BadLine(int(listening.getsockname()[1]), child)
        finally:
            child.kill()
