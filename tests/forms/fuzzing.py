"""Hostile request bytes and channels against the server of this process, as many as can be.

    python -m tests.forms.fuzzing COUNT SEED

Requests are made from right ones by overwriting fields; channels are overwritten at random, also
where settlements and batches lie. Every CHECK groups the invariants of the index are asked.
"""

from __future__ import annotations

import random
import sys
from typing import Final

from omq.core.check.invariants import check
from omq.format.wire import REQUEST
from tests.bench.group_cost import Client, World

CHECK: Final = 2_000
FIELDS: Final = [REQUEST.offset(name) for name in REQUEST.names
                 if name not in ("client", "token", "magic", "version")]
EVIL: Final = (b"\xff" * 8, bytes(8), b"\x01" + bytes(7), b"\xff\xff\xff\x7f" + bytes(4),
               bytes(7) + b"\x80", b"\x00\x04" + bytes(6))


def spoilt(r: random.Random, client: Client, raw: bytes) -> bytes:
    """The same request with some fields and some of the channel overwritten."""
    made = bytearray(raw)
    for _ in range(r.randrange(3)):
        at = r.choice(FIELDS)
        size = min(r.choice((1, 2, 4, 8)), len(made) - at)
        made[at : at + size] = (r.choice(EVIL) if r.random() < 0.7 else r.randbytes(8))[:size]
    area = client.session.request
    for _ in range(r.randrange(3)):
        at = r.randrange(r.choice((40, 128, 1280, 8192)))
        area[at : at + 4] = r.choice(EVIL)[:4] if r.random() < 0.7 else r.randbytes(4)
    return bytes(made)


def main(arguments: list[str]) -> int:
    """Fuzz; an exception of the server ends it."""
    count, seed = map(int, arguments)
    r, world, done, groups = random.Random(seed), World(8), 0, 0
    while done < count:
        batch = []
        for each in world.clients:
            if each.session.waiter is not None:
                continue
            if each.session.queue:
                raw = each.next(r.choice((1, 5, 20)))
            else:
                raw = each.put(b"a body", r.choice((1, 2, 13)))
            batch.append(spoilt(r, each, raw))
        world.group(batch)
        for each in world.clients:
            if each.session.sequence >> 62:  # it has used up its numbers
                each.session.sequence = 0
            each.sequence = each.session.sequence
            if each.session.waiter is not None:
                world.engine.cancel(each.session.waiter)
            elif each.session.queue:
                each.look()
        done, groups = done + len(batch), groups + 1
        if not groups % CHECK:
            found = check(world.engine, [each.session.party for each in world.clients])
            assert found == [], found
    fast = getattr(world.server, "fast", 0)
    print(f"form {world.server.form} fast {fast} of {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
