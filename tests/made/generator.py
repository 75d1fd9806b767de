"""Synthetic traffic: messages that arrive, wait, are routed, delivered, fail; as frame headers.

Each piece of time is simulated by the scheduling rules of replay.py, so waits and service times are
those of a real system under that load. Pieces follow each other with everything that is open
carried over, so memory does not depend on the number of messages.

Times are seconds inside, nanoseconds in frames. LSNs are given by the caller, in time order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.base.clock import NS_PER_S as NS
from omq.format.frame_rules import Reason
from omq.format.journal import FRAME, FrameFlag, FrameType
from omqtools.omqspark.replay import replay

IDEL, POISON, ROUTER, LOCAL, INTERNET = 1, 2, 3, 4, 5
QUEUES: Final = {IDEL: "IDEL", POISON: "POISON", ROUTER: "ROUTER", LOCAL: "LOCAL",
                 INTERNET: "INTERNET"}
READERS: Final = {ROUTER: 2, LOCAL: 3, INTERNET: 4}
PIDS: Final = {ROUTER: 2000, LOCAL: 3000, INTERNET: 4000}
PRODUCERS: Final = 12
ATTEMPTS_MAX: Final = 3
DEFER_S: Final = 30.0
_LATER: Final = 1 << 60  # a GIVE that is carried, too
ROW: Final = np.dtype([*FRAME.dtype.descr, ("given", "<i8"), ("onto", "<u2"), ("rank", "<i8")])
"""A frame header, with: row of the GIVE that its lease names, or -1; queue that a MOVE names; order
of events at one instant."""


@dataclass(slots=True)
class Load:
    """How much, how fast. Rates are messages a second; services are means in seconds."""

    seed: int = 1
    start_s: int = 1_767_225_600  # 2026-01-01
    rate: float = 60.0
    swing: float = 0.7  # the day's swing of the rate, 0 to 1
    service: dict[int, float] = field(default_factory=lambda: {
        ROUTER: 0.015, LOCAL: 0.045, INTERNET: 0.09})
    fail_share: float = 0.004  # attempts at delivery that fail


class Traffic:
    """Call `piece(n)` for the frames of the next n messages' time; `open_rows` at the end."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.random = np.random.default_rng(load.seed)
        self.now = 0.0  # seconds since load.start_s: small numbers keep their nanoseconds
        self._base_ns = int(load.start_s) * NS
        self.next_qpool = 1
        self.carried = np.zeros(0, ROW)  # events behind the end of the piece
        self._hops = _no_hops()  # second stays that begin behind it
        self._free: dict[int, list[float]] = {}
        self.swaps: list[int] = []  # QPoolIds given out of order, as asked for

    def piece(self, messages: int, swap: int = 0) -> Vector:
        """Rows (dtype ROW, no LSN yet) in time order; `swap`: pairs of hand-outs to exchange."""
        arrival = self._arrivals(messages)
        end = self.now = float(arrival[-1])
        first = np.zeros(messages, _HOP)
        first["qpool"] = np.arange(self.next_qpool, self.next_qpool + messages)
        self.next_qpool += messages
        first["arrival"] = arrival
        first["size"] = np.minimum(self.random.lognormal(8.0, 1.2, messages), 5e6).astype("<u8")
        first["priority"] = np.where(self.random.random(messages) < 0.08, 8, 4)
        first["producer"] = self.random.integers(0, PRODUCERS, messages)
        first["queue"] = ROUTER
        start, reader, work = self._serve(first, ROUTER)
        if swap:
            self._swap(first, start, reader, work, swap)
        goes = np.where(self.random.random(messages) < 0.6, LOCAL, INTERNET)
        rows = [self.carried, self._put(first), *self._stay(first, start, reader, work, goes)]
        second = first.copy()
        second["arrival"], second["queue"] = start + work, goes
        second = np.concatenate([self._hops, second])
        second.sort(order="arrival", kind="stable")
        due = second["arrival"] < end
        self._hops, second = second[~due], second[due]
        for queue in (LOCAL, INTERNET):
            chosen = second[second["queue"] == queue]
            if len(chosen):
                rows += self._stay(chosen, *self._serve(chosen, queue), None)
        joined = _joined(rows)
        return self._cut(joined, self._base_ns + int(end * NS))

    def _arrivals(self, count: int) -> Vector:
        gaps = self.random.exponential(1.0, count)
        day = np.sin(((self.load.start_s + self.now) / 86400 - 0.3) * 2 * np.pi)
        rate = self.load.rate * (1 + self.load.swing * day)
        return self.now + np.cumsum(gaps / max(rate, 0.05 * self.load.rate))

    def _serve(self, hops: Vector, queue: int) -> tuple[Vector, Vector, Vector]:
        mean = self.load.service[queue]
        work = self.random.lognormal(np.log(mean) - 0.32, 0.8, len(hops))
        done = replay(hops["arrival"], hops["priority"], work, READERS[queue],
                      self._free.get(queue, ()))
        self._free[queue] = done.free
        return done.start, done.reader, work

    def _swap(self, hops: Vector, start: Vector, reader: Vector, work: Vector, count: int) -> None:
        """Exchange neighbours in the order of hand-outs that waited at the same time and stand
        in one line: same priority, same producer."""
        chosen: list[tuple[int, int]] = []
        for key in range(PRODUCERS):
            line = np.flatnonzero((hops["producer"] == key) & (hops["priority"] == 4))
            line = line[np.argsort(start[line], kind="stable")]
            a, b = line[:-1], line[1:]
            fits = np.flatnonzero((hops["arrival"][b] < start[a]) & (start[a] < start[b]))
            chosen += [(int(a[i]), int(b[i])) for i in fits[:1]]
        for one, two in chosen[:count]:
            for array in (start, reader, work):
                array[one], array[two] = array[two], array[one]
            self.swaps.append(int(hops["qpool"][one]))

    def _put(self, hops: Vector) -> Vector:
        rows = _rows(hops, FrameType.PUT, hops["arrival"], 0, self._base_ns)
        rows["client"] = 100 + hops["producer"]
        rows["pid"] = 1000 + hops["producer"]
        rows["attempt"] = 0
        return rows

    def _stay(self, hops: Vector, start: Vector, reader: Vector, work: Vector, goes: Vector | None
              ) -> list[Vector]:
        """The frames of one stay on a queue: hand-outs and what the reader decided. Lists of rows
        whose `given` counts from the GIVE rows' own beginning."""
        queue = int(hops["queue"][0])
        rank = 1 if goes is not None else 10  # at one instant: routed first, then given again
        out: list[Vector] = []
        fails = np.zeros(len(hops), int)
        if goes is None:
            chance = self.random.random((len(hops), ATTEMPTS_MAX)) < self.load.fail_share
            fails = np.cumprod(chance, axis=1).sum(axis=1)
        left, attempt = np.arange(len(hops)), 1
        begin = start.copy()
        while len(left):
            part, at = hops[left], begin[left]
            give = _rows(part, FrameType.GIVE, at, rank + 2 * attempt, self._base_ns)
            _from_reader(give, queue, reader[left])
            give["attempt"] = attempt
            end = at + work[left]
            close = _rows(part, FrameType.DONE, end, rank + 2 * attempt + 1, self._base_ns)
            _from_reader(close, queue, reader[left])
            close["attempt"] = attempt
            close["given"] = np.arange(len(left))
            bad = fails[left] >= attempt
            dead = bad & (attempt == ATTEMPTS_MAX)
            _decide(close, bad, dead, goes)
            out.append(np.concatenate([give, close]))
            left = left[bad & ~dead]
            begin[left] = begin[left] + work[left] + DEFER_S
            attempt += 1
        return out

    def _cut(self, rows: Vector, end_ns: int) -> Vector:
        """What happens before the end of the piece, in order; the rest is carried."""
        order = np.lexsort((rows["rank"], rows["qpool"], rows["time"]))
        place = np.empty(len(rows), "<i8")
        place[order] = np.arange(len(rows))
        rows = rows[order]
        named = rows["given"] >= 0
        rows["given"][named] = place[rows["given"][named]]
        count = int(np.searchsorted(rows["time"], end_ns, side="right"))
        now, later = rows[:count], rows[count:].copy()
        self._pending = later["given"].copy()
        later["given"] -= count  # below 0: its GIVE is among `now`; `give_leases` fills it in
        self.carried = later
        return now

    def give_leases(self, now: Vector) -> None:
        """The LSNs of `now` are known: leases in it and in what is carried."""
        named = now["given"] >= 0
        now["lease"][named] = now["lsn"][now["given"][named]]
        known = (self._pending >= 0) & (self._pending < len(now))
        self.carried["lease"][known] = now["lsn"][self._pending[known]]
        self.carried["given"][known | (self._pending < 0)] = -1

    def moved(self, place: Vector) -> None:
        """The rows of the piece stand elsewhere now: place[i] is where row i went."""
        here = (self._pending >= 0) & (self._pending < len(place))
        self._pending[here] = place[self._pending[here]]
        self._pending[~here & (self._pending >= 0)] = _LATER

    def open_qpools(self) -> Vector:
        """Messages that were routed but whose second stay is still to come."""
        return self._hops["qpool"]

    _pending: Vector


_HOP: Final = np.dtype([("qpool", "<u8"), ("arrival", "<f8"), ("size", "<u8"), ("queue", "<u2"),
                        ("priority", "u1"), ("producer", "<u2")])


def _no_hops() -> Vector:
    return np.zeros(0, _HOP)


def _rows(hops: Vector, kind: FrameType, at: Vector, rank: int, base_ns: int) -> Vector:
    rows = np.zeros(len(hops), ROW)
    rows["type"], rows["flags"] = kind, FrameFlag.PERSISTENT | FrameFlag.REQUEST_END
    rows["time"] = base_ns + (at * NS).astype("<i8")
    rows["given"] = -1
    rows["rank"] = rank
    for name in ("qpool", "size", "queue", "priority"):
        rows[name] = hops[name]
    return rows


def _from_reader(rows: Vector, queue: int, reader: Vector) -> None:
    rows["client"] = queue * 10 + reader
    rows["pid"] = PIDS[queue] + reader


def _decide(close: Vector, bad: Vector, dead: Vector, goes: Vector | None) -> None:
    """Turn DONE rows into what the reader decided."""
    if goes is not None:
        close["type"], close["onto"], close["parts"] = FrameType.MOVE, goes, 1
        return
    close["flags"][~bad] |= np.uint16(FrameFlag.LAST_PART)
    close["type"][bad] = FrameType.DEFER
    close["flags"][bad] |= np.uint16(FrameFlag.FAILED)
    close["argument"][bad] = close["time"][bad] + int(DEFER_S * NS)
    close["reason"][bad] = int(Reason.FAILED)
    close["type"][dead] = FrameType.POISON
    close["target"][dead] = POISON


def _joined(pieces: list[Vector]) -> Vector:
    """One array; `given` is made to count in it."""
    at = 0
    for piece in pieces:
        piece["given"][piece["given"] >= 0] += at
        at += len(piece)
    return np.concatenate(pieces)
