"""Groups: one reader at a time, in order, and whole ones (core.engine.groups)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.core.check.invariants import check
from omq.core.engine.expiry import MANY
from omq.core.engine.puts import NewMessage
from omq.core.engine.settle import Verdict
from omq.core.engine.state import POISON, Party
from omq.format.frame_rules import GIVEN_OUT_OF_TURN
from omq.format.index import EntryState
from omq.format.journal import BLOCK, FRAME, FrameType
from omq.format.wire import Key, Settlement
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from tests.unit.engine.world import NS, A, B, World, make_world

DONE, DEFER, FAIL, RELEASE = (int(kind) for kind in Settlement)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    yield made
    assert check(made.engine) == []
    made.writer.close()


def other() -> Party:
    return Party(3, 2, 103, 0, 13)


def put(world: World, group: str, number: int = 0, *, queues: tuple[int, ...] = (A,),
        priority: int = 4, last: bool = False, delay_s: float = 0.0, expiry_ns: int = 0) -> int:
    encoded = encode_outgoing(
        Outgoing(b"x", priority=priority, group_id=group, group_sequence=number,
                 last_in_group=last, delay_s=delay_s), queues, 0, world.info.paths, 1 << 18, "test")
    world.sequence += 1
    world.begin()
    new = NewMessage(encoded.queue, priority, encoded.flags, encoded.size, encoded.crc, 0, 0,
                     world.wall + expiry_ns if expiry_ns else 0, encoded.parts,
                     memoryview(encoded.payload))
    qpool = world.engine.put(world.putter, new, world.sequence)
    world.engine.commit()
    return qpool


def give(world: World, want: int = 100, queue: int = A, reader: Party | None = None,
         seconds: float = 0.0) -> list[Verdict]:
    given = world.give(want, queue, reader, seconds)
    assert not check(world.engine), check(world.engine)
    return given


def whole(world: World, want: int = 100) -> list[Verdict]:
    """A whole group of A."""
    world.begin()
    world.engine.tick()
    world.engine.wait(world.reader, A, want, 1, 0, auxiliary=False, by=int(Key.GROUP))
    given = [entry for _, entries in world.engine.dispatch() for entry in entries]
    world.engine.expire()
    world.engine.commit()
    assert not check(world.engine), check(world.engine)
    t = world.core.t
    return [Verdict(1, entry, t.m_qpool[t.e_message[entry]], t.e_lease[entry]) for entry in given]


def test_one_at_a_time_and_in_order(world: World) -> None:
    second = other()
    first = [put(world, "g"), put(world, "h"), put(world, "g"), put(world, "h"), put(world, "g")]
    plain = world.put()
    one = give(world)
    assert world.ids(one) == [first[0], first[1], plain]
    assert give(world, reader=second) == []
    world.settle(DONE, one[1])
    assert world.ids(give(world, reader=second)) == [first[3]]
    world.settle(DONE, one[0])
    two = give(world)
    assert world.ids(two) == [first[2]]
    world.settle(DONE, *two)
    assert world.ids(give(world)) == [first[4]]


@pytest.mark.parametrize("kind", [DEFER, FAIL, RELEASE])
def test_the_later_ones_wait_for_one_that_comes_back(world: World, kind: int) -> None:
    ids = [put(world, "g") for _ in range(3)]
    world.settle(kind, *give(world), argument=NS if kind == DEFER else 0)
    again = give(world)
    assert world.ids(again) == (ids[:1] if kind == RELEASE else [])
    if not again:
        again = give(world, seconds=40)
    assert world.ids(again) == ids[:1]
    world.settle(DONE, *again)
    assert world.ids(give(world)) == ids[1:2]


def test_a_dead_readers_group_moves_on(world: World) -> None:
    second = other()
    ids = [put(world, "g") for _ in range(2)]
    give(world)
    world.begin()
    world.engine.forget(world.reader, [], {}, orderly=False)
    world.engine.commit()
    assert give(world, reader=second) == []
    again = give(world, reader=second, seconds=40)
    assert world.ids(again) == ids[:1]
    world.settle(DONE, *again, reader=second)
    assert world.ids(give(world, reader=second)) == ids[1:]


def test_what_is_poisoned_holds_up_nobody(world: World) -> None:
    ids = [put(world, "g") for _ in range(3)]
    for _ in range(3):
        world.settle(FAIL, *give(world, seconds=40))
    assert world.core.t.q_depth[POISON] == 1
    assert world.ids(give(world)) == ids[1:2]
    assert world.ids(give(world, queue=POISON)) == ids[:1]


def test_priority_counts_between_groups_only(world: World) -> None:
    low, high = put(world, "g", priority=1), put(world, "g", priority=9)
    behind = put(world, "h", priority=5)
    given = give(world)
    assert world.ids(given) == [behind, low]
    world.settle(DONE, *given)
    assert world.ids(give(world)) == [high]


def test_a_middle_message_expires(world: World) -> None:
    ids = [put(world, "g"), put(world, "g", expiry_ns=5 * NS), put(world, "g")]
    first = give(world)
    assert give(world, seconds=6) == []
    assert world.core.t.q_depth[A] == 2
    world.settle(DONE, *first)
    assert world.ids(give(world)) == ids[2:]


def test_the_first_one_expires(world: World) -> None:
    ids = [put(world, "g", expiry_ns=5 * NS), put(world, "g"), put(world, "g")]
    assert world.ids(give(world, seconds=6)) == ids[1:2]


def test_a_delayed_one_is_waited_for(world: World) -> None:
    ids = [put(world, "g", delay_s=5.0), put(world, "g")]
    assert give(world) == []
    assert world.ids(give(world, seconds=1e9)) == ids[:1]  # from now by the real clock


def test_groups_of_each_queue_are_their_own(world: World) -> None:
    both, a = put(world, "g", queues=(A, B)), put(world, "g")
    assert world.ids(give(world)) == [both]
    in_b = give(world, queue=B)
    assert world.ids(in_b) == [both]
    world.settle(DONE, *in_b)
    assert give(world) == []
    assert world.core.t.e_state[world.core.t.m_first[world.core.t.slot_of(a)] - 1] == (
        EntryState.READY)


def test_many_in_one_hand_out(world: World) -> None:
    ids = [put(world, f"g{i % (2 * MANY)}") for i in range(4 * MANY)]
    given = give(world, 3 * MANY)
    assert world.ids(given) == ids[: 2 * MANY]
    world.settle(DONE, *given)
    assert world.ids(give(world, 3 * MANY)) == ids[2 * MANY:]


def test_by_id_only_when_it_has_its_turn(world: World) -> None:
    ids = [put(world, "g") for _ in range(2)]
    for qpool, found in ((ids[1], []), (ids[0], ids[:1])):
        world.begin()
        world.engine.wait(world.reader, A, 1, 1, 0, auxiliary=False, by=int(Key.MESSAGE_ID),
                          key=qpool)
        given = [entry for _, entries in world.engine.dispatch() for entry in entries]
        world.engine.expire()
        world.engine.commit()
        t = world.core.t
        assert [t.m_qpool[t.e_message[entry]] for entry in given] == found


def test_a_busy_group_is_not_looked_through(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait for their turn, nobody looks at them."""
    for _ in range(900):
        put(world, "busy")
    behind = put(world, "other")
    looked = 0
    has_turn = type(world.core.groups).of

    def counting(self: object, entry: int) -> int:
        nonlocal looked
        looked += 1
        return has_turn(world.core.groups, entry)
    monkeypatch.setattr(type(world.core.groups), "of", counting)
    given = world.give(10)
    assert world.ids(given) == [1, behind]
    world.settle(DONE, *given)
    assert looked < 20


# whole groups


def test_a_whole_group_is_handed_out_by_its_numbers(world: World) -> None:
    three, one = put(world, "g", 3, last=True), put(world, "g", 1)
    put(world, "h", 1)
    assert whole(world) == []
    two = put(world, "g", 2)
    given = whole(world)
    assert world.ids(given) == [one, two, three]
    assert whole(world) == []
    world.settle(DONE, *given)
    assert world.core.t.q_depth[A] == 1


def test_a_number_twice_is_no_whole_group(world: World) -> None:
    put(world, "g", 1)
    put(world, "g", 1)
    put(world, "g", 3, last=True)
    assert whole(world) == []


@pytest.mark.parametrize("kind", [DEFER, FAIL, RELEASE])
def test_a_whole_group_comes_back_whole(world: World, kind: int) -> None:
    ids = [put(world, "g", number, last=number == 3) for number in (1, 2, 3)]
    for _ in range(2):
        given = whole(world)
        assert world.ids(given) == ids
        world.settle(kind, *given, argument=NS if kind == DEFER else 0)
        world.begin(40)
        world.engine.tick()
        world.engine.commit()
    assert world.ids(whole(world)) == ids


def test_who_waits_gets_it_when_it_is_whole(world: World) -> None:
    put(world, "g", 1)
    world.begin()
    world.engine.wait(world.reader, A, 10, 1, 10 * NS, auxiliary=False, by=int(Key.GROUP))
    assert world.engine.dispatch() == []
    world.engine.commit()
    put(world, "g", 2, last=True)
    world.begin()
    ((_, given),) = world.engine.dispatch()
    world.engine.commit()
    assert len(given) == 2


def test_one_that_is_too_long_for_its_reader_stays(world: World) -> None:
    for number in (1, 2, 3):
        put(world, "g", number, last=number == 3)
    assert whole(world, 2) == []
    assert len(whole(world, 3)) == 3


def test_a_hand_out_says_that_it_is_not_in_the_order_of_arrival(world: World) -> None:
    """One by one and many at once; who is in no group comes in its turn."""
    def said(given: list[Verdict]) -> list[int]:
        frames = FRAME.array(world.writer.buffer, len(given), BLOCK.size)
        assert set(frames["type"].tolist()) == {FrameType.GIVE}
        return [int(each) for each in frames["argument"]]

    for count in (2, MANY + 2):
        groups = [f"{count}-{n}" if n % 2 else "" for n in range(count)]
        for group in groups:
            put(world, group) if group else world.put()
        given = give(world)
        assert said(given) == [GIVEN_OUT_OF_TURN if group else 0 for group in groups]
        world.settle(DONE, *given)
    put(world, "w", 1, last=True)
    assert said(whole(world)) == [GIVEN_OUT_OF_TURN]
