"""Three instances, channels from WEST to EAST directly and over MID, on bad lines that delay,
stall, cut and go dark, while whatever there is dies by kill -9: each message is there once, in
order per producer and priority. The short one is in test_channel_lines.py; a million messages:

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
from pathlib import Path
from typing import Any

from omq import Outgoing
from tests.process.amqp_world import SERVER
from tests.process.bad_line import Weather, bad_line
from tests.process.channel_world import SENDER, Side, sides
from tests.process.instance import MANAGER
from tests.waiting import WAIT_S

ROUTES = {"NEAR": "A", "FAR": "B"}  # remote queues of WEST, and the queues of EAST
PRODUCERS, PRIORITIES = 4, (1, 4, 8)
_READ = 500


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


class _Route:
    """One remote queue, and what has to come out of it."""

    def __init__(self, remote: str, count: int, chance: random.Random) -> None:
        self.remote, self.queue, self._count = remote, ROUTES[remote], count
        self.put = self.got = self.again = 0
        self._chance = chance
        self._next_put: Counter[tuple[int, int]] = Counter()
        self._next_got: Counter[tuple[int, int]] = Counter()

    @property
    def whole(self) -> bool:
        return self.got == self._count

    def some(self, most: int) -> list[Outgoing]:
        """The next ones."""
        out = []
        for _ in range(min(most, self._count - self.put)):
            key = self._chance.randrange(PRODUCERS), self._chance.choice(PRIORITIES)
            body = "{}:{}:{}".format(*key, self._next_put[key]).encode()
            self._next_put[key] += 1
            self.put += 1
            out.append(Outgoing(body, priority=key[1], persistent=True))
        return out

    def came(self, message: Any) -> None:
        """It is the next one of its producer and priority, or was taken before by a reader whose
        manager died."""
        producer, priority, number = map(int, message.body.split(b":"))
        key, said = (producer, priority), f"{self.remote}: {message.body!r}"
        assert message.priority == priority, said
        wanted = self._next_got[key]
        if message.redelivered and number < wanted:
            self.again += 1
            return
        assert number == wanted, f"{said} where {wanted} was to come"
        self._next_got[key] += 1
        self.got += 1


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
                    if room >= min(size.window // 4, _READ) and (some := route.some(room)):
                        puts.put_many(route.remote, some)
                    if self._read(reader, route):
                        moved = time.monotonic()
                assert time.monotonic() < moved + size.dark_s + WAIT_S, self._said()
                got = sum(each.got for each in self._routes)
                if self.told.kills < size.kills and got >= (
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
                return not side.in_doubt() and not any(
                    side.depth(queue) for queue in ("A", "B", "SYSTEM.DEAD"))

            side.until(quiet)


def storm(root: Path, size: Size, seed: int) -> Told:
    """AssertionError: something was lost, doubled, or out of its order."""
    with sides(root, "WEST", "MID", "EAST") as found, ExitStack() as stack:
        made = _Storm(root, size, seed, found)
        made.lines(stack, seed)
        made.blow()
        made.settled()
        for side in found:
            side.stop(*(each for each in (SENDER, SERVER) if each in side.children))
        return made.told
