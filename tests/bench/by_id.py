"""What it costs the manager's processor to find one message by its id, at several depths.

    python -m tests.bench.by_id [DEPTH...]

One line a depth: processor microseconds of a group with one request for one message (and the end of
the one before): the next of the queue, one by its correlation id, one by its message id, all chosen
at random; and, with so many readers waiting for other messages, of a group with one put that none
of them waits for. Median and quartile. Engine and server alone, as in tests/bench/group_cost.py.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable

from omq.format.wire import Key, Operation
from omq.ipc.wire.outgoing import encode_plain
from tests.bench.group_cost import QUEUE, Client, World

GROUPS = 400
BATCH = 500
WAITING = 100


def fill(world: World, putter: Client, count: int) -> None:
    """Messages with correlation keys; their QPoolIds are 1, 2, ..."""
    for first in range(0, count, BATCH):
        many = min(BATCH, count - first)
        said = encode_plain(QUEUE, b"x" * 10)
        heads = []
        for number in range(first, first + many):
            said.correlation = key(number)
            heads.append(said.head((number - first) * len(said.payload)))
        area = b"".join(heads) + said.payload * many
        putter.session.request[: len(area)] = area
        world.group([putter.packed(Operation.PUT_MANY, queue=QUEUE, count=many,
                                   length=many * len(said.payload))])


def key(number: int) -> int:
    """The correlation key of a message: spread as hashes are."""
    return (1000 + number) * 0x9E3779B97F4A7C15 % (1 << 64)


def get(reader: Client, by: Key, wanted: int, timeout_ms: int = 0) -> bytes:
    """One message by its id, behind the end of what is held."""
    reader.next(0)  # the settlements, of which the request is not sent
    return reader.packed(Operation.GET, count=len(reader.held), want=1, argument=timeout_ms,
                         flags=int(by), correlation=wanted)


def measure(world: World, request: Callable[[], bytes], reader: Client | None) -> str:
    """Of as many groups with one request: median and quartile, in processor microseconds."""
    out = []
    for _ in range(GROUPS):
        raw = request()
        begun = time.thread_time_ns()
        world.group([raw])
        out.append((time.thread_time_ns() - begun) / 1000)
        if reader is not None:
            reader.got()
            assert len(reader.held) == 1, "a message was given"
    out.sort()
    return f"{statistics.median(out):7.1f} {out[len(out) // 4]:7.1f}"


def row(depth: int) -> str:
    """All that is measured at one depth."""
    world = World(2 + 2 * WAITING, depth + 10 * GROUPS)
    putter, reader = world.clients[:2]
    fill(world, putter, depth + 3 * GROUPS)
    left = list(range(GROUPS, depth + 3 * GROUPS))
    random.Random(depth).shuffle(left)
    cells = [measure(world, lambda: reader.next(1), reader)]
    cells.append(measure(world, lambda: get(reader, Key.CORRELATION, key(left.pop())), reader))
    cells.append(measure(world, lambda: get(reader, Key.MESSAGE_ID, left.pop() + 1), reader))
    cells.append(measure(world, lambda: putter.put(b"x", 1), None))
    for number, other in enumerate(world.clients[3::2]):
        world.group([get(other, Key.CORRELATION, 7 + number, -1)])
        if number in (0, WAITING - 1):
            cells.append(measure(world, lambda: putter.put(b"x", 1), None))
    return f"{depth:9}  " + "  ".join(cells)


def main(arguments: list[str]) -> int:
    """Print the table."""
    print("    depth  next             by correlation   by message id    a put: 0, 1, 100 wait")
    for depth in map(int, arguments or ("10", "10000", "1000000")):
        print(row(depth), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
