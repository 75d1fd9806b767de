"""The table of core.engine.transitions against the engine: every event in every state, live and
over a restart. The engine's paths restate the table for speed; this is what ties them to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omq.core.engine import settle
from omq.core.engine.operate import Action, Item, Order
from omq.core.engine.state import IDEL, POISON
from omq.core.engine.transitions import Event, after
from omq.format.frame_rules import Reason
from omq.format.index import EntryState
from omq.format.message import Part, derived_id
from omq.format.wire import SETTLE, Operation, Settlement
from omq.storage import durable
from tests.model.disk import LossyDisk
from tests.model.driver import LATE, A, B, draft, encoded, rules
from tests.model.instance import NS, Client, Instance

FREE, READY, ACTIVE, DEFERRED, HELD, ON_IDEL, PREPARED = EntryState


class Bench:
    """An instance with one client and one message in a chosen state on queue A."""

    def __init__(self, root: Path, disk: LossyDisk) -> None:
        self.disk = disk
        self.instance = Instance(root, rules())
        self.instance.start()
        self.client = Client(0, A, auxiliary=False)
        self.instance.register(self.client)
        self.qpool = self.unit = 0

    def state(self) -> EntryState:
        """Of the message on A; ON_IDEL when it is on IDEL and nowhere else."""
        t = self.instance.core.t
        slot = t.slot_of(self.qpool)
        if slot < 0:
            return FREE
        entry = t.entry_on(slot, A)
        if entry >= 0:
            return EntryState(t.e_state[entry])
        return ON_IDEL if t.entry_on(slot, IDEL) >= 0 else FREE

    def on(self, queue: int) -> EntryState:
        """State of the message on another queue."""
        t = self.instance.core.t
        slot = t.slot_of(self.qpool)
        entry = t.entry_on(slot, queue) if slot >= 0 else -1
        return EntryState(t.e_state[entry]) if entry >= 0 else FREE

    def put(self, *, container: bool = False) -> int:
        e = encoded(draft([Part(A, 4)], b"body", container=container,
                          expiry=self.instance.wall + 7200 * NS))
        self.instance.group(lambda: self.instance.request(
            self.client, Operation.PUT, area=e.payload, queue=A, priority=4, flags=e.flags,
            length=len(e.payload), size=e.size, crc=e.crc, expiry=e.expiry))
        reply = self.instance.reply(self.client)
        assert isinstance(reply, tuple)
        return reply[1]

    def give(self) -> bool:
        """Whether this message was handed out."""
        self.instance.group(lambda: self.instance.request(
            self.client, Operation.NEXT, want=10, argument=0))
        reply = self.instance.reply(self.client)
        assert isinstance(reply, tuple)
        return self.qpool in [g.qpool for g in self.instance.take(self.client, reply[0])]

    def _row(self, kind: Settlement, argument: int = 0) -> bytes:
        """A settlement by the lease that the entry has now, even if nobody holds it."""
        t = self.instance.core.t
        slot = t.slot_of(self.qpool)
        entry = t.entry_on(slot, A) if slot >= 0 else -1
        return SETTLE.pack(kind, 0, 0, max(entry, 0), self.qpool,
                           t.e_lease[entry] if entry >= 0 else 1, argument, 0, 0)

    def settle(self, kind: Settlement, argument: int = 0) -> bool:
        """Whether it held."""
        row = self._row(kind, argument)
        self.instance.group(lambda: self.instance.request(
            self.client, Operation.SETTLE, area=row, count=1))
        reply = self.instance.reply(self.client)
        assert isinstance(reply, tuple)
        return reply[2] == 0

    def back_out(self) -> bool:
        """Whether it was in a unit of work, which is backed out."""
        row = self._row(Settlement.DONE)
        self.instance.group(lambda: self.instance.request(
            self.client, Operation.BACKOUT, area=row, parts=1, want=1))
        reply = self.instance.reply(self.client)
        assert isinstance(reply, tuple)
        return reply[0] == 0

    def prepare(self) -> bool:
        """Whether it is in a unit of work that is in doubt from now on."""
        row = self._row(Settlement.DONE)
        self.instance.group(lambda: self.instance.request(
            self.client, Operation.PREPARE, area=row, parts=1, argument=1))
        reply = self.instance.reply(self.client)
        if isinstance(reply, tuple):
            self.unit = reply[1]
        return isinstance(reply, tuple)

    def end_unit(self, *, commit: bool) -> bool:
        """Whether the unit in doubt has ended."""
        name = derived_id(self.instance.uuid.ljust(16, b"\0"), self.unit).hex().encode()
        self.instance.group(lambda: self.instance.request(
            self.client, Operation.RESOLVE, area=name, length=len(name), want=int(commit)))
        return isinstance(self.instance.reply(self.client), tuple)

    def end_put(self, *, commit: bool) -> bool:
        """The same, where the message is one that the unit has put: it has no attempts."""
        t = self.instance.core.t
        slot = t.slot_of(self.qpool)
        if slot >= 0 and self.state() is PREPARED:
            t.e_attempts[t.entry_on(slot, A)] = 0
        return self.end_unit(commit=commit)

    def order(self, action: Action, targets: tuple[int, ...] = (), *, force: bool = False) -> bool:
        """Whether the operator's command was carried out."""
        outcome = self.instance.order(Order(action, (Item(self.qpool, A),), b"{}", targets,
                                            force=force))
        return outcome.done == [self.qpool]

    def poison(self) -> bool:
        core = self.instance.core
        slot = core.t.slot_of(self.qpool)
        entry = core.t.entry_on(slot, A) if slot >= 0 else -1
        if entry < 0:
            return False
        if core.t.e_state[entry] == ACTIVE:
            self.client.live.party.active -= 1

        def work() -> None:
            core.block.reserve(1, 1024)
            settle.poison(core, entry, None, 0, 0, reason=Reason.FAILED, evidence={})

        self.instance.group(work)
        return self.on(POISON) is READY

    def wait(self, hours: int = 1) -> bool:
        """An hour goes by; whether that changed anything."""
        before = self.state()
        self.instance.wall += hours * 3600 * NS
        self.instance.mono += hours * 3600 * NS
        self.instance.group()
        return self.state() is not before

    def expire(self) -> bool:
        """Its time comes; whether it went where those go that are late."""
        return self.wait(3) and self.on(LATE) is READY

    def put_again(self) -> bool:
        """A put makes a message of its own, never another entry of one that is there."""
        known = self.state() is not FREE
        made = self.put()
        if not known:
            self.qpool = made
        return made == self.qpool

    def move(self) -> bool:
        return self.order(Action.MOVE, (B,), force=True) and self.on(B) is READY


SET_UP: dict[EntryState, list[Callable[[Bench], object]]] = {
    FREE: [Bench.give, lambda b: b.settle(Settlement.DONE)],
    READY: [],
    ACTIVE: [Bench.give],
    DEFERRED: [Bench.give, lambda b: b.settle(Settlement.DEFER, 60 * NS)],
    HELD: [lambda b: b.order(Action.HOLD)],
    PREPARED: [Bench.give, Bench.prepare],
    ON_IDEL: [Bench.give, lambda b: b.settle(Settlement.DONE)],
}
EVENTS: dict[Event, Callable[[Bench], bool]] = {
    Event.PUT: Bench.put_again,
    Event.GIVE: Bench.give,
    Event.DONE: lambda b: (b.end_unit(commit=True) if b.state() is PREPARED
                           else b.settle(Settlement.DONE)),
    Event.DEFER: lambda b: b.settle(Settlement.DEFER, 60 * NS),
    Event.FAIL: lambda b: b.settle(Settlement.FAIL),
    Event.RETURN: lambda b: b.settle(Settlement.RELEASE),
    Event.BACKOUT: lambda b: (b.end_unit(commit=False) if b.state() is PREPARED
                              else b.back_out()),
    Event.PREPARE: Bench.prepare,
    Event.COMMIT: lambda b: b.end_put(commit=True),
    Event.UNDO: lambda b: b.end_put(commit=False),
    Event.DUE: Bench.wait,
    Event.POISON: Bench.poison,
    Event.MOVE: Bench.move,
    Event.HOLD: lambda b: b.order(Action.HOLD),
    Event.RELEASE: lambda b: b.order(Action.RELEASE),
    Event.DELETE: lambda b: b.order(Action.DELETE),
    Event.EXPIRE: Bench.expire,
}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    disk = LossyDisk()
    before = durable.use(disk)
    yield Bench(tmp_path / "spool", disk)
    disk.die(lambda count: count)
    durable.use(before)


def test_the_table_is_total() -> None:
    assert set(EVENTS) == set(Event) and set(SET_UP) == set(EntryState)
    for event in Event:
        answers = [after(event, state) for state in EntryState]
        assert any(answer is not None for answer in answers), f"{event} never happens"
        assert all(answer is None or isinstance(answer, EntryState) for answer in answers)
        assert after(event, ON_IDEL) is None, "no entry is ever in this state"


@pytest.mark.parametrize("state", EntryState, ids=lambda state: state.name)
@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
def test_the_engine_does_what_the_table_says(bench: Bench, event: Event, state: EntryState
                                             ) -> None:
    bench.qpool = bench.put(container=state is ON_IDEL)
    for step in SET_UP[state]:
        assert step(bench) is True
    assert bench.state() is state
    expected = after(event, state)
    happened = EVENTS[event](bench)
    assert happened == (expected is not None)
    assert bench.state() is (state if expected is None else expected)
    now = bench.state()
    elsewhere = [bench.on(B), bench.on(POISON), bench.on(LATE)]
    bench.disk.die(lambda count: 0)
    bench.instance.start()
    assert bench.state() is now, "the pool and the journal say otherwise"
    assert [bench.on(B), bench.on(POISON), bench.on(LATE)] == elsewhere
