"""What connections that do nothing cost amqp.server: python -m tests.bench.network_idle [COUNT].

COUNT connections each have a session and a link that puts, with credit. Told are the memory
of the server a connection (its private pages), its processor time while nothing happens, and the
rate of one client that puts and takes without and beside them.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.bench.network_clients import Puts, Takes
from tests.bench.peers.processes import cpu_of, pause
from tests.process.amqp_frames import OPENED, attach
from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world

ATTACHED: Final = b"\x00\x53\x12"
FLOWED: Final = b"\x00\x53\x13"
PORTION: Final = 50
"""Connections that begin together."""
IDLE_S: Final = 20.0
FILES: Final = 64
"""Descriptors beside those of the connections."""


def private(pid: int) -> int:
    """Bytes of memory that nobody shares with it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def opened(world: AmqpWorld, count: int) -> list[socket.socket]:
    """So many that are attached and have credit."""
    lines = []
    for first in range(0, count, PORTION):
        some = [socket.create_connection(("127.0.0.1", world.await_port()), 120)
                for _ in range(min(PORTION, count - first))]
        for line in some:
            line.sendall(OPENED + attach(0, "A"))
        for line in some:
            heard = b""
            while ATTACHED not in heard or FLOWED not in heard:
                data = line.recv(1 << 16)
                assert data, heard
                heard += data
        lines += some
    return lines


def rate(world: AmqpWorld, count: int) -> float:
    """Messages a second of a client that puts them all and then takes them."""
    began = time.monotonic()
    Puts(world.url, "A", count).run()
    Takes(world.url, "A", count, 100).run()
    return count / (time.monotonic() - began)


def main(arguments: list[str]) -> int:
    count = int(arguments[0]) if arguments else 1_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * (count + FILES), hard), hard))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, amqp_world(
            Path(folder), amqp_idle_timeout_s=3600, amqp_connections_max=count + FILES,
            amqp_user_connections_max=count + FILES) as world:
        pid = world.children[SERVER].pid
        alone = rate(world, 2_000), rate(world, 2_000)
        before = private(pid)
        lines = opened(world, count)
        behind, used = private(pid), cpu_of([pid])
        pause(IDLE_S)
        used = cpu_of([pid]) - used
        beside = rate(world, 2_000), rate(world, 2_000)
        for line in lines:
            line.close()
    print(f"{count} idle connections with a link each, load {load:.1f}: "
          f"{(behind - before) / count / 1024:.0f} KiB of amqp.server a connection; "
          f"{used / IDLE_S * 1000:.1f} ms of processor a second while nothing happens\n"
          f"put and take a second: alone {alone[0]:.0f}, {alone[1]:.0f}; beside them "
          f"{beside[0]:.0f}, {beside[1]:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
