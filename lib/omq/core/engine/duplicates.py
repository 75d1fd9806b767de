"""Duplicates: what has the id of a message that its queue took within the last `dedupe_s` seconds
is not put a second time (ADR 0047).

Which ids a queue has taken is remembered by messages. Whoever puts one with an id of its own puts a
second one by the same request: on IDEL, DEFERRED until its time is over, with the id and the hash
of the queue's name, without a body. So it is redone, checkpointed, copied and loaded as every
message is, and idel.server ends it. In this process `_until` has the same, for the question.

What a memory says is of the name of a queue: it holds for whatever queue has that name.

Invariants: 1. the message and its memory are born in one unit of work, so there is never one
without the other; 2. nothing is remembered that was not put: a request is judged before it changes
anything, and `born` follows the frame; 3. a queue has `dedupe_keys_max` memories at most, then it
takes no more ids (KeysFull): none is forgotten before its time.

In the middle of a crash: both frames are in one block. A memory is as durable as its message:
that of one that is not persistent is gone with it. A start rounds its time up to seconds.

Errors: DuplicateKey, DuplicateAbsorbed, KeysFull, NoDeduplication, UnitTooLarge; nothing has
changed then.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from omq.base.checksum import crc32c
from omq.base.errors import (
    DuplicateAbsorbed,
    DuplicateKey,
    KeysFull,
    NoDeduplication,
    UnitTooLarge,
)
from omq.base.names import message_id_text
from omq.core.engine.new_message import NewMessage
from omq.format import message as message_format
from omq.format.index import Counter
from omq.format.journal import FrameFlag
from omq.format.message import Descriptor, Part
from omq.format.wire import PutFlag

if TYPE_CHECKING:
    from omq.core.engine.rules_of_queue import QueueRules
    from omq.core.engine.state import Core

MEMORY: Final = int(FrameFlag.MEMORY)
"""In the flags of a NewMessage, which a client cannot set."""
_IDEL: Final = 1
_PERSISTENT, _CONTAINER = int(PutFlag.PERSISTENT), int(PutFlag.CONTAINER)
_UNIQUE, _COUNT = int(PutFlag.UNIQUE), int(Counter.DUPLICATES)


def name_key(queue: str) -> int:
    """What a memory knows of its queue."""
    return message_format.id_hash(queue.encode())


@dataclass(slots=True)
class _Known:
    """What one name has had: id -> monotonic ns, ascending but for those in `early`, which came
    when `dedupe_s` had been made shorter, behind others that stay longer (a heap)."""

    until: dict[bytes, int] = field(default_factory=dict)
    early: list[tuple[int, bytes]] = field(default_factory=list)
    latest: int = 0  # of all that it has had

    def learn(self, identifier: bytes, until: int) -> None:
        self.until.pop(identifier, None)  # the newest stand last
        self.until[identifier] = until
        if until < self.latest:
            heappush(self.early, (until, identifier))
        self.latest = max(self.latest, until)

    def drop_over(self, now: int) -> None:
        """Those whose time is over, oldest first."""
        until, early = self.until, self.early
        while early and early[0][0] <= now:
            over, identifier = heappop(early)
            if until.get(identifier) == over:
                del until[identifier]
        while until:
            oldest = next(iter(until))
            if until[oldest] > now:
                break
            del until[oldest]


class Duplicates:
    """See the module."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}  # by name_key
        self._loaded: dict[int, dict[bytes, int]] = {}  # of a start: wall ns, by name_key
        self._order: list[tuple[int, int, bytes]] = []  # the same, what is over first at the end

    def judged(self, core: Core, new: Sequence[NewMessage], frames: int = 0
               ) -> tuple[Sequence[NewMessage], int]:
        """What is to be put of these messages of one request: without those that are absorbed, and
        after them the memories; how many are absorbed. Their QPoolIds stay unused, so that those
        of the others follow each other as the client counts them. `frames`: others of it."""
        if not any(each.key for each in new):
            return new, 0
        kept: list[NewMessage] = []
        memories: list[NewMessage] = []
        fresh: set[tuple[int, bytes]] = set()
        rules_by_key: dict[int, QueueRules] = {}
        absorbed = skipped = 0
        for each in new:
            queues = watching(core, each) if each.key else []
            if queues and self._is_known(core, each, queues, fresh):
                absorbed += 1
                skipped += 1
                continue
            each.skips, skipped = skipped, 0
            kept.append(each)
            identifier = message_format.id_of(each.payload) if queues else b""
            for rules in queues:
                key = name_key(rules.name)
                fresh.add((key, identifier))
                rules_by_key[key] = rules
                memories.append(_memory(core, each, identifier, rules))
        self._check_room(core, fresh, rules_by_key)
        if memories and len(kept) + len(memories) + frames > core.block.frames_max:
            raise UnitTooLarge(limit=core.block.frames_max, what="messages and remembered ids",
                               key="block_frames_max")
        core.t.counters[_COUNT] += absorbed
        return [*kept, *memories], absorbed

    def born(self, core: Core, payload: bytes | memoryview, until_ns: int) -> None:
        """The frame of a memory was written."""
        key, identifier = message_format.memory_of(payload)
        self._learn(key, identifier, core.mono_ns + until_ns - core.now_ns)

    def load(self, core: Core, found: Iterable[tuple[int, int, bytes]]) -> None:
        """A start: (wall clock ns, name_key, id) of the memories that the pool has. That clock
        says how long they are remembered."""
        self._order = sorted(found, reverse=True)
        for until_ns, key, identifier in reversed(self._order):
            self._loaded.setdefault(key, {})[identifier] = until_ns

    def drop_loaded(self, wall_ns: int) -> None:
        """Those that a start has found and whose time is over."""
        while self._order and self._order[-1][0] <= wall_ns:
            until_ns, key, identifier = self._order.pop()
            if self._loaded[key].get(identifier) == until_ns:
                del self._loaded[key][identifier]

    def known(self, core: Core, queue: str) -> tuple[Mapping[bytes, int], Mapping[bytes, int]]:
        """The ids that this queue remembers, and until when: since the start by the monotonic
        clock, and those from before by the wall clock. Those whose time is over are dropped."""
        key = name_key(queue)
        self.drop_loaded(core.now_ns)
        known = self._known.get(key)
        if known is not None:
            known.drop_over(core.mono_ns)
        return known.until if known is not None else {}, self._loaded.get(key, {})

    def count(self, core: Core, queue: str) -> int:
        """How many ids this queue remembers."""
        return sum(map(len, self.known(core, queue)))

    def items(self) -> Iterable[tuple[int, bytes, int]]:
        """All of it, for checks."""
        return [(key, identifier, until)
                for listed in ({key: known.until for key, known in self._known.items()},
                               self._loaded)
                for key, ids in listed.items() for identifier, until in ids.items()]

    def _learn(self, key: int, identifier: bytes, until: int) -> None:
        self._known.setdefault(key, _Known()).learn(identifier, until)

    def _is_known(self, core: Core, new: NewMessage, queues: Sequence[QueueRules],
                  fresh: set[tuple[int, bytes]]) -> bool:
        """Whether all of its queues that remember ids have had it: then it is absorbed, if they are
        told to. Its client removes its container when it is refused (DuplicateAbsorbed), and puts
        it by itself therefore. DuplicateKey."""
        identifier = message_format.id_of(new.payload)
        had = [rules for rules in queues
               if (name_key(rules.name), identifier) in fresh
               or any(identifier in ids for ids in self.known(core, rules.name))]
        if not had:
            return False
        absorbs = len(had) == len(queues) and all(rules.absorbs for rules in had)
        if not absorbs or new.flags & _CONTAINER:
            core.t.counters[_COUNT] += 1
            kind = DuplicateAbsorbed if absorbs else DuplicateKey
            raise kind(key=message_id_text(identifier), queue=had[0].name)
        return True

    def _check_room(self, core: Core, fresh: Iterable[tuple[int, bytes]],
                    rules_by_key: dict[int, QueueRules]) -> None:
        for key, count in Tally(key for key, _ in fresh).items():
            rules = rules_by_key[key]
            if self.count(core, rules.name) + count > rules.dedupe_keys_max:
                raise KeysFull(queue=rules.name, limit=rules.dedupe_keys_max)


def watching(core: Core, new: NewMessage) -> list[QueueRules]:
    """The queues of a message that remember ids. NoDeduplication: it asks for one, and none is."""
    queues = [part.queue for part in message_format.parts_in(new.payload, new.parts)
              ] if new.parts else [new.queue]
    found = [rules for queue in queues if (rules := core.rules.get(queue)) and rules.dedupe_ns]
    if not found and new.flags & _UNIQUE:
        named = core.rules.get(queues[0])
        raise NoDeduplication(queue=named.name if named else str(queues[0]))
    return found


def _memory(core: Core, new: NewMessage, identifier: bytes, rules: QueueRules) -> NewMessage:
    payload = message_format.encode(
        Descriptor(message_id=identifier, trace_id=name_key(rules.name).to_bytes(16, "little")),
        (Part.later(_IDEL, 0, core.now_ns + rules.dedupe_ns),), b"", b"")
    return NewMessage(_IDEL, 0, MEMORY | new.flags & _PERSISTENT, 0, crc32c(payload), 0, 0, 0, 1,
                      payload)
