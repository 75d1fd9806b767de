"""Clients of AMQP beside native ones: `make bench-network`, or python -m tests.bench.network [N].

Ratios of one run, by processor time of server and manager (a loaded machine says little by the
clock): put and take of N persistent messages of 100 bytes, one client with a window of credit.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from omq import Outgoing
from tests.bench import network_channels
from tests.bench.network_clients import BODY, Puts, Takes
from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world
from tests.process.instance import MANAGER


def spent(world: AmqpWorld, program: str) -> float:
    """Seconds of processor time of a daemon."""
    stat = Path(f"/proc/{world.children[program].pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / 100


def measured(world: AmqpWorld, name: str, count: int, work: Any) -> None:
    before = [spent(world, each) for each in (SERVER, MANAGER)]
    began = time.monotonic(), time.process_time()
    work()
    wall, own = time.monotonic() - began[0], time.process_time() - began[1]
    server, manager = (spent(world, each) - was
                       for each, was in zip((SERVER, MANAGER), before, strict=True))
    print(f"{name:32} {count / wall:8.0f}/s   us a message: client {own / count * 1e6:5.0f} "
          f"server {server / count * 1e6:5.0f} manager {manager / count * 1e6:5.0f}")


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder, amqp_world(Path(folder)) as world:
        measured(world, "AMQP put", count, Puts(world.url, "A", count).run)
        measured(world, "AMQP take, read-ahead 100", count,
                 Takes(world.url, "A", count, 100).run)
        with world.connect() as native:
            measured(world, "native put_many of 100", count, lambda: native.put_many(
                "A", [Outgoing(BODY)] * count))
        measured(world, "AMQP take, no read-ahead", count // 10,
                 Takes(world.url, "A", count // 10, 1).run)
        measured(world, "native take of 100", count - count // 10, lambda: world.drain("A"))
    network_channels.run(count, print)
    return 0


if __name__ == "__main__":
    sys.exit(main())
