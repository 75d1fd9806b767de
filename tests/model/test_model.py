"""A Hypothesis state machine over the whole engine against tests/model/reference.py.

OMQ_MODEL=long searches for hours, OMQ_MODEL=500 for 500 examples, each from another seed.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition

from omq.core.engine.operate import Action, Item, Order
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import IDEL, POISON
from omq.format.index import EntryState
from omq.format.message import LAST_IN_GROUP, Part, id_hash
from omq.format.wire import Key, Settlement
from tests.model.driver import WIDE, A, B, C, World, draft
from tests.model.instance import NS, Client
from tests.model.profiles import profile
from tests.model.reference import Draft, Verdict
from tests.model.steps import Step, leave, rule

FEW = (A, B, C)
IDS = (Key.CORRELATION, Key.MESSAGE_ID)
numbers = st.integers(0, 1 << 20)
clients = st.integers(0, 5)
kinds = st.sampled_from([Settlement.DONE, Settlement.DONE, Settlement.DEFER, Settlement.FAIL,
                         Settlement.RELEASE])
delays = st.sampled_from([0, 1, NS, 30 * NS + 1, 3600 * NS, 1 << 62])
bodies = st.binary(max_size=40) | st.integers(100, 3000).map(bytes)


class Machine(RuleBasedStateMachine):
    """See the module. Numbers that are drawn choose among what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._folder = tempfile.TemporaryDirectory()
        self.world = self.make_world(Path(self._folder.name) / "spool")

    def make_world(self, root: Path) -> World:
        return World(root)

    def teardown(self) -> None:
        leave(self.steps)
        self.world.close()
        self._folder.cleanup()

    # helpers

    def _client(self, number: int) -> Client:
        """A client that has no request under way."""
        idle = self.world.idle()
        return idle[number % len(idle)]

    def _reader(self, number: int) -> Client:
        """The same, of a queue with something to hand out if there is one."""
        waiting = {place.queue for _, place in self.world.model.places()
                   if place.state is EntryState.READY}
        idle = [client for client in self.world.idle() if client.queue in waiting]
        return idle[number % len(idle)] if idle else self._client(number)

    def _holder(self, number: int) -> Client | None:
        """One that has messages, if there is one."""
        idle = [client for client in self.world.idle() if client.held]
        return idle[number % len(idle)] if idle else None

    def _now(self) -> int:
        return self.world.instance.wall // NS

    def _time(self, pick: int) -> int:
        """When a message is over, if it is ever."""
        return self.world.instance.wall + [-NS, 0, 2 * NS, NS // 3, 25 * NS][pick % 5] if (
            pick % 8 == 5) else 0

    def _draft(self, pick: int, body: bytes, count: int = 0) -> Draft:
        """One message, mostly plain."""
        wide = [*FEW, *WIDE]
        queues = wide[pick % 3 : pick % 3 + count] if count else [FEW[pick % 3]]
        until = [0, 0, 0, self._now() - 5, self._now() + 20][pick % 5]
        priority = pick % 10 if pick % 37 else 10
        moment = 128 * (pick % 4 < 2)  # or a delay
        parts = [Part(queue, priority, pick % 100 + moment if until else 0, until)
                 for queue in queues]
        if pick % 41 == 40:
            parts.append(parts[0])
        return draft(parts, body, persistent=pick % 3 != 0, container=pick % 9 == 0,
                     given=b"id%d" % pick if pick % 4 == 0 else b"",
                     correlation=b"c%d" % (pick % 3) if pick % 6 == 0 else b"",
                     expiry=self._time(pick),
                     group=b"g%d" % (pick % 2) if pick % 7 < 3 else b"")

    def _verdicts(self, client: Client, picks: list[tuple[int, Settlement, int]]
                  ) -> list[Verdict]:
        """About messages that the client holds, or held."""
        out = []
        for pick, kind, delay in picks:
            held = list(client.held.values())
            if not held:
                break
            each = held[pick % len(held)]
            # A lease that nobody has: a note under another message's is its reader's fault.
            lease = each.lease + (1 << 20 if pick % 23 == 22 else 0)
            out.append(Verdict(kind, each.qpool, each.queue, lease, delay))
        return out

    # submitters

    @rule(number=clients, pick=numbers, body=bodies)
    def put(self, number: int, pick: int, body: bytes) -> None:
        one = self._draft(pick, body)
        given = b"id%d" % pick if pick % 4 == 0 else b""
        correlation = b"c%d" % (pick % 3) if pick % 6 == 0 else b""
        self.world.put(self._client(number), one, given, correlation)

    @rule(number=clients, pick=numbers, key=st.integers(0, 9),
          queues=st.sampled_from([(A,), (A,), (B,), (A, B), (B, A, C), (A, C)]))
    def put_keyed(self, number: int, pick: int, key: int, queues: tuple[int, ...]) -> None:
        """What its queues may have had."""
        given = b"key%d" % key
        until = self._now() + 20 if pick % 7 == 6 else 0
        self.world.put(self._client(number), draft(
            [Part(queue, pick % 10, 128 * (pick % 2), until) for queue in queues], b"keyed",
            persistent=pick % 5 > 0, container=pick % 11 == 0, given=given), given)

    @rule(number=clients, key=st.integers(0, 3), queue=st.sampled_from((A, B)),
          between=st.sampled_from(["", "time", "restart", "crash", "time", "checkpoint", "step"]),
          seconds=st.sampled_from([1, 39, 41, 4001]))
    def put_twice(self, number: int, key: int, queue: int, between: str, seconds: int) -> None:
        """The same key once more: behind a while, a restart, the death of the manager."""
        given, world = b"key%d" % key, self.world
        for turn in range(2):
            world.put(self._client(number), draft([Part(queue, 4)], b"keyed", given=given), given)
            if turn:
                return
            if between == "time":
                world.advance(seconds)
            elif between == "restart":
                world.restart()
            elif between == "crash":
                world.crash(lambda count: count, survive=bool(number % 2))
            elif between == "checkpoint":
                world.checkpoint()
            elif between == "step":
                world.jump(-seconds)
                world.restart()
                world.jump(seconds)

    @rule(number=clients, queue=st.sampled_from(FEW), group=st.integers(0, 2),
          count=st.integers(1, 4), pick=numbers)
    def put_group(self, number: int, queue: int, group: int, count: int, pick: int) -> None:
        """A group with numbers, in some order; sometimes one is missing, twice there, without a
        number, late, or not the only last one."""
        order = sorted(range(1, count + 1), key=lambda n: pick * n % 7)
        if pick % 5 == 1:
            order = order[1:] + order[1:] * (pick % 2)
        for n in order:
            said = 0 if pick % 11 == n else n
            last = LAST_IN_GROUP if n == count or pick % 13 == n else 0
            until = self._now() + 3 if pick % 17 == n else 0
            self.world.put(self._client(number), draft(
                [Part(queue, pick % (n + 3) % 10, 0, until)], b"w%d" % n, persistent=pick % 6 > 0,
                group=b"w%d" % group, number=(said | last) if said else 0,
                expiry=self._time(pick + n)))

    @rule(number=clients, want=st.sampled_from([2, 30]), timeout=st.sampled_from([0, 3, 40, -1]),
          picks=st.lists(st.tuples(numbers, kinds, delays), max_size=2))
    def get_group(self, number: int, want: int, timeout: int,
                  picks: list[tuple[int, Settlement, int]]) -> None:
        """A whole group, if there is one."""
        client = self._client(number)
        if client.queue in (IDEL, POISON):
            return
        self.world.settle(client, self._verdicts(client, picks), want=want, timeout_s=timeout,
                          by=Key.GROUP)

    @rule(number=clients, pick=numbers, count=st.integers(2, 20), body=bodies)
    def put_on_many(self, number: int, pick: int, count: int, body: bytes) -> None:
        pick -= pick % 4 or 4
        pick = abs(pick) * 3 + 1  # no given id, no correlation id
        self.world.put(self._client(number), self._draft(pick, body, count))

    @rule(number=clients, queue=st.sampled_from(FEW), count=st.integers(1, 30), pick=numbers)
    def put_batch(self, number: int, queue: int, count: int, pick: int) -> None:
        drafts = [draft([Part(queue, (pick + i) % (3 if pick % 2 else 1))], b"b%d" % i,
                        persistent=pick % 5 > 0 or i % 2 > 0, expiry=self._time(pick // 5 + i),
                        group=b"g%d" % (i % 3 % 2) if pick % 4 == 3 and i % 3 else b"")
                  for i in range(count)]
        self.world.put_many(self._client(number), drafts)

    # readers

    @rule(number=clients, want=st.integers(1, 30), timeout=st.sampled_from([0, 3, 40, -1]),
          picks=st.lists(st.tuples(numbers, kinds, delays), max_size=3))
    def next(self, number: int, want: int, timeout: int,
             picks: list[tuple[int, Settlement, int]]) -> None:
        """Any reader, which may have to wait."""
        client = self._client(number)
        if client.number == 4:
            timeout = 0  # see Place.tied
        self.world.settle(client, self._verdicts(client, picks), want=want, timeout_s=timeout)

    @rule(number=clients, want=st.integers(1, 5), by=st.sampled_from(IDS), pick=numbers,
          timeout=st.sampled_from([0, 3, 40, -1]),
          picks=st.lists(st.tuples(numbers, kinds, delays), max_size=2))
    def get(self, number: int, want: int, by: Key, pick: int, timeout: int,
            picks: list[tuple[int, Settlement, int]]) -> None:
        """Messages with one id: of one that is there, or of one that may come."""
        client = self._client(number)
        if client.queue == IDEL:
            return
        if client.number == 4:
            timeout = 0  # see Place.tied
        items = [item for item, place in self.world.model.on(client.queue)] or list(
            self.world.model.items.values())
        item = items[pick % len(items)] if items and pick % 5 else None
        if by is Key.CORRELATION:
            key = item.correlation if item is not None else 0
            key = key or id_hash(b"c%d" % (pick % 3))
        else:
            key = item.key or item.qpool if item is not None else self.world.highest + 1
        self.world.settle(client, self._verdicts(client, picks), want=want, timeout_s=timeout,
                          by=by, key=key)

    @rule(number=clients, pick=numbers, body=bodies, timeout=st.sampled_from([0, 3, 40, -1]),
          picks=st.lists(st.tuples(numbers, kinds, delays), max_size=3))
    def ask(self, number: int, pick: int, body: bytes, timeout: int,
            picks: list[tuple[int, Settlement, int]]) -> None:
        """A request, and the wait for its reply."""
        client = self._client(number)
        if client.queue != IDEL:
            self.world.ask(client, self._verdicts(client, picks), self._request(pick, body),
                           0 if client.number == 4 else timeout)

    def _request(self, pick: int, body: bytes) -> Draft:
        """One that has no id of its own, on one queue."""
        return draft([Part(FEW[pick % 3], pick % 10 if pick % 37 else 10)], body,
                     persistent=pick % 3 != 0, expiry=self._time(pick),
                     group=b"g%d" % (pick % 2) if pick % 7 < 3 else b"")

    @rule(number=clients, pick=numbers, body=bodies)
    def answer(self, number: int, pick: int, body: bytes) -> None:
        """A reply for somebody who waits for it."""
        waits = [(wish.queue, self.world.answers[wish.key]) for wish in self.world.model.wishes
                 if wish.by is Key.CORRELATION and wish.key in self.world.answers]
        if waits:
            queue, answer = waits[pick % len(waits)]
            one = draft([Part(queue, pick % 10)], body, persistent=pick % 3 != 0,
                        correlation=answer)
            self.world.put(self._client(number), one, b"", answer)

    @rule(number=clients, want=st.integers(1, 30))
    def take(self, number: int, want: int) -> None:
        self.world.settle(self._reader(number), [], want=want, timeout_s=0)

    @rule(number=clients, want=st.integers(1, 4),
          picks=st.lists(st.tuples(numbers, kinds, delays), max_size=3))
    def settle_and_take(self, number: int, want: int, picks: list[tuple[int, Settlement, int]]
                        ) -> None:
        client = self._holder(number) or self._reader(number)
        self.world.settle(client, self._verdicts(client, picks), want=want, timeout_s=0)

    @rule(number=clients, picks=st.lists(st.tuples(numbers, kinds, delays), min_size=1,
                                         max_size=20))
    def settle(self, number: int, picks: list[tuple[int, Settlement, int]]) -> None:
        client = self._holder(number)
        if client:
            self.world.settle(client, self._verdicts(client, picks))

    @rule(number=clients, kind=kinds, delay=delays)
    def settle_all(self, number: int, kind: Settlement, delay: int) -> None:
        client = self._holder(number)
        if client:
            self.world.settle(client, [Verdict(kind, g.qpool, g.queue, g.lease, delay)
                                       for g in client.held.values()])

    @rule(queue=st.sampled_from((A, B)), count=st.integers(10, 30), pick=numbers)
    def work_through(self, queue: int, count: int, pick: int) -> None:
        """A batch is put, taken and done in three requests, as busy clients do it."""
        idle = [client for client in self.world.idle() if client.queue == queue]
        if not idle:
            return
        reader = idle[pick % len(idle)]
        self.world.put_many(reader, [draft([Part(queue, pick % 10)], b"b%d" % i)
                                     for i in range(count)])
        self.world.settle(reader, [], want=30, timeout_s=0)
        items = self.world.model.items
        plain = [g for g in reader.held.values() if g.qpool in items
                 and items[g.qpool].persistent and len(items[g.qpool].places) == 1]
        if plain:
            self.world.settle(reader, [Verdict(Settlement.DONE, g.qpool, g.queue, g.lease)
                                       for g in plain])

    @rule(number=clients, pick=numbers, count=st.integers(0, 19),
          new=st.lists(st.tuples(numbers, bodies), max_size=3))
    def move(self, number: int, pick: int, count: int, new: list[tuple[int, bytes]]) -> None:
        client = self._holder(number)
        if not client:
            return
        held = list(client.held.values())
        each = held[pick % len(held)]
        queues = [*FEW, *WIDE][pick % 4 : pick % 4 + count]
        if pick % 31 == 30 and queues:
            queues.append(queues[0])
        until = self._now() + 10 if pick % 5 == 0 else 0
        self.world.move(client, Verdict(Settlement.DONE, each.qpool, each.queue, each.lease),
                        [Part(queue, pick % 10, 128 * (pick % 2), until) for queue in queues],
                        [self._plain(p, body) for p, body in new])

    @rule(number=clients, picks=st.lists(st.tuples(numbers, st.integers(0, 3)), max_size=6))
    def move_many(self, number: int, picks: list[tuple[int, int]]) -> None:
        client = self._holder(number)
        if client:
            self.world.move_many(client, self._moves(client, picks))

    def _moves(self, client: Client, picks: list[tuple[int, int]]
               ) -> list[tuple[Verdict, list[Draft]]]:
        verdicts = self._verdicts(client, [(pick, Settlement.DONE, 0) for pick, _ in picks])
        return [(verdict, [self._draft(pick + i - (pick + i) % 12 + 1, b"n%d" % i, pick % 3)
                           for i in range(count)])
                for verdict, (pick, count) in zip(verdicts, picks, strict=True)]

    def _plain(self, pick: int, body: bytes) -> Draft:
        return draft([Part(FEW[pick % 3], pick % 10)], body, persistent=pick % 5 != 0)

    @rule(number=clients, picks=st.lists(numbers, max_size=6), parts=st.integers(1, 3),
          new=st.lists(st.tuples(numbers, bodies), max_size=4))
    def commit_unit(self, number: int, picks: list[int], parts: int,
                    new: list[tuple[int, bytes]]) -> None:
        client = self._holder(number) or self._client(number)
        taken = self._verdicts(client, [(pick, Settlement.DONE, 0) for pick in picks])
        self.world.commit_unit(client, taken, [self._draft(pick - pick % 12 + 1, body, pick % 3)
                                               for pick, body in new], parts)

    @rule(number=clients, picks=st.lists(numbers, max_size=4),
          new=st.lists(st.tuples(numbers, bodies), max_size=3), cut=st.integers(-4, 3),
          kept=st.sampled_from([0, 1, 100]))
    def prepare_unit(self, number: int, picks: list[int], new: list[tuple[int, bytes]], cut: int,
                     kept: int) -> None:
        """A unit in doubt; sometimes the manager dies of it."""
        client = self._holder(number) or self._client(number)
        taken = self._verdicts(client, [(pick, Settlement.DONE, 0) for pick in picks])
        drafts = [self._lasting(pick, body) for pick, body in new]
        crash = cut if cut >= 0 and not self.world.model.wishes else None
        self.world.prepare_unit(client, taken, drafts, crash, lambda count: min(count, kept))

    def _lasting(self, pick: int, body: bytes) -> Draft:
        """Mostly what a unit in doubt may put."""
        queues = [FEW[pick % 3], WIDE[pick % 20]][: 1 + pick % 2]
        until = self._now() + 20 if pick % 29 == 28 else 0
        return draft([Part(queue, pick % 10, 0, until) for queue in queues], body,
                     persistent=pick % 31 != 30, container=pick % 7 == 0, expiry=self._time(pick),
                     group=b"g%d" % (pick % 2) if pick % 3 == 0 else b"",
                     number=pick % 4 and pick % 4 | LAST_IN_GROUP * (pick % 2))

    @precondition(lambda self: self.world.model.doubts)
    @rule(number=clients, pick=numbers, commit=st.booleans(), cut=st.integers(-4, 3),
          kept=st.sampled_from([0, 1, 100]))
    def end_unit(self, number: int, pick: int, commit: bool, cut: int,  # noqa: FBT001
                 kept: int) -> None:
        doubts = list(self.world.model.doubts)
        crash = cut if cut >= 0 and not self.world.model.wishes else None
        self.world.end_unit(self._client(number), doubts[pick % len(doubts)], commit=commit,
                            cut=crash, keep=lambda count: min(count, kept))

    @rule(number=clients, picks=st.lists(numbers, min_size=1, max_size=6))
    def back_out(self, number: int, picks: list[int]) -> None:
        client = self._holder(number)
        if client:
            self.world.back_out(client, self._verdicts(
                client, [(pick, Settlement.DONE, 0) for pick in picks]))

    @rule(number=clients, died=st.booleans())
    def leave(self, number: int, died: bool) -> None:  # noqa: FBT001
        self.world.leave(self.world.clients[number], died=died)

    @rule(number=clients, picks=st.lists(st.tuples(numbers, kinds, delays), max_size=4),
          work=st.lists(numbers, max_size=2), listed=st.booleans(),
          how=st.sampled_from(["reader", "reader", "both"]))
    def die_noted(self, number: int, picks: list[tuple[int, Settlement, int]], work: list[int],
                  listed: bool, how: str) -> None:  # noqa: FBT001
        """A reader dies, by itself or with its manager, and has noted what it was doing."""
        client = self._holder(number)
        if client is None or client.queue == IDEL:
            return
        said = {(v.qpool, v.queue): v for v in self._verdicts(client, picks)}
        leases = [each.lease for key, each in client.held.items() if key not in said]
        in_work = [leases[pick % len(leases)] for pick in work if leases]
        if how == "reader":
            self.world.leave(client, died=True, said=list(said.values()), in_work=in_work,
                             listed=listed)
        else:
            self.world.crash(lambda count: count, survive=False,
                             noted=(client, list(said.values()), in_work))

    # operators

    @precondition(lambda self: self.world.model.items)
    @rule(action=st.sampled_from(Action), pick=numbers, keep=st.sampled_from([0, 0, 50]),
          force=st.booleans())
    def operate(self, action: Action, pick: int, keep: int, force: bool) -> None:  # noqa: FBT001
        pairs = list(self.world.model.places())
        if action in (Action.HOLD, Action.RELEASE):
            aside = (EntryState.DEFERRED, EntryState.HELD)
            pairs = [pair for pair in pairs if pair[1].state in aside] or pairs
        item, place = pairs[pick % len(pairs)]
        queue = place.queue
        targets: tuple[int, ...] = ()
        if action is Action.RESTORE or pick % 29 == 28:
            queue = FEW[pick % 3]
        if action is Action.MOVE:
            targets = [(A,), (B, C), (), tuple(WIDE), (queue,)][pick % 5]
        priority = pick % 10 if action is Action.RESTORE or pick % 2 else None
        self.world.order(Order(action, (Item(item.qpool, queue),), b"{}", targets, priority,
                               keep * NS, force))

    @rule(pick=numbers)
    def both_wait(self, pick: int) -> None:
        """The auxiliary reader waits first, then the main one; a message comes for one of them."""
        main, auxiliary = self.world.clients[:2]
        idle = self.world.idle()
        if len(idle) > 2 and main in idle and auxiliary in idle and not any(
                place.state is EntryState.READY for _, place in self.world.model.on(A)):
            for reader in (auxiliary, main):
                self.world.settle(reader, [], want=3, timeout_s=40)
            self.world.put(self._client(pick), draft([Part(A, 4)], b"for one"))

    @rule(pick=numbers, back=st.booleans())
    def wait_while_inhibited(self, pick: int, back: bool) -> None:  # noqa: FBT001
        """A reader waits for one message, which comes while its queue is inhibited."""
        world, reader = self.world, self.world.clients[0]
        if reader not in world.idle() or len(world.idle()) < 2 or pick % 2:
            return
        rules = world.model.rules[A]
        world.define(replace(rules, get_allowed=False, put_allowed=True, max_depth=1 << 20))
        world.settle(reader, [], want=2, timeout_s=40, by=Key.CORRELATION, key=id_hash(b"awaited"))
        world.put(self._client(pick), draft([Part(A, 4)], b"it", correlation=b"awaited"), b"",
                  b"awaited")
        if back:
            world.advance(1)
        world.define(replace(rules, get_allowed=True))

    @rule(number=clients, pick=numbers)
    def put_off_twice(self, number: int, pick: int) -> None:
        """A deferral that an operator ends, and a longer one behind it."""
        client = self._holder(number)
        if not client or client.queue == IDEL:
            return
        first = list(client.held.values())[pick % len(client.held)]
        self.world.settle(client, [Verdict(Settlement.DEFER, first.qpool, first.queue, first.lease,
                                           30 * NS)])
        self.world.order(Order(Action.RELEASE, (Item(first.qpool, first.queue),), b"{}"))
        if client not in self.world.idle():
            return
        self.world.settle(client, [], want=30, timeout_s=0)
        again = client.held.get((first.qpool, first.queue))
        if again:
            self.world.settle(client, [Verdict(Settlement.DEFER, again.qpool, again.queue,
                                               again.lease, 3600 * NS)])

    @rule(pick=numbers)
    def spread_and_end(self, pick: int) -> None:
        """On one queue at a checkpoint, then on twenty, then on none: no record may be left. The
        next record is another message's, so that it has to move."""
        world = self.world
        pair = [draft([Part(A, 4)], b"to be spread"), draft([Part(A, 4)], b"the next record")]
        if world.model.check_many(pair) is not None or pick % 3:
            return
        world.put_many(self._client(pick), pair)
        item = world.model.items[world.highest - 1]
        world.checkpoint()
        if item.places[A].state is EntryState.READY:
            world.order(Order(Action.MOVE, (Item(item.qpool, A),), b"{}", tuple(WIDE)))
            world.delete_everywhere(item)
            world.crash(lambda count: count, survive=True)

    # the world around

    @rule(seconds=st.sampled_from([1, 3, 6, 21, 31, 61, 4000]))
    def advance(self, seconds: int) -> None:
        self.world.advance(seconds)

    @rule(seconds=st.sampled_from([-86400, -21, -10, -1, 1, 10, 21, 40, 86400 * 365]))
    def jump(self, seconds: int) -> None:
        """The clock is set, while the manager runs."""
        self.world.jump(seconds)

    @rule(seconds=st.sampled_from([-86400, -21, 21, 4000]), clean=st.booleans(),
          between=st.sampled_from([0, 1, 30]), back=st.booleans())
    def wrong_clock(self, seconds: int, between: int, *, clean: bool, back: bool) -> None:
        """A start with a clock that is wrong, and is put right later."""
        world = self.world
        world.jump(seconds)
        if clean:
            world.restart()
        else:
            world.crash(lambda count: count, survive=True)
        if between:
            world.advance(between)
        if back:
            world.jump(-seconds)

    @rule(what=st.sampled_from(["define", "define", "define", "limit", "repeat"]), pick=numbers)
    def change(self, what: str, pick: int) -> None:
        """A queue's rules or the limits change, a client repeats itself."""
        world = self.world
        if what == "define":
            old = world.model.rules[FEW[pick % 3]]
            world.define(QueueRules(
                old.queue, old.name, [1 << 20, 1 << 20, 8, 3][pick % 4], old.max_length,
                pick % 5 > 0, pick % 7 > 0, old.attempts_max, old.death_delay_ns, old.lease_ns,
                expiry_ns=[old.expiry_ns, 40 * NS][pick % 11 == 0], expired_to=old.expired_to,
                expires=old.expires and pick % 13 > 0, retry_delay_ns=old.retry_delay_ns,
                backoff=old.backoff, retry_max_ns=old.retry_max_ns, dead_letter=old.dead_letter,
                dedupe_ns=old.dedupe_ns, absorbs=old.absorbs, dedupe_keys_max=3))
        elif what == "limit":
            world.limit([60, 20][pick % 2], space_left=pick % 3 > 0, reserve=[0, 9][pick % 5 > 2])
        else:
            client = self._client(pick)
            if 0 < client.sequence <= client.live.sequence:
                world.repeat(client)

    @rule()
    def checkpoint(self) -> None:
        self.world.checkpoint()

    @rule(pick=numbers)
    def retire(self, pick: int) -> None:
        """Bodies move out of a journal file, it is seen empty, it goes; then the manager dies."""
        if pick % 2 == 0:
            for _ in range(3):
                self.world.checkpoint()
            self.world.crash(lambda count: count, survive=True)

    # restarts

    @rule(how=st.sampled_from(["clean", "killed", "alone", "in a checkpoint"]),
          cut=st.integers(0, 12), kept=st.sampled_from([0, 1, 100]))
    def restart(self, how: str, cut: int, kept: int) -> None:
        """In order, or after a death that the clients survive or not."""
        if how == "clean":
            self.world.restart()
        elif how == "in a checkpoint":
            self.world.checkpoint(cut, lambda count: min(count, kept))
        else:
            self.world.crash(lambda count: min(count, kept), survive=how == "killed")

    @rule(what=st.sampled_from(["put", "batch", "wide", "settle", "settle", "move", "many",
                                "next", "ask"]),
          number=clients, pick=numbers, cut=st.integers(0, 3), kept=st.sampled_from([0, 1, 100]),
          kind=kinds)
    def crash_in_request(self, what: str, number: int, pick: int, cut: int, kept: int,
                         kind: Settlement) -> None:
        """The manager dies before, in or behind the write of a request's block."""
        world = self.world
        if world.model.wishes:
            return

        def keep(count: int) -> int:
            return min(count, kept)

        holder = self._holder(number)
        if what == "next":
            world.crash_in_next(self._reader(number), pick % 20 + 1, cut, keep)
        elif what == "ask" and (client := holder or self._client(number)).queue != IDEL:
            world.crash_in_ask(client, self._verdicts(client, [(pick - pick % 23, kind, 5 * NS)]),
                               self._request(pick, b"asked"), cut, keep)
        elif what == "many" and holder and holder.queue != IDEL:
            world.crash_in_many(holder, self._moves(holder, [(pick + i, i) for i in range(3)]),
                                cut, keep)
        elif what in ("settle", "move") and holder and holder.queue != IDEL:
            verdicts = self._verdicts(holder, [(pick - pick % 23, kind, 5 * NS)])
            if what == "settle":
                world.crash_in_settle(holder, verdicts, cut, keep)
            else:
                new = [self._plain(pick + i, b"new") for i in range(pick % 3)]
                parts = [Part(q, pick % 10) for q in [*FEW, *WIDE][pick % 4 : pick % 4 + pick % 19]]
                world.crash_in_move(holder, verdicts[0], parts, new, cut, keep)
        else:
            count = {"wide": 0, "batch": 14}.get(what, 1)
            drafts = [draft([Part(A, (pick + i) % 3)], b"%d" % i, persistent=pick % 5 > 0)
                      for i in range(count)]
            drafts = drafts or [draft([Part(q, 4) for q in (A, *WIDE)], b"wide")]
            world.crash_in_put(self._client(number), drafts, cut, keep)


Machine.TestCase.settings = profile(examples=80, steps=50)
TestModel = Machine.TestCase
