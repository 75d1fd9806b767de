"""Right requests of all kinds that a client of the request queue can send, for tests.forms.fuzzing
to spoil: what is plain, and everything that the fast path must leave to the engine.

A client without a queue puts, and takes for units of work; one with a queue reads.
"""

from __future__ import annotations

import random

from omq.format.message import (
    LAST_IN_GROUP,
    Part,
    derived_id,
    encode_properties,
    id_hash,
    pack_parts,
)
from omq.format.wire import GIVEN, REPLY, SETTLE, Key, Operation, Settlement
from omq.ipc.wire.outgoing import Encoded, encode_plain
from tests.bench.group_cost import QUEUE, UUID, Client
from tests.model.driver import draft, encoded

OTHER = QUEUE + 1
NAMES = (b"unit0", b"unit1", b"unit2")
KEYS = (b"first", b"second")
GROUPS = (b"", b"g", b"h", *(b"%d" % number for number in range(30)))
PROPERTIES = (b"", b"\xff" * 20, *(encode_properties({"tone": "x" * size, "colour": colour})
                                    for size in (1, 700) for colour in ("red", "blue", "")))
HANDED_OUT = frozenset({Operation.NEXT, Operation.GET, Operation.TAKE, Operation.ASK})
Held = tuple[int, int, int]  # entry, QPoolId, lease


class Requests:
    """Of one client: `one` makes its next request, `answered` looks at what it got. `plain`: the
    share of what the fast path could take; `keyed`: it puts for a queue with keys."""

    def __init__(self, r: random.Random, client: Client) -> None:
        self._r, self.client, self._last = r, client, Operation.PING
        self._staged = 0
        self.plain, self.keyed = 1.0, False

    def one(self) -> bytes:
        """The next request."""
        r, client = self._r, self.client
        plain = r.random() < self.plain
        if client.session.queue:
            if plain:
                self._last = Operation.NEXT
                return client.next(r.choice((1, 5, 20)))
            return r.choice((self._settle, self._settle, self._get, self._look, self._move,
                             self._move_many, self._ping, self._ask))()
        if plain and self.keyed and r.random() < 0.7:
            return self._put_keys()
        if plain:
            self._last = Operation.PUT
            return client.put(b"a body", r.choice((1, 2, 13)))
        return r.choice((self._put, self._take, self._part, self._part, self._backout,
                         self._resolve, self._cancel, self._relocate))()

    def answered(self) -> None:
        """What it holds now; whatever it asked, no exception."""
        client = self.client
        found = REPLY.unpack_from(client.session.reply)
        if found[1] == 0 and found[3] == client.session.sequence and self._last in HANDED_OUT:
            rows = [GIVEN.unpack_from(client.session.reply, REPLY.size + i * GIVEN.size)
                    for i in range(min(found[4], 100))]
            client.held = [(row[0], row[4], row[5]) for row in rows]

    def _packed(self, operation: Operation, area: bytes, **fields: int) -> bytes:
        self._last = operation
        self.client.session.request[: len(area)] = area
        return self.client.packed(operation, **fields)

    def _rows(self, held: list[Held], kind: int, arguments: tuple[int, ...] = (0,)) -> bytes:
        return b"".join(SETTLE.pack(kind, 0, 0, *each, self._r.choice(arguments), 0, 0)
                        for each in held)

    def _some(self) -> list[Held]:
        """Some of what it holds, which it forgets."""
        held = self.client.held
        count = self._r.randrange(len(held) + 1)
        self.client.held = held[count:]
        return held[:count]

    def _new(self, count: int) -> tuple[bytes, bytes]:
        """Heads and payloads of so many new messages, some with ids or a time."""
        r, heads, at = self._r, [], 0
        said: list[Encoded] = []
        for _ in range(count):
            one = encode_plain(r.choice((QUEUE, OTHER)), r.randbytes(r.choice((0, 1, 300))))
            one.correlation = id_hash(r.choice(KEYS)) if r.random() < 0.3 else 0
            one.expiry = r.choice((0, 0, 0, -1, 1 << 40))
            heads.append(one.head(at))
            at += len(one.payload)
            said.append(one)
        return b"".join(heads), b"".join(one.payload for one in said)

    def _put_keys(self) -> bytes:
        """A batch whose messages have groups and properties."""
        r, count, heads, at = self._r, self._r.choice((1, 2, 13)), [], 0
        said = [encoded(draft([Part(QUEUE, r.choice((4, 4, 9)))], b"a body",
                              persistent=r.random() < 0.99, group=r.choice(GROUPS),
                              properties=r.choice(PROPERTIES))) for _ in range(count)]
        for one in said:
            heads.append(one.head(at))
            at += len(one.payload)
        return self._packed(Operation.PUT_MANY, b"".join((*heads, *(one.payload for one in said))),
                            queue=QUEUE, count=count, length=at)

    # of a reader

    def _settle(self) -> bytes:
        r = self._r
        touches = r.random() < 0.3
        held = list(self.client.held) if touches else self._some()
        kind = 0 if touches else r.choice(list(Settlement))
        area = self._rows(held, kind, (0, 1, 1_000_000))
        return self._packed(Operation.TOUCH if touches else Operation.SETTLE, area,
                            count=len(held))

    def _get(self) -> bytes:
        r, by = self._r, self._r.choice(list(Key))
        key = id_hash(r.choice(KEYS)) if by == Key.CORRELATION else r.randrange(1 << 20)
        return self._packed(Operation.GET, self._rows(held := self._some(), Settlement.DONE),
                            count=len(held), want=r.choice((1, 20)), flags=int(by),
                            correlation=key, size=r.randrange(300), argument=r.choice((0, 1, -1)))

    def _look(self) -> bytes:
        return self._packed(Operation.LOOK, b"", want=self._r.choice((1, 50)),
                            argument=self._r.choice((0, 1)))

    def _move(self) -> bytes:
        r, held = self._r, self.client.held
        first = held.pop() if held else (0, 1, 1)
        parts = [Part(queue, 4) for queue in r.sample((QUEUE, OTHER), r.randrange(3))]
        heads, payloads = self._new(count := r.randrange(3))
        area = b"".join((self._rows([first], 0), pack_parts(parts), heads, payloads))
        goes_on = r.random() < 0.4
        return self._packed(Operation.MOVE, area, parts=len(parts), count=count,
                            length=len(payloads), want=r.choice((1, 20)) if goes_on else 0,
                            argument=r.choice((0, 1)) if goes_on else 0)

    def _ask(self) -> bytes:
        r = self._r
        one = encode_plain(r.choice((QUEUE, OTHER)), r.randbytes(r.choice((0, 1, 300))))
        rows = self._rows(held := self._some(), Settlement.DONE)
        return self._packed(
            Operation.ASK, rows + one.payload, count=len(held), queue=one.queue,
            priority=one.priority, flags=one.flags, length=len(one.payload), size=one.size,
            crc=one.crc, want=r.choice((1, 1, 5)), argument=r.choice((0, 1, 1, -1)),
            expiry=r.choice((0, 0, -1, 1 << 40)))

    def _move_many(self) -> bytes:
        held = self._some()
        counts = [self._r.randrange(3) for _ in held]
        rows = b"".join(self._rows([each], Settlement.DONE, (count,))
                        for each, count in zip(held, counts, strict=True))
        heads, payloads = self._new(sum(counts))
        return self._packed(Operation.MOVE_MANY, rows + heads + payloads, parts=len(held),
                            count=sum(counts), length=len(payloads))

    def _ping(self) -> bytes:
        return self._packed(Operation.PING, b"")

    # of who puts

    def _put(self) -> bytes:
        """With an id, with a time, of a group, or on two queues."""
        r = self._r
        parts = [Part(queue, 4, 0, r.choice((0, 0, 1 << 31)))
                 for queue in r.choice(((QUEUE,), (OTHER,), (QUEUE, OTHER)))]
        said = encoded(draft(parts, b"another", persistent=r.random() < 0.8,
                             group=r.choice((b"", b"g", b"h")),
                             number=r.choice((0, 0, 0, 0, 1, 2 | LAST_IN_GROUP))),
                       correlation=r.choice(KEYS), given=b"given" if r.random() < 0.3 else b"")
        return self._packed(Operation.PUT, said.payload, queue=said.queue, priority=said.priority,
                            flags=said.flags, size=said.size, crc=said.crc, parts=said.parts,
                            length=len(said.payload), want=said.key,
                            correlation=said.correlation, expiry=r.choice((0, -1, 1 << 40)))

    def _take(self) -> bytes:
        r, by = self._r, self._r.choice((0, 0, 0, 1, 2))
        return self._packed(Operation.TAKE, b"", queue=r.choice((QUEUE, OTHER)),
                            want=r.choice((1, 5)), argument=r.choice((0, 1)), flags=by,
                            correlation=id_hash(r.choice(KEYS)) if by else 0)

    def _part(self) -> bytes:
        """Of a unit of work: a stage of it, its commit or its preparation."""
        r = self._r
        operation = r.choice((Operation.STAGE, Operation.COMMIT, Operation.PREPARE))
        held, name = self._some(), r.choice(NAMES)
        heads, payloads = self._new(count := r.randrange(3))
        self._staged += count
        area = self._rows(held, Settlement.DONE) + heads + payloads + name
        said = {"parts": len(held), "count": count, "length": len(payloads),
                "argument": len(held), "want": self._staged}
        if operation != Operation.STAGE:
            self._staged = 0
        return self._packed(operation, area, queue=len(name), **said)

    def _backout(self) -> bytes:
        held, self.client.held = self.client.held, []
        self._staged = 0
        return self._packed(Operation.BACKOUT, self._rows(held, Settlement.DONE),
                            parts=len(held), want=1)

    def _resolve(self) -> bytes:
        name = self._r.choice(NAMES)
        return self._packed(Operation.RESOLVE, name, length=len(name), want=self._r.randrange(2))

    def _cancel(self) -> bytes:
        r = self._r
        said = derived_id(UUID, r.randrange(1, 200)) if r.random() < 0.8 else r.randbytes(24)
        return self._packed(Operation.CANCEL, said, length=r.choice((24, 24, 24, 7)))

    def _relocate(self) -> bytes:
        return self._packed(Operation.RELOCATE, self._r.randbytes(64), length=64)
