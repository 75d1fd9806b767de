"""The model's machine with barriers among all that happens: members are done, fail, expire, are
deleted, moved, replaced, and the barrier itself is; over every death, as in test_model."""

from __future__ import annotations

from hypothesis import strategies as st

from omq.core.engine.operate import Action, Item, Order
from omq.core.engine.state import IDEL, POISON
from omq.format.message import Part
from omq.format.wire import Settlement
from tests.model.driver import barrier, draft
from tests.model.instance import NS
from tests.model.profiles import profile
from tests.model.reference import Draft, Verdict
from tests.model.steps import rule
from tests.model.test_model import FEW, Machine, clients, kinds, numbers

within = st.sampled_from([2, 20, 60, 60, 4000])
ends = st.sampled_from(["done", "done", "done", "fail", "delete", "keep", "expire", "later"])


class BarrierMachine(Machine):
    """See the module."""

    def _named(self, picks: list[int]) -> list[int]:
        """QPoolIds of what is there, mostly; of what has ended, or was never put."""
        there = [qpool for qpool, item in self.world.model.items.items()
                 if item.persistent and not item.remembers and item.places.keys() - {IDEL, POISON}]
        named = [there[pick % len(there)] for pick in picks if there]
        odd = [pick for pick in picks if pick % 13 == 12]
        return named + [max(1, self.world.highest - pick % 9) for pick in odd] + [
            self.world.highest + 3 for pick in odd if pick % 5 == 4]

    def _barrier(self, pick: int, named: list[int], seconds: int) -> Draft:
        return barrier(Part(FEW[pick % 3], pick % 10, 128 * (pick % 2), self._now() + seconds),
                       named)

    @rule(number=clients, pick=numbers, picks=st.lists(numbers, max_size=4), seconds=within)
    def put_barrier(self, number: int, pick: int, picks: list[int], seconds: int) -> None:
        """For some of what is there."""
        self.world.put(self._client(number), self._barrier(pick, self._named(picks), seconds))

    @rule(number=clients, pick=numbers, count=st.integers(1, 4), seconds=within)
    def barrier_in_unit(self, number: int, pick: int, count: int, seconds: int) -> None:
        """Members and barrier by one unit."""
        client = self._client(number)
        new = [draft([Part(FEW[(pick + i) % 3], pick % 10)], b"m%d" % i) for i in range(count)]
        new.append(barrier(Part(FEW[pick % 3], 4, 0, self._now() + seconds), before=count))
        self.world.commit_unit(client, [], new, 1)

    @rule(number=clients, pick=numbers, queue=st.sampled_from(FEW), seconds=within,
          members=st.lists(ends, min_size=1, max_size=3),
          between=st.sampled_from(["", "", "checkpoint", "crash", "restart", "outer"]))
    def barrier_lives(self, number: int, pick: int, queue: int, seconds: int, members: list[str],
                      between: str) -> None:
        """Members are put, a barrier for them, and they end; something may happen in between."""
        world = self.world
        first = world.highest + 1
        for i, how in enumerate(members):
            over = world.instance.wall + 5 * NS if how == "expire" else 0
            world.put(self._client(number), draft([Part(queue, 9)], b"m%d" % i, expiry=over))
        named = [qpool for qpool in range(first, world.highest + 1) if qpool in world.model.items]
        world.put(self._client(number), self._barrier(pick, named, seconds))
        if between == "outer":
            world.put(self._client(number), self._barrier(pick + 1, [world.highest], 4000))
        for qpool, how in zip(named, members, strict=False):
            if how in ("delete", "keep") and qpool in world.model.items:
                world.order(Order(Action.DELETE, (Item(qpool, queue),), b"{}", (), None,
                                  50 * NS * (how == "keep")))
        if between == "checkpoint":
            world.checkpoint()
        elif between == "crash":
            world.crash(lambda count: count, survive=bool(pick % 2))
        elif between == "restart":
            world.restart()
        self._end_members(queue, dict(zip(named, members, strict=False)))
        if "expire" in members or pick % 3 == 0:
            world.advance(6)

    def _end_members(self, queue: int, how: dict[int, str]) -> None:
        """By a reader of their queue, if it is free."""
        readers = [client for client in self.world.idle() if client.queue == queue]
        if not readers:
            return
        reader = readers[0]
        self.world.settle(reader, [], want=30, timeout_s=0)
        verdicts = [Verdict(Settlement.FAIL if how[each.qpool] == "fail" else Settlement.DONE,
                            each.qpool, each.queue, each.lease)
                    for each in reader.held.values() if how.get(each.qpool) in ("done", "fail")]
        if verdicts:
            self.world.settle(reader, verdicts)

    @rule(pick=numbers, action=st.sampled_from([*Action, Action.DELETE]), keep=st.booleans())
    def operate_on_barrier(self, pick: int, action: Action, keep: bool) -> None:  # noqa: FBT001
        """An operator ends the waiting, or the life, of one that waits."""
        waiting = self.world.model.waiting()
        if waiting:
            each = waiting[pick % len(waiting)]
            targets = (FEW[pick % 3],) if action is Action.MOVE else ()
            self.world.order(Order(action, (Item(each.item.qpool, each.place.queue),), b"{}",
                                   targets, None, 50 * NS * keep))

    @rule(number=clients, pick=numbers, kind=kinds, seconds=st.sampled_from([1, 30]))
    def wait_for_barrier(self, number: int, pick: int, kind: Settlement, seconds: int) -> None:
        """Time goes by, a reader takes what is there and ends it somehow: barriers, too."""
        self.world.advance(seconds)
        reader = self._reader(number)
        self.world.settle(reader, [], want=pick % 9 + 1, timeout_s=0)
        if reader.held:
            self.world.settle(reader, [Verdict(kind, g.qpool, g.queue, g.lease)
                                       for g in reader.held.values()])


BarrierMachine.TestCase.settings = profile(examples=40, steps=50)
TestBarriers = BarrierMachine.TestCase
