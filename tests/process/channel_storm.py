"""Three instances, channels from WEST to EAST directly and over MID, on bad lines that delay,
stall, cut and go dark, while whatever there is dies by kill -9: each message is there once, as it
was put and in order per producer and priority; of those that are not persistent each at most once,
in order as well. The short one is in test_channel_lines.py; a million messages:

    OMQ_CRASH_LONG=1 python -m pytest -s tests/crash/daemons/test_channel_storm.py

What EAST's own reader gets again is flagged (its manager died): it is none that a channel doubled,
for that is a message of its own.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from omq import Connection, Outgoing
from tests.process.amqp_world import SERVER
from tests.process.bad_line import Weather, bad_line
from tests.process.channel_world import SENDER, Side, sides
from tests.process.instance import MANAGER
from tests.waiting import WAIT_S

ROUTES = {"NEAR": "A", "FAR": "B"}  # remote queues of WEST, and the queues of EAST
PRODUCERS, PRIORITIES = 4, (1, 4, 8)
_READ = 500
PLAIN, TOLD, UNIT, LARGE, FAST = KINDS = ("plain", "told", "unit", "large", "fast")
"""Small; with all that a message may say of itself; put in a unit of work; in a container; not
persistent."""
_WEIGHTS = (80, 8, 6, 1, 5)
LARGE_BYTES, CONTAINED_BYTES = 20_000, 16_384
_Key = tuple[int, int, bool]  # producer, priority, persistent


@dataclass(frozen=True, slots=True)
class Size:
    """Of a storm; bytes are means, see Weather. `window`: messages of a route that are under way
    at most."""

    messages: int
    batch: int
    window: int
    kills: int
    cut_bytes: int
    stall_bytes: int
    stall_s: float
    dark_bytes: int
    dark_s: float
    heartbeat_s: int
    delay_s: float = 0.005


@dataclass
class Told:
    """What came of it."""

    kills: int = 0
    cuts: int = 0
    dark: int = 0
    again: int = 0
    seconds: float = 0.0
    victims: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)  # that came, by kind


def _outgoing(producer: int, priority: int, kind: str, number: int) -> Outgoing:
    """The message, of which all is known by these."""
    body = f"{producer}:{priority}:{kind}:{number}:".encode()
    if kind == LARGE:
        body = body.ljust(LARGE_BYTES + number % 1000, b"%d" % (number % 10))
    if kind != TOLD:
        return Outgoing(body, priority=priority, persistent=kind != FAST)
    return Outgoing(body, priority=priority, persistent=True, expiry_s=86400.0,
                    properties={"number": str(number), "a": "ö\n" * (number % 50)},
                    correlation_id=b"c%d" % number, group_id=f"g{producer}.{priority}.{number}",
                    group_sequence=1, last_in_group=True)


class _Route:
    """One remote queue, and what has to come out of it."""

    def __init__(self, remote: str, count: int, chance: random.Random) -> None:
        self.remote, self.queue, self._count = remote, ROUTES[remote], count
        self.put = self.got = self.again = 0  # of persistent ones
        self._chance = chance
        self._next_put: Counter[_Key] = Counter()
        self._next_got: Counter[_Key] = Counter()
        self.came_of: Counter[str] = Counter()  # by kind

    @property
    def whole(self) -> bool:
        return self.got == self._count

    def some(self, most: int) -> list[tuple[str, Outgoing]]:
        """The next ones, with their kinds."""
        out: list[tuple[str, Outgoing]] = []
        end = min(self.put + most, self._count)
        while self.put < end:
            (kind,) = self._chance.choices(KINDS, _WEIGHTS)
            key = self._chance.randrange(PRODUCERS), self._chance.choice(PRIORITIES), kind != FAST
            out.append((kind, _outgoing(*key[:2], kind, self._next_put[key])))
            self._next_put[key] += 1
            self.put += kind != FAST
        return out

    def came(self, message: Any) -> None:
        """It is the next one of its producer and priority, or was taken before by a reader whose
        manager died; of those that are not persistent some may be missing."""
        words = message.body.split(b":", 4)
        producer, priority, number = int(words[0]), int(words[1]), int(words[3])
        kind = words[2].decode()
        put, said = _outgoing(producer, priority, kind, number), f"{self.remote}: {words[:4]!r}"
        assert message.body == put.body and message.priority == priority, said
        assert message.persistent == put.persistent, said
        if kind == TOLD:
            assert {name: message.properties[name] for name in put.properties} == put.properties
            found = (message.correlation_id, message.group_id, message.group_sequence)
            assert found == (put.correlation_id, put.group_id, 1), (said, found)
        key = producer, priority, kind != FAST
        wanted = self._next_got[key]
        if message.redelivered and number < wanted:
            self.again += 1
            return
        assert number >= wanted if kind == FAST else number == wanted, (
            f"{said} where {wanted} was to come")
        self._next_got[key] = number + 1
        self.got += kind != FAST
        self.came_of[kind] += 1


class _Storm:
    def __init__(self, root: Path, size: Size, seed: int, found: list[Side]) -> None:
        self._root, self._size, self._sides = root, size, found
        self._chance, self.told = random.Random(seed), Told()
        half = size.messages // 2
        self._routes = [_Route("NEAR", half, self._chance),
                        _Route("FAR", size.messages - half, self._chance)]

    def lines(self, stack: ExitStack, seed: int) -> None:
        """Servers, definitions, senders."""
        size = self._size
        west, mid, east = self._sides
        ports = {"MID": mid.serve(), "EAST": east.serve()}
        for number, (side, to) in enumerate(((west, "EAST"), (west, "MID"), (mid, "EAST"))):
            weather = Weather(seed * 10 + number, size.delay_s, size.cut_bytes, size.stall_bytes,
                              size.stall_s, size.dark_bytes, size.dark_s)
            line = stack.enter_context(bad_line(ports[to], weather, self._log(number)))
            side.channel(to, line.port, batchsize=str(size.batch), heartbeat=str(size.heartbeat_s))
        west.remote("NEAR", "EAST", "A")
        west.remote("FAR", "EAST", "B", transmission="MID")
        west.start(SENDER)
        mid.start(SENDER)

    def _log(self, number: int) -> Path:
        return self._root / f"line{number}"

    def blow(self) -> None:
        """Put, take, kill by what has come; until all is there."""
        size, began = self._size, time.monotonic()
        west, _, east = self._sides
        with west.connect("puts") as puts, ExitStack() as stack:
            readers = [stack.enter_context(stack.enter_context(east.connect("takes")).reader(
                route.queue, batch=_READ)) for route in self._routes]
            moved = time.monotonic()
            while not all(each.whole for each in self._routes):
                for route, reader in zip(self._routes, readers, strict=True):
                    room = size.window - (route.put - route.got)
                    if room >= min(size.window // 4, _READ):
                        _put(puts, route.remote, route.some(room))
                    if self._read(reader, route):
                        moved = time.monotonic()
                assert time.monotonic() < moved + size.dark_s + WAIT_S, self._said()
                got = sum(each.got for each in self._routes)
                while self.told.kills < size.kills and got >= (
                        size.messages * (self.told.kills + 1) / (size.kills + 1)):
                    self._kill()
        self.told.seconds = time.monotonic() - began
        self.told.again = sum(each.again for each in self._routes)
        noted = [line for number in range(3) if self._log(number).exists()
                 for line in self._log(number).read_text().splitlines()]
        self.told.dark = sum(line.startswith("dark") for line in noted)
        self.told.cuts = len(noted) - self.told.dark

    @staticmethod
    def _read(reader: Any, route: _Route) -> int:
        count = 0
        for message in reader.next(timeout_s=0.02):
            route.came(message)
            message.done()
            count += 1
        return count

    def _kill(self) -> None:
        west, mid, east = self._sides
        victims = [(west, SENDER), (mid, SENDER), (mid, SERVER), (east, SERVER),
                   *((side, MANAGER) for side in self._sides)]
        side, program = victims[self.told.kills % len(victims)]
        side.kill(program)
        self.told.kills += 1
        self.told.victims[f"{program} of {side.name}"] += 1
        print(f"{sum(each.got for each in self._routes)} are there, {self.told.kills} kills, "
              f"now {program} of {side.name}", flush=True)
        if program == SERVER:
            side.serve()
        else:
            side.start(program)
        if program == MANAGER:
            side.ready()

    def _said(self) -> str:
        return "\n".join([str([(each.remote, each.put, each.got) for each in self._routes]),
                          *(f"{side.name}: {event}" for side in self._sides
                            for event in side.events()[-8:])])

    def settled(self) -> None:
        """Nothing is left that could come again, and nothing came that was not put."""
        for side in self._sides:
            def quiet(side: Side = side) -> bool:
                for route in self._routes if side.name == "EAST" else ():  # fast ones come last
                    with side.connect("takes") as c, c.reader(route.queue, batch=_READ) as reader:
                        self._read(reader, route)
                return not side.in_doubt() and not any(
                    side.depth(queue) for queue in ("A", "B", "SYSTEM.DEAD"))

            side.until(quiet)
        for route in self._routes:
            self.told.kinds += route.came_of


def _put(puts: Connection, remote: str, some: list[tuple[str, Outgoing]]) -> None:
    """In their order; what is of a unit goes with its neighbours of that kind."""
    for of_unit, run in groupby(some, lambda each: each[0] == UNIT):
        messages = [each for _, each in run]
        if not of_unit:
            puts.put_many(remote, messages)
            continue
        with puts.unit() as unit:
            for each in messages:
                unit.put(remote, outgoing=each)


def storm(root: Path, size: Size, seed: int) -> Told:
    """AssertionError: something was lost, doubled, or out of its order."""
    contained = {"container_threshold_bytes": CONTAINED_BYTES}
    with sides(root, "WEST", "MID", "EAST", core=contained) as found, ExitStack() as stack:
        made = _Storm(root, size, seed, found)
        made.lines(stack, seed)
        made.blow()
        made.settled()
        for side in found:
            side.stop(*(each for each in (SENDER, SERVER) if each in side.children))
        return made.told
