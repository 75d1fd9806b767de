"""What limits of work cost the queue manager's processor, without clients, disk and kernel
(tests/bench/group_cost.py): batches of 100 puts and 100 hand-outs with the settlement of those
before, with KEYS messages waiting, each of a key of its own.

    python -m tests.bench.limit_cost [GROUPS]
    python -m tests.bench.limit_cost --instance [ROUNDS]

One line a queue: without limits, with `in_work_max` or a rate alone, and with `key_in_work_max = 1`
and fair turns by a property, and by the group id. Processor microseconds a message: median, lower
quartile; and the rate of messages beside that of the queue without limits.

With `--instance` the same with a queue manager, its journal and a client, as a program meets it: by
turns a queue without limits and one with keys by a property, each with KEYS messages waiting. A
round is TURNS batches put, and TURNS taken and settled. Printed are messages a second (put and
taken; medians of the rounds), the ratio of the rounds, and the manager's processor.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import omq
from omq.base.paths import SpoolPaths
from omq.base.rates import Rate
from omq.core.engine.limit_rules import LimitRules
from omq.format.wire import Operation
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from tests.bench.group_cost import QUEUE, Client, World
from tests.bench.instance import MANAGER, POOL_WRITER, Instance

KEYS: Final = 100_000
SIZE: Final = 100
TURNS: Final = 20
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


def with_instance(rounds: int) -> None:
    """See the module."""
    with tempfile.TemporaryDirectory() as made:
        world = Instance(Path(made), 4 * KEYS, ["PLAIN", (
            "KEYED\nlimit_by = property:tenant\nkey_in_work_max = 1\nfair_turns = yes")])
        try:
            for daemon in (MANAGER, POOL_WRITER):
                world.start(daemon)
            rates: dict[str, list[float]] = {"PLAIN": [], "KEYED": []}
            cost = dict.fromkeys(rates, 0.0)
            at = dict.fromkeys(rates, 0)
            with omq.connect(world.paths.root, name="bench") as connection:
                body = os.urandom(512)

                def put(queue: str) -> None:
                    connection.put_many(queue, [
                        Outgoing(body, properties={"tenant": f"tenant{number % KEYS}"})
                        for number in range(at[queue], at[queue] + SIZE)])
                    at[queue] += SIZE

                for queue in rates:
                    while at[queue] < KEYS:
                        put(queue)
                load = os.getloadavg()[0]
                for number in range(rounds):
                    for queue in sorted(rates, reverse=bool(number % 2)):
                        used, began = world.cpu()[MANAGER], time.monotonic()
                        for _ in range(TURNS):
                            put(queue)
                        with connection.reader(queue, batch=SIZE) as reader:
                            for _ in range(TURNS):
                                taken = reader.next(SIZE, 60.0)
                                assert len(taken) == SIZE
                                for each in taken:
                                    each.done()
                            reader.flush()
                        rates[queue].append(SIZE * TURNS / (time.monotonic() - began))
                        cost[queue] += world.cpu()[MANAGER] - used
            ratios = [keyed / plain for keyed, plain in zip(rates["KEYED"], rates["PLAIN"],
                                                            strict=True)]
            for queue, found in rates.items():
                print(f"{queue:16} {statistics.median(found):9,.0f} a second, manager "
                      f"{cost[queue] / (rounds * SIZE * TURNS) * 1e6:5.1f} us")
            print(f"keyed / plain: {statistics.median(ratios):.2f}, from {min(ratios):.2f} to "
                  f"{max(ratios):.2f}; load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
        finally:
            world.kill_all()


def main(arguments: list[str]) -> int:
    """Print the table."""
    if arguments[:1] == ["--instance"]:
        with_instance(int(arguments[1]) if len(arguments) > 1 else 10)
        return 0
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
