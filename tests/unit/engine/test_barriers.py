"""Barriers in the engine: when they are ready, how they fail, what is refused, and what a start
makes of them. Between two starts the spool is the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq.base.checksum import crc32c
from omq.base.errors import (
    BadRequest,
    MemberFailed,
    NotMember,
    OmqError,
    SpoolFull,
    TooManyMembers,
)
from omq.base.limits import BARRIER_MEMBERS_MAX, BARRIERS_PER_MESSAGE_MAX
from omq.core.check.invariants import check
from omq.core.engine.operate import Action, Item, Order
from omq.core.engine.put_many import put_many
from omq.core.engine.puts import NewMessage
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.settle import Verdict
from omq.core.engine.state import IDEL, POISON, Party
from omq.format.frame_rules import Reason
from omq.format.index import Counter, EntryState
from omq.format.members import MEMBERS, before_text, members_in, members_text
from omq.format.message import Descriptor, Part, encode, encode_properties
from omq.format.pool import RecordFlag
from omq.format.wire import PutFlag, Settlement
from omq.ipc.wire.outgoing import Encoded
from tests.model.instance import NS, Client, Instance

A, B, DEAD, LATE = 3, 4, 5, 6
READY, DEFERRED = EntryState.READY, EntryState.DEFERRED


class World:
    """An instance with a party that puts and a reader; the engine is asked itself."""

    def __init__(self, root: Path) -> None:
        self.instance = Instance(root, [
            QueueRules(1, "IDEL", 1000, 1 << 20), QueueRules(2, "POISON", 1000, 1 << 20),
            QueueRules(A, "A", 1000, 1 << 20, attempts_max=1, expired_to=0),
            QueueRules(B, "B", 1000, 1 << 20, attempts_max=1, dead_letter=DEAD),
            QueueRules(DEAD, "DEAD", 1000, 1 << 20, expires=False),
            QueueRules(LATE, "LATE", 1000, 1 << 20)])
        self.sequence = 0
        self.start()

    def start(self) -> None:
        self.instance.start()
        self.client = Client(1, A, auxiliary=False)
        self.instance.register(self.client)
        self.putter = Party(8, 12, 108, 0, 18)

    def again(self, *, kill: bool = True) -> None:
        """The manager ends, and the next one starts."""
        self.instance.kill() if kill else self.instance.stop()
        self.start()

    @property
    def engine(self) -> Any:
        return self.instance.engine

    def put(self, queue: int = A, **how: Any) -> int:
        out: list[int] = []
        new = message(queue, **how)
        self.sequence += 1
        self.instance.group(lambda: out.append(
            self.engine.put(how.get("party", self.putter), new, self.sequence)))
        return out[0]

    def barrier(self, members: Sequence[int] | str, queue: int = B, within_s: int = 3600,
                **how: Any) -> int:
        text = members if isinstance(members, str) else members_text(members)
        return self.put(queue, members=text, until_ns=self.instance.wall + within_s * NS, **how)

    def take(self, queue: int = A, want: int = 1) -> list[Verdict]:
        session = self.client.live
        found: list[list[int]] = []

        def wait() -> None:
            self.engine.tick()
            self.engine.wait(session.party, queue, want, 1, 0, auxiliary=False)
            found.extend(entries for _, entries in self.engine.dispatch())
            self.engine.expire()

        self.instance.group(wait)
        t = self.engine.core.t
        return [Verdict(int(Settlement.DONE), entry, t.m_qpool[t.e_message[entry]],
                        t.e_lease[entry]) for entries in found for entry in entries]

    def settle(self, kind: Settlement, *verdicts: Verdict) -> None:
        for each in verdicts:
            each.kind = int(kind)
        self.instance.group(lambda: self.engine.settle(self.client.live.party, verdicts, 2))

    def done(self, queue: int = A, want: int = 1) -> None:
        given = self.take(queue, want)
        assert len(given) == want
        self.settle(Settlement.DONE, *given)

    def fail(self, queue: int = A) -> None:
        self.settle(Settlement.FAIL, *self.take(queue))

    def turn(self, seconds: float = 0.0) -> None:
        self.instance.wall += int(seconds * NS)
        self.instance.mono += int(seconds * NS)
        self.instance.group()

    def where(self, qpool: int) -> list[tuple[int, int]]:
        """(queue, state) of a message on its queues."""
        t = self.engine.core.t
        slot = t.slot_of(qpool)
        return [(t.e_queue[e], t.e_state[e]) for e in t.entries_of(slot)] if slot >= 0 else []

    def why(self, qpool: int, queue: int) -> tuple[int, str]:
        note = self.engine.failures.of(qpool, queue)
        return note.reason, note.text

    def check(self) -> None:
        parties = [session.party for session in self.instance.sessions.by_id.values()]
        assert check(self.engine, parties) == []


def message(queue: int, body: bytes = b"x", *, members: str = "", until_ns: int = 0,
            persistent: bool = True, expiry_ns: int = 0, flags: int = 0, **_: Any) -> NewMessage:
    parts = [Part.later(queue, 4, until_ns)] if until_ns else []
    properties = encode_properties({MEMBERS: members} if members else {})
    payload = encode(Descriptor(), parts, properties, body)
    flags |= int(persistent) | (int(PutFlag.BARRIER) if members else 0)
    return NewMessage(queue, 4, flags, len(body), crc32c(payload), 0, 0, expiry_ns, len(parts),
                      payload)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "spool")
    yield made
    made.check()
    made.instance.kill()


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_it_is_ready_when_all_are_done(world: World, restarts: int) -> None:
    members = [world.put() for _ in range(3)]
    own = world.barrier(members)
    assert world.where(own) == [(B, DEFERRED)]
    world.done(want=2)
    for _ in range(restarts):
        world.again()
        world.turn()
    assert world.where(own) == [(B, DEFERRED)]
    world.done()
    assert world.where(own) == [(B, READY)]
    for _ in range(restarts):
        world.again()
    world.done(B)
    assert not world.where(own)


def test_it_survives_checkpoints(world: World) -> None:
    members = [world.put() for _ in range(2)]
    own = world.barrier(members)
    world.instance.checkpoint()
    world.done()
    world.instance.checkpoint()
    world.again()
    world.check()
    world.done()
    assert world.where(own) == [(B, READY)]
    world.instance.checkpoint()
    world.again()
    assert world.where(own) == [(B, READY)]


def test_what_has_ended_counts_as_done(world: World) -> None:
    gone = world.put()
    world.done()
    own = world.barrier([gone])
    assert world.where(own) == [(B, READY)]
    none = world.barrier("none")
    assert world.where(none) == [(B, READY)]


def test_one_that_is_moved_still_lives(world: World) -> None:
    own = world.barrier([world.put()])
    verdict, = world.take()
    world.instance.group(lambda: world.engine.move(
        world.client.live.party, verdict, [Part(LATE, 4)], [], 3))
    assert world.where(own) == [(B, DEFERRED)]
    world.done(LATE)
    assert world.where(own) == [(B, READY)]


def test_one_that_is_replaced_is_done(world: World) -> None:
    own = world.barrier([world.put()])
    verdict, = world.take()
    world.instance.group(lambda: world.engine.move(
        world.client.live.party, verdict, [], [message(LATE)], 3))
    assert world.where(own) == [(B, READY)]


@pytest.mark.parametrize("restart", [False, True])
def test_one_that_fails_too_often_fails_it(world: World, *, restart: bool) -> None:
    bad, good = world.put(), world.put()
    own = world.barrier([bad, good])
    if restart:
        world.again()
    world.fail()
    assert world.where(bad) == [(POISON, READY)]
    assert world.where(own) == [(DEAD, READY)]
    cause, words = world.why(own, DEAD)
    assert cause == Reason.MEMBER_FAILED and "failed too often on A" in words
    assert f"{bad:016x}" in words
    world.done()
    assert world.where(own) == [(DEAD, READY)]


def test_a_dead_reader_of_the_last_attempt_fails_it(world: World) -> None:
    own = world.barrier([world.put()])
    world.take()
    world.instance.group(lambda: world.instance.end(world.client.live, died=True))
    assert world.where(own) == [(DEAD, READY)]


@pytest.mark.parametrize("by", ["cancel", "delete", "expire"])
def test_one_that_is_taken_away_fails_it(world: World, by: str) -> None:
    expiry = world.instance.wall + 5 * NS if by == "expire" else 0
    member = world.put(expiry_ns=expiry)
    own = world.barrier([member])
    t = world.engine.core.t
    if by == "cancel":
        world.instance.group(lambda: world.engine.by_id.cancel(
            world.putter, world.engine.by_id.places(t.slot_of(member)), 9, b"{}"))
    elif by == "delete":
        outcome = world.instance.order(Order(Action.DELETE, (Item(member, A),), b"{}"))
        assert outcome.done == [member]
        world.turn()
    else:
        world.turn(6)
    assert not world.where(member)
    assert world.where(own) == [(DEAD, READY)]
    word = "expired" if by == "expire" else "deleted"
    assert word in world.why(own, DEAD)[1]


@pytest.mark.parametrize("restart", [False, True])
def test_its_time_is_over(world: World, *, restart: bool) -> None:
    own = world.barrier([world.put(), world.put()], within_s=10)
    world.done()
    if restart:
        world.again()
        world.turn(12)
    else:
        world.turn(11)
    assert world.where(own) == [(DEAD, READY)]
    cause, words = world.why(own, DEAD)
    assert cause == Reason.TOO_LATE and "one of 1" in words


def test_a_clock_that_is_set_does_not_end_it(world: World) -> None:
    own = world.barrier([world.put()], within_s=3600)
    world.instance.wall += 7200 * NS
    world.instance.group()
    assert world.where(own) == [(B, DEFERRED)]
    world.done()
    assert world.where(own) == [(B, READY)]


def test_a_reader_that_defers_it_later_is_no_barrier(world: World) -> None:
    """What a reader makes of it is its own: a start does not take its pause for waiting."""
    own = world.barrier([world.put()])
    world.done()
    verdict, = world.take(B)
    verdict.kind, verdict.argument = int(Settlement.DEFER), 600 * NS
    world.instance.group(lambda: world.engine.settle(world.client.live.party, (verdict,), 7))
    world.again()
    world.turn()
    assert world.where(own) == [(B, DEFERRED)]


@pytest.mark.parametrize("action", [Action.RELEASE, Action.HOLD, Action.DELETE])
def test_an_operator_ends_the_waiting(world: World, action: Action) -> None:
    member = world.put()
    own = world.barrier([member])
    assert world.instance.order(Order(action, (Item(own, B),), b"{}")).done == [own]
    expected = {Action.RELEASE: [(B, READY)], Action.HOLD: [(B, EntryState.HELD)],
                Action.DELETE: []}[action]
    assert world.where(own) == expected
    world.fail()
    assert world.where(own) == expected
    assert not world.engine.core.barriers.members


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_deleted_one_that_is_kept_is_no_barrier(world: World, *, checkpoint: bool) -> None:
    """Deleted with a time to bring it back, it waits on IDEL: a start does not wake it there."""
    member = world.put()
    own = world.barrier([member])
    if checkpoint:
        world.instance.checkpoint()
    order = Order(Action.DELETE, (Item(own, B),), b"{}", keep_ns=600 * NS)
    assert world.instance.order(order).done == [own]
    world.again()
    world.fail()
    world.turn()
    assert world.where(own) == [(IDEL, DEFERRED)]
    assert not world.engine.core.barriers.waiting


def test_one_that_is_moved_on_for_later_is_no_barrier(world: World) -> None:
    own = world.barrier([world.put()])
    world.done()
    verdict, = world.take(B)
    until = world.instance.wall + 600 * NS
    world.instance.group(lambda: world.engine.move(
        world.client.live.party, verdict, [Part.later(A, 4, until)], [], 7))
    world.again()
    world.turn()
    assert world.where(own) == [(A, DEFERRED)]


def test_it_is_counted(world: World) -> None:
    counters = world.engine.core.t.counters

    def told() -> tuple[int, ...]:
        return tuple(counters[each] for each in (
            Counter.BARRIERS_WAITING, Counter.BARRIERS_READY, Counter.BARRIERS_FAILED))

    world.barrier([world.put()])
    assert told() == (1, 0, 0)
    world.done()
    assert told() == (0, 1, 0)
    world.barrier([world.put()])
    world.barrier([world.put()])
    world.fail()
    world.turn()
    assert told() == (1, 1, 1)
    world.again()
    counters = world.engine.core.t.counters
    assert told() == (1, 0, 0)


def test_barriers_wait_for_barriers(world: World) -> None:
    inner = world.barrier([world.put()])
    outer = world.barrier([inner], LATE)
    world.done()
    assert (world.where(inner), world.where(outer)) == ([(B, READY)], [(LATE, DEFERRED)])
    world.done(B)
    assert world.where(outer) == [(LATE, READY)]


def test_a_failed_one_fails_those_that_wait_for_it(world: World) -> None:
    inner = world.barrier([world.put()])
    outer = world.barrier([inner], LATE)
    world.fail()
    world.turn()
    assert (world.where(inner), world.where(outer)) == ([(DEAD, READY)], [(POISON, READY)])


def test_a_unit_puts_members_and_barrier(world: World) -> None:
    new = [message(A), message(A), message(
        B, members=before_text(2), until_ns=world.instance.wall + 3600 * NS)]
    first: list[int] = []
    world.instance.group(lambda: first.append(
        world.engine.units.commit(world.putter, (), new, 50)))
    own = first[0] + 2
    world.done()
    world.again()
    assert world.where(own) == [(B, DEFERRED)]
    world.done()
    assert world.where(own) == [(B, READY)]


def refused(world: World, kind: type[OmqError], call: Any) -> OmqError:
    before = world.engine.core.next_qpool
    with pytest.raises(kind) as found:
        call()
    assert world.engine.core.next_qpool == before, "nothing has changed"
    world.turn()
    return found.value


def test_a_poisoned_member_is_refused(world: World) -> None:
    bad = world.put()
    world.fail()
    error = refused(world, MemberFailed, lambda: world.barrier([bad]))
    assert "POISON" in str(error)


def test_a_member_on_a_dead_letter_queue_is_refused(world: World) -> None:
    bad = world.put(B)
    world.fail(B)
    assert "DEAD" in str(refused(world, MemberFailed, lambda: world.barrier([bad])))


def test_members_that_cannot_be_waited_for(world: World) -> None:
    later = world.engine.core.next_qpool
    refused(world, NotMember, lambda: world.barrier([later]))
    loose = world.put(persistent=False)
    refused(world, NotMember, lambda: world.barrier([loose]))
    mine = world.put()
    stranger = Party(9, 13, 109, 1000, 19, owns=False)
    refused(world, NotMember, lambda: world.barrier([mine], party=stranger))


def test_who_may_wait_for_whose(world: World) -> None:
    """His own; the owner of the spool and root for anybody's."""
    stranger, other = (Party(9, 13, 109, uid, 19, owns=False) for uid in (1000, 1001))
    root, owner = Party(9, 13, 109, 0, 19, owns=False), Party(9, 13, 109, 1002, 19)
    his = world.put(party=stranger)
    refused(world, NotMember, lambda: world.barrier([his], party=other))
    for who in (stranger, root, owner):
        own = world.barrier([his], party=who)
        assert world.where(own) == [(B, DEFERRED)]


def test_what_is_done_before_its_time_is_over_is_done(world: World) -> None:
    """Both in one group: the last member's end came first."""
    own = world.barrier([world.put()])
    core = world.engine.core
    entry = core.t.m_first[core.t.slot_of(own)] - 1
    (verdict,) = world.take()
    verdict.kind = int(Settlement.DONE)

    def both() -> None:
        world.engine.settle(world.client.live.party, [verdict], 2)
        core.barriers.late(entry)

    world.instance.group(both)
    assert world.where(own) == [(B, READY)]


def test_properties_that_cannot_be_read(world: World) -> None:
    """Of a client: refused. Of the disk: the barrier fails."""
    payload = encode(Descriptor(), [Part.later(B, 4, world.instance.wall + NS)], b"\xff" * 9, b"x")
    flags = int(PutFlag.PERSISTENT | PutFlag.BARRIER)
    new = NewMessage(B, 4, flags, 1, crc32c(payload), 0, 0, 0, 1, payload)
    refused(world, BadRequest, lambda: world.instance.group(
        lambda: world.engine.put(world.putter, new, 7)))
    own = world.barrier([world.put()])
    core = world.engine.core
    entry = core.t.m_first[core.t.slot_of(own)] - 1
    core.barriers.left(core, entry)
    core.t.m_flags[core.t.slot_of(own)] |= int(RecordFlag.BARRIER)  # as a start finds it
    core.barriers.load(core, [entry], lambda slot: payload)
    world.turn()
    assert world.where(own) == [(DEAD, READY)] and "damaged" in world.why(own, DEAD)[1]


@pytest.mark.parametrize("text", ["*1", "0", "2,1", "1,1", "3-2", "x", "1;2", "-1",
                                  "1-99999999999999999999"])
def test_a_list_that_is_none(world: World, text: str) -> None:
    refused(world, OmqError, lambda: world.barrier(text))


def test_what_is_no_barrier(world: World) -> None:
    member = world.put()
    refused(world, BadRequest, lambda: world.barrier([member], persistent=False))
    refused(world, BadRequest, lambda: world.put(B, members="1"))  # without a time
    refused(world, BadRequest, lambda: world.barrier("none", flags=int(PutFlag.GROUPED)))
    verdict, = world.take()
    refused(world, BadRequest, lambda: world.instance.group(lambda: world.engine.move(
        world.client.live.party, verdict, [],
        [message(B, members=str(member), until_ns=world.instance.wall + NS)], 3)))


@pytest.mark.parametrize("until_ns", [0, NS], ids=["as any message", "with a time"])
@pytest.mark.parametrize("key", [0, 7], ids=["without an id", "with an id that is remembered"])
@pytest.mark.parametrize("place", [0, 2])
def test_no_barrier_in_a_batch(world: World, place: int, key: int, until_ns: int) -> None:
    """Neither one that says all that a barrier says, nor one that would be put as a message that
    does not wait."""
    world.instance.rules[B] = replace(world.instance.rules[B], dedupe_ns=NS, dedupe_keys_max=9)
    world.instance.group(lambda: world.engine.books.define_queues([world.instance.rules[B]]))
    member = world.put()
    batch = [message(B) for _ in range(3)]
    batch[place] = message(B, members=str(member),
                           until_ns=until_ns and world.instance.wall + until_ns)
    batch[1].key = key
    rows = [Encoded(each.queue, each.priority, each.flags, each.size, each.crc, 0, each.key, 0,
                    each.parts, bytes(each.payload)) for each in batch]
    ends = itertools.accumulate(len(each.payload) for each in rows)
    heads = b"".join(each.head(end - len(each.payload))
                     for each, end in zip(rows, ends, strict=True))
    payloads = b"".join(each.payload for each in rows)
    with pytest.raises(BadRequest, match="a barrier is put alone, or by a unit of work"):
        put_many(world.engine, world.putter, memoryview(heads), memoryview(payloads), 3, B, 9)
    assert world.engine.core.t.q_depth[B] == 0
    assert not world.engine.core.barriers.waiting


def test_limits(world: World) -> None:
    with pytest.raises(TooManyMembers):
        members_text(range(1, BARRIER_MEMBERS_MAX + 2))
    refused(world, TooManyMembers, lambda: world.barrier(f"1-{BARRIER_MEMBERS_MAX + 1}"))
    member = world.put()
    for _ in range(BARRIERS_PER_MESSAGE_MAX):
        world.barrier([member])
    refused(world, TooManyMembers, lambda: world.barrier([member]))
    world.done()
    assert world.engine.core.t.q_ready[B] == BARRIERS_PER_MESSAGE_MAX


def test_members_are_said_in_ranges() -> None:
    assert members_text([5, 1, 2, 3, 9, 3]) == "1-3,5,9"
    assert members_in("1-3,5,9", 0) == [1, 2, 3, 5, 9]
    assert members_in("*2", 10) == [8, 9]
    assert members_in(members_text([]), 0) == []


def test_a_full_disk_ends_no_waiting_wrongly(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    own = world.barrier([world.put()])
    given = world.take()
    core = world.engine.core
    reserve = core.block.reserve
    calls: list[int] = []

    def full(frames: int, size: int) -> None:
        calls.append(frames)
        if len(calls) > 1:
            raise SpoolFull(path="the spool", detail="full")
        reserve(frames, size)

    monkeypatch.setattr(core.block, "reserve", full)
    world.settle(Settlement.DONE, *given)
    assert world.where(own) == [(B, DEFERRED)]
    monkeypatch.undo()
    core.space_left = True
    world.turn(2)
    assert world.where(own) == [(B, READY)]


def test_a_list_that_is_damaged_fails_it(world: World) -> None:
    own = world.barrier([world.put()])
    core = world.engine.core
    entry = core.t.m_first[core.t.slot_of(own)] - 1
    core.barriers.left(core, entry)
    core.barriers.load(core, [entry], lambda slot: b"")
    world.turn()
    assert world.where(own) == [(DEAD, READY)]
    assert "damaged" in world.why(own, DEAD)[1]


def test_a_container_is_done_before_its_file_is_gone(world: World) -> None:
    t = world.engine.core.t
    member = world.put()
    t.m_flags[t.slot_of(member)] |= int(PutFlag.CONTAINER)
    own = world.barrier([member])
    world.done()
    assert world.where(member) == [(IDEL, READY)]
    assert world.where(own) == [(B, READY)]
    t.m_flags[t.slot_of(member)] &= ~int(PutFlag.CONTAINER)
