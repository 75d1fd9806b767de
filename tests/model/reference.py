"""What queues are, in plain Python: the rules of the README with nothing of the engine's
tables, heaps, journal or pool. A message is an object, a queue is whatever places say that they are
on it, time is two numbers, and the disk is one number a place.

Only the order in which several messages reach POISON in one step is left open (`tied`): they come
in the order of the index's rows, which nobody is promised.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from omq.base import errors
from omq.core.engine.operate import Action, Order
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import IDEL, POISON
from omq.format.index import EntryState
from omq.format.message import LAST_IN_GROUP, Descriptor, Part, encode, id_hash
from omq.format.wire import Key, Settlement

NS = 1_000_000_000
READY, ACTIVE = EntryState.READY, EntryState.ACTIVE
DEFERRED, HELD, PREPARED = EntryState.DEFERRED, EntryState.HELD, EntryState.PREPARED
Refusal = type[errors.OmqError] | None


@dataclass(eq=False)
class Place:
    """A message on one queue."""

    queue: int
    priority: int
    order: float
    state: EntryState = READY
    attempts: int = 0
    retries: int = 0
    until_ns: int = 0  # wall clock, when DEFERRED
    due_ns: int | None = 0  # the same by the monotonic clock, or None: it follows the wall clock
    client: int | None = None  # who has it, None and ACTIVE = limbo
    lease: int = 0
    lease_due: int = 0
    disk_until: int = 0  # seconds: what a restart finds, 0 = not deferred
    tied: bool = False
    fate: Verdict | bool | None = None  # in limbo, by a note: settled; was it in work?
    suspect: bool = False  # it may be why a manager died: it is handed out alone
    for_good: bool = False  # deleted by an operator, and only its container is there still


@dataclass(eq=False)
class Item:
    """A message."""

    qpool: int
    payload: bytes
    size: int
    persistent: bool = True
    container: bool = False
    origin: int = 0
    replayed: bool = False
    expiry: int = 0  # wall clock
    over_at: int | None = None  # the same by the monotonic clock, or by the wall clock:
    by_clock: bool = False  # a start has found it
    over: bool = False
    key: int = 0  # of a given message id; else its number
    correlation: int = 0  # the same of the correlation id
    group: int = 0  # the same of its group
    number: int = 0  # in it, with LAST_IN_GROUP
    remembers: tuple[int, int] | None = None  # not a message: queue and key that it has had
    known_until: int = 0  # of what it remembers, likewise; who reads IDEL may put it off for later
    places: dict[int, Place] = field(default_factory=dict)
    failed: tuple[int, Place] | None = None  # on this queue, and so it came to that place
    most_places: int = 0  # at one time: a record with many has no room for why it failed
    started: bool = False  # a manager has read its record since it failed
    names: tuple[int, ...] = ()  # of a barrier that has not left its queue: its members

    @property
    def failed_on(self) -> int:
        """The queue on which it failed its way to where it still is; 0: it did not."""
        if self.failed is None or self.places.get(self.failed[1].queue) is not self.failed[1]:
            return 0
        return self.failed[0]


@dataclass
class Draft:
    """A message to be."""

    parts: list[Part]
    payload: bytes
    size: int
    persistent: bool
    container: bool
    expiry: int = 0
    key: int = 0  # of its ids, 0: none was given
    correlation: int = 0
    group: int = 0
    identifier: bytes = b""  # that was given
    number: int = 0  # in its group, with LAST_IN_GROUP
    names: tuple[int, ...] = ()  # a barrier's members, by their QPoolIds
    before: int = 0  # or so many of the same request


@dataclass
class Verdict:
    """How a client ends its work on a message."""

    kind: Settlement
    qpool: int
    queue: int
    lease: int
    delay_ns: int = 0


@dataclass(eq=False)
class Waiting:
    """A barrier that waits."""

    item: Item
    place: Place
    live: set[int]  # its members that have not ended
    due: bool | None = None  # True: all are done; False: it failed

    @property
    def goes_on(self) -> bool:
        """Nobody has ended it meanwhile."""
        return (self.item.places.get(self.place.queue) is self.place
                and self.place.state is DEFERRED)


@dataclass
class Doubt:
    """A unit of work that was prepared: what it took, and what it put."""

    taken: list[tuple[int, int]]  # QPoolId, queue
    put: list[int]  # QPoolIds


@dataclass
class Wish:
    """A client that waits for messages."""

    client: int
    queue: int
    want: int
    deadline: int | None  # monotonic
    auxiliary: bool
    by: int = 0  # wire.Key: only for messages with this key
    key: int = 0

    def meant(self, item: Item) -> bool:
        """Whether a message may be given to it."""
        return not self.by or self.key == (
            item.correlation if self.by == Key.CORRELATION else item.key or item.qpool)


Pairs = list[tuple[Item, Place]]


class Reference:
    """See the module. Each operation says how it would be refused, or changes the state."""

    def __init__(self, rules: dict[int, QueueRules], messages: int, entries: int) -> None:
        self.rules = rules
        self.messages_max, self.entries_max = messages, entries
        self.total_max = messages
        self.reserve = 0  # rows of both tables: puts leave half, moves nothing
        self.items: dict[int, Item] = {}
        self.wishes: list[Wish] = []
        self.barriers: dict[int, Waiting] = {}  # by QPoolId; those that wait, see `waiting`
        self.due: list[Waiting] = []  # in the order in which it came to that
        self.doubts: dict[int, Doubt] = {}  # by the QPoolId of the unit's message
        self.doubts_max = 0
        self.space_left = True
        self.wall = self.mono = 0
        self.limbo_until = 0
        self._turn = 0
        # Which of several whole groups comes first is left open, too: who compares says it.
        self.choose: Callable[[int, list[Pairs]], Pairs] = lambda _client, groups: groups[0]

    # looking

    def on(self, queue: int) -> list[tuple[Item, Place]]:
        """What is on a queue, in the order in which it is handed out."""
        found = [(item, item.places[queue]) for item in self.items.values()
                 if queue in item.places]
        return sorted(found, key=lambda pair: (-pair[1].priority, pair[1].order))

    def places(self) -> Iterator[tuple[Item, Place]]:
        for item in list(self.items.values()):
            for place in list(item.places.values()):
                yield item, place

    def _depth(self, queue: int) -> int:
        return sum(queue in item.places for item in self.items.values())

    # putting

    def check_queue(self, queue: int, size: int, priority: int, count: int = 1) -> Refusal:
        rules = self.rules.get(queue)
        if rules is None or queue == IDEL:
            return errors.UnknownQueue
        if not rules.put_allowed:
            return errors.PutInhibited
        if priority > 9:
            return errors.BadPriority
        if size > rules.max_length:
            return errors.MessageTooLong
        return errors.QueueFull if self._depth(queue) + count > rules.max_depth else None

    def _check_room(self, messages: int, entries: int, kept: int) -> Refusal:
        used = sum(len(item.places) for item in self.items.values())
        most = min(self.messages_max, self.total_max)
        if ((messages and len(self.items) + messages > most - kept)
                or (entries and used + entries > self.entries_max - kept)):
            return errors.IndexFull
        return None

    # duplicates

    def watching(self, draft: Draft) -> list[int]:
        """The queues of a draft that remember its key."""
        return [part.queue for part in draft.parts
                if draft.key and part.queue in self.rules and self.rules[part.queue].dedupe_ns]

    def _remembered(self, queue: int) -> set[int]:
        """Where a clock goes back, two messages may remember the same key."""
        return {item.remembers[1] for item in self.items.values()
                if item.remembers and item.remembers[0] == queue
                and item.known_until > self._now(item)}

    def _now(self, item: Item) -> int:
        return self.wall if item.by_clock else self.mono

    def had(self, draft: Draft) -> list[int]:
        """Those of them that have had it."""
        return [queue for queue in self.watching(draft) if draft.key in self._remembered(queue)]

    def absorbs(self, draft: Draft) -> bool:
        """It is acknowledged, and not put."""
        return not draft.container and self._would_absorb(draft)

    def _would_absorb(self, draft: Draft) -> bool:
        had = self.had(draft)
        return bool(had and had == self.watching(draft)
                    and all(self.rules[queue].absorbs for queue in had))

    def _judge(self, draft: Draft) -> Refusal:
        if self.had(draft) and not self.absorbs(draft):
            # Who put a large body puts it by itself: its client must take the body away.
            return errors.DuplicateAbsorbed if self._would_absorb(draft) else errors.DuplicateKey
        full = any(len(self._remembered(queue)) >= self.rules[queue].dedupe_keys_max
                   for queue in self.watching(draft))
        return errors.KeysFull if full else None

    def check(self, draft: Draft, *, moves: bool = False) -> Refusal:
        if self.absorbs(draft):
            return None
        if refusal := self._judge(draft):
            return refusal
        keys = len(self.watching(draft))
        queues = [part.queue for part in draft.parts]
        if len(set(queues)) != len(queues) or len(queues) > 64:
            return errors.BadRequest
        for part in draft.parts:
            refusal = self.check_queue(part.queue, draft.size, part.priority)
            if refusal:
                return refusal
        kept = 0 if moves else self.reserve // 2
        refusal = self._check_room(1, len(draft.parts), kept)  # the message, then what remembers it
        if not refusal and draft.persistent and not self.space_left:
            return errors.SpoolFull
        return refusal or self._check_room(1 + keys, len(draft.parts) + keys, kept)

    # barriers

    def waiting(self) -> list[Waiting]:
        """The barriers that still wait, as their put has left them."""
        for qpool in [q for q, each in self.barriers.items() if not each.goes_on]:
            del self.barriers[qpool]
        self.due = [each for each in self.due if each.goes_on]
        return list(self.barriers.values())

    def refusal_of_barrier(self, draft: Draft, highest: int) -> Refusal:
        """Why these cannot be waited for."""
        if draft.names and draft.names[-1] > highest:
            return errors.NotMember
        for qpool in draft.names:
            item = self.items.get(qpool)
            if item is None:
                continue
            if not item.persistent or any(place.state is PREPARED and not place.attempts
                                          for place in item.places.values()):
                return errors.NotMember
            if self._has_failed(item):
                return errors.MemberFailed
            if sum(qpool in each.live for each in self.waiting()) >= 8:
                return errors.TooManyMembers
        return None

    def _has_failed(self, item: Item) -> bool:
        """It is where messages go that fail too often."""
        origin = self.rules.get(item.origin)
        return POISON in item.places or bool(
            origin and origin.dead_letter != item.origin and origin.dead_letter in item.places)

    def _begin_waiting(self, item: Item) -> None:
        """It waits for those that live."""
        (place,) = item.places.values()
        live = {qpool for qpool in item.names if qpool in self.items
                and any(queue != IDEL for queue in self.items[qpool].places)}
        each = self.barriers[item.qpool] = Waiting(item, place, live)
        if any(self._has_failed(self.items[qpool]) for qpool in live):
            self._is_due(each, done=False)
        elif not live:
            self._is_due(each, done=True)

    def _is_due(self, each: Waiting, *, done: bool) -> None:
        if each.due is None:
            each.due = done
            self.due.append(each)

    def _member_done(self, item: Item) -> None:
        for each in self.waiting():
            if item.qpool in each.live:
                each.live.discard(item.qpool)
                if not each.live:
                    self._is_due(each, done=True)

    def _member_failed(self, item: Item, *, at_once: bool) -> None:
        """`at_once`: by what ends it undone, whose frame is behind the barrier's."""
        for each in self.waiting():
            if item.qpool in each.live and each.goes_on:
                self._is_due(each, done=False)
                if at_once:
                    self._end_waiting(each)

    def _end_waiting(self, each: Waiting) -> None:
        del self.barriers[each.item.qpool]
        if each.due:
            each.place.state, each.place.disk_until = READY, 0
        else:
            self._poison(each.item, each.place)

    def fire(self) -> None:
        """Those that are due end, but those that only this makes due."""
        self.waiting()
        due, self.due = self.due, []
        for each in due:
            if each.goes_on:
                self._end_waiting(each)

    def put(self, draft: Draft, qpool: int) -> None:
        memories = self.watching(draft)
        self._put(draft, qpool)
        for number, queue in enumerate(memories, start=qpool + 1):
            until = self.wall + self.rules[queue].dedupe_ns
            part = Part.later(IDEL, 0, until)
            payload = encode(Descriptor(
                message_id=draft.identifier.ljust(24, b"\0"),
                trace_id=id_hash(self.rules[queue].name.encode()).to_bytes(16, "little")),
                (part,), b"", b"")
            item = self.items[number] = Item(number, payload, 0, draft.persistent,
                                             remembers=(queue, draft.key))
            self._arrive(item, IDEL, 0, part.until, part.flags)
            item.known_until = self.mono + part.until_ns - self.wall

    def _put(self, draft: Draft, qpool: int) -> None:
        item = Item(qpool, draft.payload, draft.size, draft.persistent, draft.container,
                    key=draft.key, correlation=draft.correlation, group=draft.group,
                    number=draft.number)
        self.items[qpool] = item
        most = [self.wall + limit for part in draft.parts
                if (limit := self.rules[part.queue].expiry_ns)]
        item.expiry = min([*most, *([draft.expiry] if draft.expiry else [])], default=0)
        self._begin_time(item)
        self._turn += 1
        for part in draft.parts:
            self._arrive(item, part.queue, part.priority, part.until, part.flags)
        if draft.names or draft.before:
            item.names = draft.names or tuple(range(qpool - draft.before, qpool))
            self._begin_waiting(item)

    def _begin_time(self, item: Item) -> None:
        item.over_at = self.mono + max(0, item.expiry - self.wall) if item.expiry else None

    def expire(self) -> None:
        """Messages whose time is over leave the queues on which nobody has them."""
        self._turn += 1
        for item in list(self.items.values()):
            if item.over_at is not None and item.over_at <= self._now(item):
                item.over = True  # and stays so, whoever sets the clock
            if item.over:
                for place in list(item.places.values()):
                    if place.state in (READY, DEFERRED) and self.rules[place.queue].expires:
                        self._expire(item, place)

    def _expire(self, item: Item, place: Place) -> None:
        target = self.rules[place.queue].expired_to
        item.names = ()
        self._member_failed(item, at_once=True)
        del item.places[place.queue]
        if target:
            item.origin = place.queue
        if target and target not in item.places:
            self._arrive(item, target, place.priority).tied = True
        if not item.places and item.container:
            self._arrive(item, IDEL, 0)
        elif not item.places:
            del self.items[item.qpool]
        elif not any(self.rules[queue].expires for queue in item.places):
            item.expiry, item.over_at, item.over = 0, None, False

    def check_many(self, drafts: Sequence[Draft]) -> Refusal:
        queue = drafts[0].parts[0].queue
        refusal = self.check_queue(queue, 0, 0, len(drafts))
        if refusal:
            return refusal
        if max(draft.parts[0].priority for draft in drafts) > 9:
            return errors.BadPriority
        if max(draft.size for draft in drafts) > self.rules[queue].max_length:
            return errors.MessageTooLong
        refusal = self._check_room(len(drafts), len(drafts), self.reserve // 2)
        if not refusal and not self.space_left and any(draft.persistent for draft in drafts):
            return errors.SpoolFull
        return refusal

    def _arrive(self, item: Item, queue: int, priority: int, until: int = 0, early: int = 0
                ) -> Place:
        place = Place(queue, priority, self._turn)
        item.places[queue] = place
        item.most_places = max(item.most_places, len(item.places))
        if until:
            place.state, place.disk_until = DEFERRED, until
            place.until_ns = until * NS - early % 128 * 10_000_000
            place.due_ns = self.mono + max(0, place.until_ns - self.wall)
            if early >= 128:
                place.due_ns = None
        return place

    # the end of work

    def _held(self, client: int, qpool: int, queue: int, lease: int) -> tuple[Item, Place] | None:
        item = self.items.get(qpool)
        place = item.places.get(queue) if item else None
        if item is None or place is None or place.state is not ACTIVE:
            return None
        if place.client != client or (place.lease ^ lease) & 0xFFFFFFFF:
            return None
        return item, place

    def settle(self, client: int, verdicts: Sequence[Verdict]) -> int:
        """How many did not hold."""
        lost = 0
        for verdict in verdicts:
            self._turn += 1
            found = self._held(client, verdict.qpool, verdict.queue, verdict.lease)
            if found is None:
                lost += 1
                continue
            item, place = found
            if verdict.kind is Settlement.DONE:
                self._done(item, place)
            elif verdict.kind is Settlement.DEFER:
                self._defer(place, verdict.delay_ns)
                place.attempts -= 1
                place.retries += 1
            elif verdict.kind is Settlement.RELEASE:
                self.give_back(place)
            else:
                said = verdict.delay_ns - 1 if verdict.delay_ns else None
                self._fail(item, place, said, said_so=True)
        return lost

    def _done(self, item: Item, place: Place) -> None:
        del item.places[place.queue]
        if item.places:
            return
        if place.queue != IDEL:
            self._member_done(item)
        if item.container and place.queue != IDEL:
            self._arrive(item, IDEL, 0)
        else:
            del self.items[item.qpool]

    def _defer(self, place: Place, delay_ns: int) -> None:
        until = min(self.wall + max(0, delay_ns), 0xFFFFFFFF * NS)
        place.state, place.client, place.lease_due = DEFERRED, None, 0
        place.until_ns, place.due_ns = until, self.mono + max(0, delay_ns)
        if place.queue != IDEL:
            place.disk_until = -(-until // NS)

    def give_back(self, place: Place) -> None:
        """READY at its old place, the attempt not counted."""
        place.state, place.client, place.lease_due = READY, None, 0
        place.attempts -= 1
        if place.queue != IDEL:
            place.disk_until = 0

    def _fail(self, item: Item, place: Place, delay_ns: int | None = None, *,
              said_so: bool = False) -> None:
        rules = self.rules[place.queue]
        if place.queue == IDEL:
            pauses = [rules.death_delay_ns, *(max(rules.death_delay_ns, NS << n)
                                              for n in range(12)), 3600 * NS]
            self._defer(place, pauses[min(max(place.attempts - 1, 0), 13)])
        elif self._worn_out(place):
            self._poison(item, place)
        else:
            if delay_ns is None:
                delay_ns = self._pause(item, place, rules, said_so=said_so)
            self._defer(place, delay_ns)

    @staticmethod
    def _pause(item: Item, place: Place, rules: QueueRules, *, said_so: bool) -> int:
        pause = rules.death_delay_ns
        if said_so and rules.retry_delay_ns >= 0:
            pause = rules.retry_delay_ns
        steps = {"none": 1, "linear": place.attempts, "exponential": 2 ** (place.attempts - 1)}
        if rules.backoff != "none":
            pause = min(pause * steps[rules.backoff], max(pause, rules.retry_max_ns))
        assert not rules.jitter, "has tests of its own"
        return pause

    def _worn_out(self, place: Place) -> bool:
        return (place.queue != POISON
                and place.attempts >= self.rules[place.queue].attempts_max)

    def _poison(self, item: Item, place: Place) -> None:
        target = self.rules[place.queue].dead_letter
        item.names = ()
        del item.places[place.queue]
        item.origin = place.queue
        if target not in item.places:
            fresh = self._arrive(item, target, place.priority)
            fresh.attempts, fresh.tied = place.attempts if target == POISON else 0, True
        item.failed, item.started = (place.queue, item.places[target]), False
        self._member_failed(item, at_once=False)

    def unseen(self, item: Item, place: Place) -> None:
        """A manager died handing this out: the attempt counts, its reader never had it."""
        self._turn += 1
        if self._worn_out(place):
            self._poison(item, place)
        else:
            place.state, place.client, place.suspect = READY, None, True

    def check_move(self, client: int, verdict: Verdict, parts: Sequence[Part],
                   new: Sequence[Draft]) -> Refusal:
        found = self._held(client, verdict.qpool, verdict.queue, verdict.lease)
        if found is None:
            return errors.LeaseLost
        if verdict.queue == IDEL:
            return errors.NoMessage
        if len({part.queue for part in parts}) != len(parts):
            return errors.BadRequest
        for part in parts:
            refusal = self.check_queue(part.queue, found[0].size, part.priority, 0)
            if refusal:
                return refusal
        for draft in new:
            refusal = self.check(draft, moves=True)
            if refusal:
                return refusal
        return self._check_together(found[0], verdict.queue, [part.queue for part in parts], new)

    def _check_together(self, item: Item, leaves: int, queues: Sequence[int],
                        new: Sequence[Draft]) -> Refusal:
        """All that arrives at once, beside what leaves (0: nothing does)."""
        fresh = [queue for queue in queues if queue == leaves or queue not in item.places]
        arriving = Tally([*fresh, *(part.queue for draft in new for part in draft.parts)])
        arriving[leaves] -= 1
        for queue, count in arriving.items():
            if count > 0 and self._depth(queue) + count > self.rules[queue].max_depth:
                return errors.QueueFull
        entries = sum(len(draft.parts) for draft in new)
        return self._check_room(len(new), entries + max(0, len(fresh) - bool(leaves)), 0)

    def check_unit(self, client: int, taken: Sequence[Verdict], new: Sequence[Draft]) -> Refusal:
        """A unit of work."""
        if any(self._held(client, v.qpool, v.queue, v.lease) is None for v in taken):
            return errors.LeaseLost
        if (len({(v.qpool, v.queue) for v in taken}) != len(taken)
                or any(v.queue == IDEL for v in taken)):
            return errors.BadRequest
        for draft in new:
            refusal = self.check(draft, moves=bool(taken))
            if refusal:
                return refusal
        arriving = Tally(part.queue for draft in new for part in draft.parts)
        total = arriving.total()
        arriving.subtract(v.queue for v in taken)
        for queue, count in arriving.items():
            if count > 0 and self._depth(queue) + count > self.rules[queue].max_depth:
                return errors.QueueFull
        kept = 0 if taken else self.reserve // 2
        return self._check_room(len(new), total, kept)

    def check_prepare(self, client: int, taken: Sequence[Verdict], new: Sequence[Draft]
                      ) -> Refusal:
        """The first phase of two: what it took stays on its queue; there is one more message."""
        if any(self._held(client, v.qpool, v.queue, v.lease) is None for v in taken):
            return errors.LeaseLost
        if (len({(v.qpool, v.queue) for v in taken}) != len(taken)
                or any(v.queue == IDEL for v in taken)):
            return errors.BadRequest
        for draft in new:
            refusal = self.check(draft)
            if refusal:
                return refusal
        items = [self.items[v.qpool] for v in taken]
        if ((not items and not new) or not all(item.persistent for item in items)
                or not all(draft.persistent for draft in new)
                or any(part.until for draft in new for part in draft.parts)):
            return errors.UnitNotPrepared
        if len(self.doubts) >= self.doubts_max:
            return errors.TooManyInDoubt
        arriving = Tally(part.queue for draft in new for part in draft.parts)
        for queue, count in arriving.items():
            if self._depth(queue) + count > self.rules[queue].max_depth:
                return errors.QueueFull
        return self._check_room(len(new) + 1, arriving.total() + 1, self.reserve // 2)

    def prepare(self, own: Item, taken: Sequence[Verdict], new: Sequence[tuple[int, Draft]]
                ) -> None:
        """It is in doubt: nobody sees what it put, nobody has what it took."""
        self.items[own.qpool] = own
        self._turn += 1
        self._arrive(own, IDEL, 0).state = PREPARED
        for verdict in taken:
            place = self.items[verdict.qpool].places[verdict.queue]
            place.state, place.client, place.lease_due, place.disk_until = PREPARED, None, 0, 0
        for qpool, draft in new:
            self.put(draft, qpool)
            for place in self.items[qpool].places.values():
                place.state = PREPARED
        self.doubts[own.qpool] = Doubt([(v.qpool, v.queue) for v in taken], [q for q, _ in new])

    def resolve(self, own: int, *, commit: bool) -> None:
        """The second phase."""
        doubt = self.doubts.pop(own)
        for qpool, queue in doubt.taken:
            self._turn += 1
            item = self.items[qpool]
            place = item.places[queue]
            if commit:
                self._done(item, place)
            elif place.queue != POISON and self._worn_out(place):
                self._poison(item, place)
            else:
                place.state = READY
        for qpool in doubt.put:
            item = self.items[qpool]
            if commit:
                for place in item.places.values():
                    place.state = READY
                continue
            item.places.clear()
            if item.container:
                self._arrive(item, IDEL, 0)
            else:
                del self.items[qpool]
        del self.items[own]

    def commit(self, taken: Sequence[Verdict]) -> None:
        """What the unit took; the new messages are put by the caller."""
        for verdict in taken:
            item = self.items[verdict.qpool]
            self._turn += 1
            self._done(item, item.places[verdict.queue])

    def back_out(self, client: int, taken: Sequence[Verdict]) -> int:
        """At their old places, the attempt counted. How many were not held."""
        lost = 0
        for verdict in taken:
            found = self._held(client, verdict.qpool, verdict.queue, verdict.lease)
            if found is None:
                lost += 1
                continue
            self._turn += 1
            item, place = found
            if place.queue not in (IDEL, POISON) and self._worn_out(place):
                self._poison(item, place)
                continue
            place.state, place.client, place.lease_due = READY, None, 0
            if place.queue != IDEL:
                place.disk_until = 0
        return lost

    def move(self, verdict: Verdict, parts: Sequence[Part]) -> None:
        """The move itself; the new messages are put by the caller."""
        item = self.items[verdict.qpool]
        self._turn += 1
        if not parts:
            self._done(item, item.places[verdict.queue])
            return
        self._move(item, item.places[verdict.queue], parts)

    def _move(self, item: Item, place: Place, parts: Sequence[Part]) -> None:
        item.names = ()
        del item.places[place.queue]
        for part in parts:
            if part.queue not in item.places:
                self._arrive(item, part.queue, part.priority, part.until, part.flags)

    # readers

    def wait(self, wish: Wish) -> None:
        self.wishes.append(wish)

    def leave(self, client: int, *, died: bool, said: Sequence[Verdict] = (),
              in_work: Sequence[int] | None = None) -> None:
        """A client is gone. What it noted: settlements, and the leases that it had in work (None:
        it had all of them)."""
        self._turn += 1
        self.wishes = [wish for wish in self.wishes if wish.client != client]
        self.settle(client, said)
        for item, place in self.places():
            if place.state is ACTIVE and place.client == client:
                if died and (in_work is None or place.lease in in_work):
                    self._fail(item, place)
                else:
                    self.give_back(place)

    def tick(self) -> None:
        """What time alone brings."""
        self._turn += 1
        waiting = {each.place: each for each in self.waiting()}
        for _, place in self.places():
            if place.state is DEFERRED and (
                    place.until_ns <= self.wall if place.due_ns is None
                    else place.due_ns <= self.mono):
                if place in waiting:
                    self._is_due(waiting[place], done=False)
                else:
                    place.state = READY
        for item in self.items.values():
            if item.by_clock and item.known_until <= self.wall:
                item.known_until = 0
        for item, place in self.places():
            if place.state is ACTIVE and place.lease_due and place.lease_due <= self.mono:
                self._fail(item, place)
        if self.limbo_until <= self.mono:
            for item, place in self.places():
                if place.state is ACTIVE and place.client is None:
                    self._end_of_limbo(item, place)
        self.expire()
        self.fire()

    def _end_of_limbo(self, item: Item, place: Place) -> None:
        """Its reader did not come back, but may have left a note."""
        fate, place.fate = place.fate, None
        if isinstance(fate, Verdict):
            place.client = -1
            lost = self.settle(-1, [fate])
            assert not lost
            return
        place.suspect = True
        if fate is False:
            self.give_back(place)
        else:
            self._fail(item, place, 0)

    def dispatch(self) -> dict[int, list[tuple[Item, Place]]]:
        """Messages for those who wait: main readers first, and a fair share of a backlog to
        each. A suspect goes alone, one in all."""
        out: dict[int, list[tuple[Item, Place]]] = {}
        suspect_given = False
        certain = sorted((wish for wish in self.wishes if wish.by), key=lambda wish: wish.queue)
        for wish in certain:  # before all who take what comes
            if wish.by == Key.GROUP:
                suspect_given |= self._give_whole(wish, out, suspect_given=suspect_given)
                continue
            ready = [pair for pair in self._ready(wish.queue) if wish.meant(pair[0])][: wish.want]
            if not ready or not self.rules[wish.queue].get_allowed or (
                    suspect_given and ready[0][1].suspect):
                continue
            suspect_given |= ready[0][1].suspect
            self._take(wish, ready, out)
        for queue, rules in sorted(self.rules.items()):
            while rules.get_allowed:
                ready = self._ready(queue)
                line = [wish for wish in self.wishes if wish.queue == queue and not wish.by]
                line.sort(key=lambda wish: wish.auxiliary)
                if not ready or not line or (suspect_given and ready[0][1].suspect):
                    break
                wish = line[0]
                share = max(1, -(-len(ready) // len(line)))
                chosen = ready[: min(wish.want, share)]
                suspect_given |= chosen[0][1].suspect
                self._take(wish, chosen, out)
        for wish in [wish for wish in self.wishes
                     if wish.deadline is not None and wish.deadline <= self.mono]:
            self.wishes.remove(wish)
            out[wish.client] = []
        return out

    def _give_whole(self, wish: Wish, out: dict[int, Pairs], *, suspect_given: bool) -> bool:
        """All of a group, by its numbers, with whatever attempts. Whether a suspect went."""
        if not self.rules[wish.queue].get_allowed:
            return False
        groups = self._whole(wish.queue, wish.want)
        if not groups:
            return False
        found = self.choose(wish.client, groups)
        suspect = any(place.suspect for _, place in found)
        if suspect and suspect_given:
            return False
        self.wishes.remove(wish)
        out[wish.client] = found
        for _, place in found:
            self._give(place, wish.client)
        return suspect

    def _whole(self, queue: int, most: int) -> list[Pairs]:
        """Groups that are all there: as many as the last one's number, each number once."""
        groups: dict[int, Pairs] = {}
        for item, place in self.on(queue):
            if item.group and queue not in (IDEL, POISON):
                groups.setdefault(item.group, []).append((item, place))
        found = []
        for members in groups.values():
            members.sort(key=lambda pair: pair[0].number & ~LAST_IN_GROUP)
            numbers = [item.number & ~LAST_IN_GROUP for item, _ in members]
            if (numbers == [*range(1, len(members) + 1)] and len(members) <= most
                    and members[-1][0].number & LAST_IN_GROUP
                    and all(place.state is READY for _, place in members)):
                found.append(members)
        return found

    def _ready(self, queue: int) -> list[tuple[Item, Place]]:
        """What can be handed out: of a group only the one that came first, whatever became of
        it."""
        there = self.on(queue)
        first: dict[int, float] = {}
        for item, place in there:
            first[item.group] = min(first.get(item.group, place.order), place.order)
        return [(item, place) for item, place in there if place.state is READY and (
            not item.group or queue in (IDEL, POISON) or first[item.group] == place.order)]

    def _take(self, wish: Wish, chosen: list[tuple[Item, Place]],
              out: dict[int, list[tuple[Item, Place]]]) -> None:
        """The first of these go to it: up to one that goes alone."""
        self.wishes.remove(wish)
        if self._alone(chosen[0][1]):
            chosen = chosen[:1]
        else:
            chosen = list(takewhile(lambda pair: not self._alone(pair[1]), chosen))
        out[wish.client] = chosen
        for _, place in chosen:
            self._give(place, wish.client)

    @staticmethod
    def _alone(place: Place) -> bool:
        """Whether nothing else is handed out with it."""
        return place.suspect or (place.attempts > 0 and place.queue not in (IDEL, POISON))

    def _give(self, place: Place, client: int) -> None:
        place.fate = None
        lease = self.rules[place.queue].lease_ns
        place.state, place.client, place.suspect = ACTIVE, client, False
        place.lease_due = self.mono + lease if lease else 0
        place.attempts += 1
        if place.queue != IDEL:
            place.disk_until = 0

    # operators

    def refusal(self, order: Order, qpool: int, queue: int) -> Refusal:
        """Why an order is not carried out on this message."""
        item = self.items.get(qpool)
        if item is None:
            return errors.NoMessage
        if item.remembers:
            return errors.NotInState
        if order.action is Action.RESTORE:
            return self._refuse_restore(order, item, queue)
        place = item.places.get(queue)
        if place is None:
            return errors.NoMessage
        if place.state is ACTIVE and not order.force:
            return errors.MessageBusy
        state = READY if place.state is ACTIVE else place.state
        if queue == IDEL and order.action in (Action.HOLD, Action.RELEASE):
            return errors.NotInState
        if (order.action is Action.HOLD and state is HELD) or state is PREPARED:
            return errors.NotInState
        if order.action is Action.RELEASE and state is READY:
            return errors.NotInState
        if order.action is not Action.MOVE:
            return None
        targets = order.targets or (item.origin,)
        if not targets[0]:
            return errors.UnknownQueue
        if IDEL in targets or POISON in targets:
            return errors.BadRequest
        for target in targets:
            if target != queue:
                refusal = self.check_queue(target, item.size, 0, 0)
                if refusal:
                    return refusal
        return self._check_together(item, queue, targets, ())

    def _refuse_restore(self, order: Order, item: Item, queue: int) -> Refusal:
        if queue in item.places:
            return errors.NotInState
        idle = item.places.get(IDEL)
        if idle is not None and idle.state is ACTIVE:
            return errors.MessageBusy
        if any(place.state is PREPARED for place in item.places.values()):
            return errors.NotInState
        return (self.check_queue(queue, item.size, 0, 0)
                or self._check_together(item, IDEL if idle else 0, (queue,), ()))

    def operate(self, order: Order, qpool: int, queue: int) -> None:
        """Carry it out."""
        self._turn += 1
        item = self.items[qpool]
        place = item.places.get(queue)
        if place is not None and place.state is ACTIVE:
            self.give_back(place)
        if order.action is Action.RESTORE:
            old = item.places.get(IDEL) or self._first(item)
            priority = old.priority if order.priority is None else order.priority
            item.places.pop(IDEL, None)
            self._arrive(item, queue, priority)
            return
        assert place is not None
        if order.action is Action.HOLD:
            place.state, place.disk_until = HELD, 0
        elif order.action is Action.RELEASE:
            place.state, place.disk_until = READY, 0
        elif order.action is Action.MOVE:
            priority = place.priority if order.priority is None else order.priority
            item.replayed |= queue == POISON
            self._move(item, place, [Part(each, priority)
                                     for each in order.targets or (item.origin,)])
        else:
            self._delete(order, item, place)

    def _first(self, item: Item) -> Place:
        """The message is put where? Its priority is that of any of its places."""
        return next(iter(item.places.values()))

    def _delete(self, order: Order, item: Item, place: Place) -> None:
        if place.queue == IDEL:
            if place.state is DEFERRED:
                place.state, place.disk_until = READY, 0
            return
        item.names = ()
        self._member_failed(item, at_once=True)
        del item.places[place.queue]
        if item.places:
            return
        if not order.keep_ns and not item.container:
            del self.items[item.qpool]
            return
        item.origin = place.queue
        idle = self._arrive(item, IDEL, place.priority)
        idle.for_good = not order.keep_ns
        if order.keep_ns:
            until = self.wall + order.keep_ns
            idle.state, idle.until_ns = DEFERRED, until
            idle.due_ns, idle.disk_until = self.mono + order.keep_ns, -(-until // NS)

    # restarts

    def restart(self, *, clean: bool) -> None:
        """What a manager finds that starts on what this one left on the disk."""
        self._turn += 1
        self.wishes.clear()
        for qpool in [item.qpool for item in self.items.values() if not item.persistent]:
            del self.items[qpool]
        for item in self.items.values():
            item.over_at, item.by_clock, item.over = item.expiry or None, True, False
            item.started = True
        for item, place in self.places():
            item.known_until = 0
            if clean and place.state is ACTIVE and place.client is not None:
                self.give_back(place)
            place.client, place.lease_due, place.suspect, place.fate = None, 0, False, None
            if place.queue == IDEL:
                place.attempts = place.retries = 0
                if place.for_good:  # it has no part in the pool, so nothing of it is known
                    place.priority = item.origin = 0
            if place.state in (HELD, PREPARED) or (place.state is ACTIVE and place.queue != IDEL):
                continue
            place.state = READY
            waits = item.names and place.disk_until and not place.attempts and not place.retries
            if waits or place.disk_until * NS > self.wall:
                place.state, place.until_ns = DEFERRED, place.disk_until * NS
                place.due_ns, item.known_until = None, place.until_ns
        self.barriers, self.due = {}, []
        for item, place in self.places():
            if (item.names and len(item.places) == 1  # else it has left its queue
                    and place.state is DEFERRED and not place.attempts and not place.retries):
                self._begin_waiting(item)
