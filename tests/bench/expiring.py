"""What it costs the queue manager when a million messages end in one minute.

    python -m tests.bench.expiring [MESSAGES] [SECONDS]

Messages of one queue, whose times are spread evenly over so many seconds; the manager's loop every
20 ms of that time, as fast as it goes, with a put by somebody else in each. Processor microseconds
of a message that expires, and of a group: median, 99th percentile and longest. Engine and server
alone, as in tests/bench/group_cost.py.
"""

from __future__ import annotations

import sys
import time

from omq.core.engine.expiry import LAG_NS
from omq.format.index import Counter
from omq.format.wire import Operation
from omq.ipc.wire.outgoing import encode_plain
from tests.bench.group_cost import QUEUE, Client, World

NS = 1_000_000_000
BATCH = 500


def fill(world: World, putter: Client, count: int, first_ns: int, each_ns: int) -> None:
    """Messages that end one after the other."""
    for first in range(0, count, BATCH):
        many = min(BATCH, count - first)
        said = encode_plain(QUEUE, b"x" * 10)
        heads = []
        for number in range(first, first + many):
            said.expiry = first_ns + number * each_ns
            heads.append(said.head((number - first) * len(said.payload)))
        area = b"".join(heads) + said.payload * many
        putter.session.request[: len(area)] = area
        world.group([putter.packed(Operation.PUT_MANY, queue=QUEUE, count=many,
                                   length=many * len(said.payload))])


def main(arguments: list[str]) -> int:
    """Print two lines."""
    count = int(arguments[0]) if arguments else 1_000_000
    seconds = float(arguments[1]) if len(arguments) > 1 else 60.0
    world = World(2, count + 20_000)
    putter = world.clients[0]
    wall, mono = time.time_ns(), time.monotonic_ns()
    ahead = 3600 * NS  # behind the time that filling takes
    fill(world, putter, count, wall + ahead, int(seconds * NS) // count)
    counters, groups = world.engine.index.counters, list[float]()
    steps = [NS] * (ahead // NS) + [LAG_NS] * (int(seconds * NS) // LAG_NS + 200)
    left = 0  # groups of the hour before
    for number, step in enumerate(steps):
        wall, mono = wall + step, mono + step
        batch = [putter.put(b"x", 1)]
        while batch or world.engine.next_deadline() <= mono:  # the manager waits for nobody then
            begun = time.thread_time_ns()
            world.writer.offset = 4096
            world.server.due()
            world.server.group(batch, wall, mono, lambda: False)
            groups.append((time.thread_time_ns() - begun) / 1000)
            batch = []
        left = len(groups) if number < ahead // NS else left
    total = int(counters[Counter.EXPIRED])
    assert total == count, f"{total} of {count} have expired"
    idle, groups = groups[:left], groups[left:]
    spent = sum(groups)
    groups.sort()
    print(f"{total} in {seconds:g} s: {spent / total:.2f} us each, {spent / 1e6:.2f} s in all")
    print(f"a group: {groups[len(groups) // 2]:.0f} us, 99 of 100 up to "
          f"{groups[len(groups) * 99 // 100]:.0f}, longest {groups[-1]:.0f}; "
          f"in the hour before: longest {max(idle):.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
