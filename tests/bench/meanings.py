"""What groups, units of work and their second phase cost beside plain work, by turns.

    python -m tests.bench.meanings [ROUNDS] [SECONDS]

Four clients put and four get 1 KiB bodies, or four do both in units. A line tells messages a second
and processor microseconds of a message, of queue.manager and of the clients: the medians of the
rounds, which begin with another work each.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import omq
from tests.bench.instance import MANAGER
from tests.bench.options import end_in_order
from tests.bench.peers.bench_peers import folder
from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.processes import cpu_of
from tests.bench.peers.round_trips import forked

BODY: Final = b"x" * 1024
CLIENTS: Final = 4
Work = Callable[[Path, int, float], int]
_GROUPS: Final = 1000


def putting(batch: int, *, grouped: bool) -> Work:
    """Puts until the time is over; how many is not told: what was got counts."""

    def work(spool: Path, number: int, ends: float) -> int:
        turn = number
        with omq.connect(spool=spool, name=f"puts{number}") as connection:
            while time.monotonic() < ends:
                messages = []
                for _ in range(batch):
                    turn += CLIENTS
                    group = b"g%d" % (turn % _GROUPS) if grouped else b""
                    messages.append(omq.Outgoing(BODY, group_id=group))
                if batch == 1:
                    connection.put("A", BODY, group_id=messages[0].group_id)
                else:
                    connection.put_many("A", messages)
        return 0

    return work


def getting(batch: int) -> Work:
    def work(spool: Path, number: int, ends: float) -> int:
        count = 0
        with omq.connect(spool=spool, name=f"gets{number}") as connection, \
                connection.reader("A", batch=batch) as reader:
            while time.monotonic() < ends:
                for message in reader.next(timeout_s=0.1):
                    message.done()
                    count += 1
        return count

    return work


def in_units(size: int, *, prepared: bool) -> Work:
    """Each unit takes `size` messages from A and puts as many there; `prepared`: in two phases."""

    def work(spool: Path, number: int, ends: float) -> int:
        count = 0
        with omq.connect(spool=spool, name=f"unit{number}") as connection:
            connection.put_many("A", [BODY] * size)
            while time.monotonic() < ends:
                with connection.unit() as unit:
                    taken = unit.next("A", size, timeout_s=1.0)
                    for message in taken:
                        unit.put("A", message.body)
                    if prepared and taken:
                        unit.prepare(f"{number}-{count}")
                        unit.commit()
                count += len(taken)
        return count

    return work


WORKS: Final[dict[str, tuple[Work, ...]]] = {
    "single": (putting(1, grouped=False), getting(1)),
    "single, 1,000 groups": (putting(1, grouped=True), getting(1)),
    "batch 100": (putting(100, grouped=False), getting(100)),
    "batch 100, 1,000 groups": (putting(100, grouped=True), getting(100)),
    **{f"units of {n}": (in_units(n, prepared=False),) for n in (1, 10, 100)},
    **{f"units of {n}, two phases": (in_units(n, prepared=True),) for n in (1, 10, 100)},
}


def measure(peer: OmqPeer, works: tuple[Work, ...], seconds: float) -> tuple[float, float, float]:
    """Messages a second, microseconds of the manager and of the clients for one."""
    spool = peer.instance.paths.root
    manager = [peer.instance.pid(MANAGER)]
    before, ends = cpu_of(manager), time.monotonic() + seconds
    running = [forked(partial(work, spool), n, ends)
               for work in works for n in range(CLIENTS)]
    count, own = 0, 0.0
    for pid, heard in running:
        _, status, used = os.wait4(pid, 0)
        assert status == 0
        count += int(os.read(heard, 64) or b"0")
        own += used.ru_utime + used.ru_stime
        os.close(heard)
    spent = cpu_of(manager) - before
    with omq.connect(spool=spool, name="clears") as connection:
        connection.queues.clear("A")
    return count / seconds, 1e6 * spent / max(1, count), 1e6 * own / max(1, count)


def main(arguments: list[str]) -> int:
    """Print the table."""
    rounds = int(arguments[0]) if arguments else 3
    seconds = float(arguments[1]) if len(arguments) > 1 else 3.0
    end_in_order()
    root = folder("meanings-")
    peer, found = OmqPeer(root), dict[str, list[Any]]()
    names = list(WORKS)
    try:
        peer.start()
        with omq.connect(spool=peer.instance.paths.root, name="makes") as connection:
            connection.queues.define("A", attempts_max=100)
        for number in range(rounds):
            for name in names[number % len(names):] + names[: number % len(names)]:
                found.setdefault(name, []).append(measure(peer, WORKS[name], seconds))
    finally:
        peer.stop()
        shutil.rmtree(root)
    sys.stdout.write(f"load average {os.getloadavg()[0]:.1f}, {rounds} rounds of {seconds:g} s\n")
    for name, rows in found.items():
        rate, manager, own = (statistics.median(column) for column in zip(*rows, strict=True))
        sys.stdout.write(f"{name:26} {rate:8,.0f} /s  manager {manager:6.1f} us  "
                         f"clients {own:6.1f} us\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
