"""Hostile request bytes and channels against the server of this process, as many as can be.

    python -m tests.forms.fuzzing COUNT SEED

Requests are made from right ones of all kinds (tests.forms.fuzz_requests) by overwriting fields;
channels are overwritten at random, also where settlements and batches lie. Every CHECK groups the
invariants of the index are asked. The seed says, too, how large the index is, for a small one is
full for most of the time, and which limits of work its queues have.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from typing import Final

from omq.core.check.invariants import check
from omq.core.engine.limit_rules import LimitRules
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import POISON
from omq.format.wire import REQUEST, Operation
from tests.bench.group_cost import QUEUE, Client, World
from tests.forms.fuzz_requests import OTHER, Requests

CHECK: Final = 2_000
SAY: Final = 50  # checks between two lines that say how far it is
PLAIN: Final = (0.5, 0.98, 1.0)  # shares; what came back keeps its queue from the fast path a while
PHASE: Final = 100  # groups
MESSAGES: Final = (2_000, 20_000, 100_000)  # that the index has room for
_KEYS: Final = LimitRules(by="property:colour", key_in_work_max=1, fair=True)
LIMITS: Final = (None, _KEYS, replace(_KEYS, by="group", in_work_max=20),
                 LimitRules(in_work_max=30), replace(_KEYS, key_in_work_max=5, fair=False))
NAMES: Final = {int(operation): operation.name for operation in Operation}
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
    """Fuzz; an exception of the server ends it. How many of each kind were carried out is said."""
    count, seed = map(int, arguments)
    r, done, groups = random.Random(seed), 0, 0
    world = World(8, MESSAGES[seed % len(MESSAGES)])
    limits = LIMITS[seed % len(LIMITS)]
    world.engine.books.define_queues([QueueRules(QUEUE, "BENCH", 10**7, 10**6, limits=limits),
                                      QueueRules(OTHER, "OTHER", 10**7, 10**6, limits=limits)])
    world.clients[-3].session.queue = OTHER
    world.clients[-1].session.queue = POISON  # else what fails again and again fills the index
    clients = [Requests(r, each) for each in world.clients]
    for each in clients:
        each.keyed = limits is not None
    carried_out: Counter[str] = Counter()
    while done < count:
        if not groups % PHASE:
            share = r.choice(PLAIN)
            for each in clients:
                each.plain = share
        asked = {each: spoilt(r, each.client, each.one()) for each in clients
                 if each.client.session.waiter is None}
        world.group(list(asked.values()))
        for each in clients:
            session = each.client.session
            if session.sequence >> 62:  # it has used up its numbers
                session.sequence = 0
            each.client.sequence = session.sequence
            if session.waiter is not None:
                world.engine.cancel(session.waiter)
            else:
                each.answered()
            raw = asked.get(each)
            if raw is not None and not any(session.reply[2:4]):
                carried_out[_name(raw)] += 1
        done, groups = done + len(asked), groups + 1
        if not groups % CHECK:
            found = check(world.engine, [each.session.party for each in world.clients])
            assert found == [], found
            if not groups // CHECK % SAY:
                print(f"{done:,} of {count:,}", file=sys.stderr, flush=True)
    fast = getattr(world.server, "fast", 0)
    print(*(f"{name} {number}" for name, number in sorted(carried_out.items())))
    print(f"form {world.server.form} fast {fast} of {done}")
    return 0


def _name(raw: bytes) -> str:
    return NAMES.get(raw[0], "none")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
