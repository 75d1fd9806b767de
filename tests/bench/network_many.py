"""Several clients of AMQP 1.0 at amqp.server, and what a message costs it and its manager:

    python -m tests.bench.network_many [COUNT [CLIENTS [ROUNDS]]]

A round: CLIENTS programs, each with a connection of its own, put COUNT persistent messages of 1 KiB
on one queue, within the credit that they get; then as many take them with a read-ahead of 100.
Printed is each round, and the medians: microseconds of processor time a message of amqp.server, of
the queue manager, and messages a second.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.bench.peers.processes import cpu_of
from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world
from tests.process.instance import MANAGER

BODY_BYTES: Final = 1024
AHEAD: Final = 100


def measured(world: AmqpWorld, what: str, count: int, clients: int) -> tuple[float, ...]:
    """(us of amqp.server, us of the manager, messages a second)."""
    pids = [world.children[name].pid for name in (SERVER, MANAGER)]
    before = [cpu_of([pid]) for pid in pids]
    began = time.monotonic()
    programs = [subprocess.Popen([sys.executable, "-m", "tests.bench.network_many", what, world.url,
                                  str(count // clients)]) for _ in range(clients)]
    assert [each.wait() for each in programs] == [0] * clients
    wall = time.monotonic() - began
    used = [(cpu_of([pid]) - then) / count * 1e6 for pid, then in zip(pids, before, strict=True)]
    return (*used, count / wall)


def client(what: str, url: str, count: int) -> None:
    """One of the programs."""
    from tests.bench import network_clients

    network_clients.BODY = bytes(BODY_BYTES)  # type: ignore[misc]
    if what == "put":
        network_clients.Puts(url, "A", count).run()
    else:
        network_clients.Takes(url, "A", count, AHEAD).run()


def main() -> None:
    words = sys.argv[1:]
    if words and words[0] in ("put", "take"):
        client(words[0], words[1], int(words[2]))
        return
    count, clients, rounds = [*map(int, words), *(20_000, 4, 3)[len(words):]]
    found: dict[str, list[tuple[float, ...]]] = {"put": [], "take": []}
    with tempfile.TemporaryDirectory() as folder, amqp_world(Path(folder)) as world:
        for _ in range(rounds):
            for what, rows in found.items():
                rows.append(measured(world, what, count, clients))
                print(what, *(f"{each:.1f}" for each in rows[-1]), f"load {os.getloadavg()[0]:.1f}",
                      flush=True)
    for what, rows in found.items():
        print(what, "medians:", *(f"{statistics.median(each):.1f}"
                                  for each in zip(*rows, strict=True)))


if __name__ == "__main__":
    main()
