"""What messages with a number in their group cost the queue manager's processor, without clients,
disk and kernel (tests/bench/group_cost.py), by OMQ_FAST's form.

    python -m tests.bench.numbered_cost [GROUPS]

`whole groups of N`: one request puts a group of N members, the next settles the group before and
takes this one as a whole. `one by one`: a member is put alone and had as what comes next.
`100 without a number`: a batch of 100 groups and their hand-out, while a group with numbers waits.
Processor microseconds a message: median, lower quartile.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Final

from omq.base.paths import SpoolPaths
from omq.format.wire import SETTLE, Key, Operation
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from tests.bench.group_cost import QUEUE, Client, World

GROUPS: Final = 400
BODY: Final = os.urandom(512)


def put(client: Client, messages: list[Outgoing]) -> bytes:
    """Those, in one request."""
    said = [encode_outgoing(one, (QUEUE,), 0, SpoolPaths(Path("/nowhere")), 1 << 18, "bench")
            for one in messages]
    if len(said) == 1:
        client.session.request[: len(said[0].payload)] = said[0].payload
        return client.packed(Operation.PUT, queue=QUEUE, priority=4, flags=said[0].flags,
                             size=said[0].size, length=len(said[0].payload), crc=said[0].crc)
    area = b"".join((*[one.head() for one in said], *[one.payload for one in said]))
    client.session.request[: len(area)] = area
    return client.packed(Operation.PUT_MANY, queue=QUEUE, count=len(said),
                         length=sum(len(one.payload) for one in said))


def numbered(group: int, count: int) -> list[Outgoing]:
    """All members of a group."""
    return [Outgoing(BODY, group_id=f"group{group}", group_sequence=number,
                     last_in_group=number == count) for number in range(1, count + 1)]


def whole(client: Client, want: int) -> bytes:
    """The settlement of what it holds, and the wish for a whole group."""
    rows = b"".join(SETTLE.pack(1, 0, 0, entry, qpool, lease, 0, 0, 0)
                    for entry, qpool, lease in client.held)
    client.session.request[: len(rows)] = rows
    return client.packed(Operation.GET, count=len(client.held), want=want, argument=-1,
                         flags=int(Key.GROUP))


def measure(size: int, groups: int, *, wholly: bool, waits: bool) -> list[float]:
    """Processor microseconds a message, one number a round."""
    world = World(2)
    putter, reader = world.clients
    if waits:  # its last member never comes
        world.group([put(putter, numbered(-1, 2)[:1])])
        world.group([reader.next(1)])
    gc.collect()
    gc.freeze()
    out = list[float]()
    for turn in range(groups):
        messages = numbered(turn, size) if wholly or not waits else [
            Outgoing(BODY, group_id=f"group{turn * size + each}") for each in range(size)]
        batch = [put(putter, messages), whole(reader, size) if wholly else reader.next(size)]
        begun = time.thread_time_ns()
        world.group(batch)
        out.append((time.thread_time_ns() - begun) / 1000 / size)
        reader.got()
        assert len(reader.held) == size, (len(reader.held), size)
    return out


ROWS: Final = {"whole groups of 100": (100, True, False), "whole groups of 10": (10, True, False),
               "one by one": (1, False, False), "100 without a number": (100, False, True)}


def main(arguments: list[str]) -> int:
    """Print the table."""
    groups = int(arguments[0]) if arguments else GROUPS
    for name, (size, wholly, waits) in ROWS.items():
        found = sorted(measure(size, groups, wholly=wholly, waits=waits))
        print(f"{name:22} {statistics.median(found):7.2f} {found[len(found) // 4]:7.2f}",
              flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
