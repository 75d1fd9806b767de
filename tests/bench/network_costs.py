"""What one message of AMQP costs each daemon, by processor time, way by way:

    python -m tests.bench.network_costs [COUNT [ROUNDS [WAYS...]]]

Ways: `put1` (one at a time, AMQP 1.0), `put` (as credit allows), `take1` (without read-ahead),
`take` (a read-ahead of 100); `put1_091`, `put_091` (batches of 100), `take_091` (a prefetch of 300)
of AMQP 0-9-1. Printed are medians: microseconds a message of amqp.server, of the queue manager and
of pool.writer, messages a second, and voluntary changes of threads of amqp.server a message.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.bench.amqp091_peers import BATCH, Place
from tests.bench.network_clients import Puts, Single, Takes
from tests.bench.peers.rabbit import RabbitWire
from tests.process.amqp_world import PASSWORD, SERVER, AmqpWorld, amqp_world
from tests.process.instance import MANAGER, WRITER

DAEMONS: Final = (SERVER, MANAGER, WRITER)
OLDER: Final = "rabbitmq-classic"
BODY: Final = bytes(100)
AHEAD: Final = 100
WAIT_S: Final = 600
AUTHORITY: Final = "[*]\nuser:daemon = put get browse admin\nuser:nobody = put get browse\n"


def used(pid: int) -> tuple[float, int]:
    """Microseconds of processor of all its threads, exactly, and how often one has waited."""
    spent, waits = 0, 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        spent += int((task / "schedstat").read_text().split()[0])
        status = (task / "status").read_text()
        waits += int(status.rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return spent / 1000, waits


class Older:
    """A client of 0-9-1."""

    def __init__(self, world: AmqpWorld) -> None:
        self._place = Place("omq", world.await_port(), "daemon", PASSWORD, lambda: [])
        opened = self._place.connected()
        opened.channel().queue_declare(OLDER, durable=True, auto_delete=False)
        opened.close()

    def put(self, count: int, together: int) -> None:
        wire = RabbitWire(self._place.connected(), "classic", 0)
        for _ in range(count // together):
            wire.put([BODY] * together)
        wire.close()

    def take(self, count: int) -> None:
        wire = RabbitWire(self._place.connected(), "classic", BATCH)
        while count > 0:
            count -= len(wire.take(BATCH, WAIT_S))
        wire.close()


def ways(world: AmqpWorld) -> dict[str, Callable[[int], None]]:
    """By names; what puts is followed by what takes as many."""
    url, older = world.url, Older(world)
    return {
        "put1": lambda count: Single(url, "A", count).run(),
        "take1": lambda count: Takes(url, "A", count, 1).run(),
        "put": lambda count: Puts(url, "A", count).run(),
        "take": lambda count: Takes(url, "A", count, AHEAD).run(),
        "put1_091": lambda count: older.put(count, 1),
        "take_091": older.take,
        "put_091": lambda count: older.put(count, BATCH),
        "take_all_091": older.take}


def measured(world: AmqpWorld, work: Callable[[int], None], count: int) -> tuple[float, ...]:
    pids = [world.children[name].pid for name in DAEMONS]
    before, began = [used(pid) for pid in pids], time.monotonic()
    work(count)
    wall = time.monotonic() - began
    after = [used(pid) for pid in pids]
    return (*((now[0] - then[0]) / count for now, then in zip(after, before, strict=True)),
            count / wall, (after[0][1] - before[0][1]) / count)


def main(arguments: list[str]) -> int:
    count, rounds = [*map(int, arguments[:2]), *(2000, 3)[len(arguments):]]
    found: dict[str, list[tuple[float, ...]]] = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, amqp_world(Path(folder)) as world:
        world.stop(SERVER)
        (world.conf / "authority.conf").write_text(AUTHORITY)
        world.stop(MANAGER)
        world.start(MANAGER)
        world.ready()
        world.amqp(amqp_users=world.users("daemon"))
        all_ways = ways(world)
        for _ in range(rounds):
            for name, work in all_ways.items():
                if len(arguments) < 3 or name in arguments[2:]:
                    found.setdefault(name, []).append(measured(world, work, count))
    print(f"{rounds} rounds of {count}; load {load:.1f} before, {os.getloadavg()[0]:.1f} behind")
    print(f"{'':14}{'server us':>10}{'manager':>10}{'writer':>10}{'a second':>10}{'waits':>8}")
    for name, rows in found.items():
        middle = [statistics.median(each) for each in zip(*rows, strict=True)]
        print(f"{name:14}" + "".join(f"{each:10.1f}" for each in middle[:4]) + f"{middle[4]:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
