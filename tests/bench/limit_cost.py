"""What limits of work cost the queue manager's processor, without clients, disk and kernel
(tests/bench/group_cost.py): batches of 100 puts and 100 hand-outs with the settlement of those
before, with KEYS messages waiting, each of a key of its own.

    python -m tests.bench.limit_cost [GROUPS]

One line a queue: without limits, with `in_work_max` or a rate alone, and with `key_in_work_max = 1`
and fair turns by a property, and by the group id. Processor microseconds a message: median, lower
quartile; and the rate of messages beside that of the queue without limits.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from omq.base.paths import SpoolPaths
from omq.base.rates import Rate
from omq.core.engine.limit_rules import LimitRules
from omq.format.wire import Operation
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from tests.bench.group_cost import QUEUE, Client, World

KEYS: Final = 100_000
SIZE: Final = 100
BY_PROPERTY: Final = LimitRules(by="property:tenant", key_in_work_max=1, fair=True, keys_max=KEYS)
QUEUES: Final = {
    "no limits": None, "in_work_max": LimitRules(in_work_max=1000),
    "rate": LimitRules(rate=Rate(1, 1_000_000)),
    "keys, property": BY_PROPERTY, "keys, group": replace(BY_PROPERTY, by="group")}


def put(client: Client, body: bytes, first: int, *, groups: bool) -> bytes:
    """A batch, each message of another key."""
    heads, payloads = [], []
    for number in range(first, first + SIZE):
        key = f"tenant{number % KEYS}"
        one = Outgoing(body, group_id=key) if groups else Outgoing(
            body, properties={"tenant": key})
        said = encode_outgoing(one, (QUEUE,), 0, SpoolPaths(Path("/nowhere")), 1 << 18, "bench")
        heads.append(said.head())
        payloads.append(said.payload)
    area = b"".join((*heads, *payloads))
    client.session.request[: len(area)] = area
    return client.packed(Operation.PUT_MANY, queue=QUEUE, count=SIZE,
                         length=sum(map(len, payloads)))


def measure(limits: LimitRules | None, groups: int) -> list[float]:
    """Processor microseconds a message, one number a group."""
    world = World(2, 2 * KEYS + 1000)
    core = world.engine.core
    core.define_queue(replace(core.rules[QUEUE], limits=limits))
    putter, reader = world.clients
    body, out, at, grouped = os.urandom(512), list[float](), 0, bool(limits and limits.by_group)
    while at < KEYS:
        world.group([put(putter, body, at, groups=grouped)])
        at += SIZE
    gc.collect()
    gc.freeze()
    for _ in range(groups):
        batch = [put(putter, body, at, groups=grouped), reader.next(SIZE)]
        begun = time.thread_time_ns()
        world.group(batch)
        out.append((time.thread_time_ns() - begun) / 1000 / SIZE)
        reader.got()
        assert len(reader.held) == SIZE
        at += SIZE
    return out


def main(arguments: list[str]) -> int:
    """Print the table."""
    groups, plain = int(arguments[0]) if arguments else 300, 0.0
    for name, limits in QUEUES.items():
        found = sorted(measure(limits, groups))
        median = statistics.median(found)
        plain = plain or median
        print(f"{name:16} {median:7.2f} {found[len(found) // 4]:7.2f}  {plain / median:5.2f}",
              flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
