"""Duplicates: a queue takes an id once in its `dedupe_s`, and remembers it over everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.errors import (
    BadRequest,
    DuplicateKey,
    KeysFull,
    NoDeduplication,
    NotInState,
    OmqError,
    QueueFull,
    UnitNotPrepared,
)
from omq.core.check.invariants import check
from omq.core.engine import duplicates as duplicates_module
from omq.core.engine.move_many import move_many
from omq.core.engine.new_message import NewMessage
from omq.core.engine.operate import Action, Item, Order
from omq.core.engine.put_many import put_many
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import IDEL
from omq.core.engine.unit_facts import Facts
from omq.format.index import Counter, EntryState
from omq.format.wire import PutFlag
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing
from tests.unit.engine.world import NS, A, B, World, make_world

RULES = QueueRules(A, "A", 1000, 1 << 20, dedupe_ns=60 * NS, dedupe_keys_max=5)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    made.core.define_queue(RULES)
    yield made
    assert check(made.engine) == []
    made.writer.close()


def keyed(world: World, key: str, *queues: int, **said: object) -> NewMessage:
    outgoing = Outgoing(body=b"x", unique_key=key, **said)  # type: ignore[arg-type]
    made = encode_outgoing(outgoing, queues or (A,), 0, world.info.paths, 1 << 18, "test")
    return NewMessage(made.queue, 4, made.flags, made.size, made.crc, made.correlation, made.key,
                      0, made.parts, memoryview(made.payload))


def put(world: World, *new: NewMessage, seconds: float = 0.0) -> list[int]:
    """The QPoolIds that are on A and B now, behind one request."""
    world.sequence += 1
    world.begin(seconds)
    world.engine.tick()
    try:
        if len(new) == 1:
            world.engine.put(world.putter, new[0], world.sequence)
        else:
            world.engine.units.commit(world.putter, (), new, world.sequence)
    finally:
        world.engine.commit()
    return on(world, A) + on(world, B)


def on(world: World, queue: int) -> list[int]:
    t = world.core.t
    return sorted(t.m_qpool[t.e_message[e]] for e in range(t.entries.high)
                  if t.e_state[e] and t.e_queue[e] == queue)


def duplicates(world: World) -> int:
    return int(world.core.t.counters[Counter.DUPLICATES])


@pytest.mark.parametrize("persistent", [True, False])
def test_a_key_is_taken_once_in_its_time(world: World, *, persistent: bool) -> None:
    first = put(world, keyed(world, "k", persistent=persistent))
    assert put(world, keyed(world, "k", persistent=persistent)) == first
    assert len(put(world, keyed(world, "other", persistent=persistent))) == 2
    assert len(put(world, keyed(world, "k"), seconds=59.9)) == 2 and duplicates(world) == 2
    assert world.core.t.counters[Counter.PUTS] == 2
    assert len(put(world, keyed(world, "k"), seconds=0.2)) == 3
    assert len(put(world, keyed(world, "k"))) == 3, "its time begins anew"


def test_it_is_remembered_whatever_becomes_of_the_message(world: World) -> None:
    put(world, keyed(world, "k"))
    (given,) = world.give()
    world.settle(1, given)
    assert put(world, keyed(world, "k")) == []


def test_refused_where_the_queue_says_so(world: World) -> None:
    world.core.define_queue(replace(RULES, absorbs=False))
    put(world, keyed(world, "k"))
    with pytest.raises(DuplicateKey) as caught:
        put(world, keyed(world, "k"))
    assert caught.value.fields == {"key": "k", "queue": "A"}
    assert len(on(world, A)) == 1 and duplicates(world) == 1


def test_a_given_message_id_is_a_key_too(world: World) -> None:
    for _ in range(2):
        new = keyed(world, "k")
        new.flags &= ~16  # as message_id= says it
        assert len(put(world, new)) == 1


def test_what_asks_for_it_where_nobody_remembers_is_told(world: World) -> None:
    with pytest.raises(NoDeduplication):
        put(world, keyed(world, "k", B))
    assert len(put(world, keyed(world, "k", A, B))) == 2, "one of its queues does"


def test_several_queues_are_one_message(world: World) -> None:
    world.core.define_queue(QueueRules(B, "B", 1000, 1 << 20, dedupe_ns=60 * NS,
                                       dedupe_keys_max=5))
    put(world, keyed(world, "k", A))
    with pytest.raises(DuplicateKey):  # B has not had it: absorbed it would be lost there
        put(world, keyed(world, "k", A, B))
    assert len(put(world, keyed(world, "both", A, B))) == 3
    assert len(put(world, keyed(world, "both", B, A))) == 3


def test_within_one_request_and_its_ids_follow_each_other(world: World) -> None:
    plain = keyed(world, "k")
    plain.key, plain.flags = 0, 1
    put(world, keyed(world, "a"))
    first = world.core.next_qpool
    put(world, keyed(world, "a"), keyed(world, "b"), keyed(world, "b"), plain, keyed(world, "c"))
    assert on(world, A)[1:] == [first + 1, first + 3, first + 4]
    assert len(on(world, IDEL)) == 3 and duplicates(world) == 2


def test_all_of_a_request_absorbed_writes_nothing(world: World) -> None:
    put(world, keyed(world, "a"), keyed(world, "b"))
    lsn = world.core.block.lsn
    put(world, keyed(world, "a"), keyed(world, "b"))
    assert world.core.block.lsn == lsn and len(on(world, A)) == 2


def test_nothing_is_remembered_of_what_was_refused(world: World) -> None:
    world.core.define_queue(replace(RULES, max_depth=1))
    put(world, keyed(world, "a"))
    with pytest.raises(QueueFull):
        put(world, keyed(world, "b"))
    world.settle(1, *world.give())
    assert len(put(world, keyed(world, "b"))) == 1


def test_its_memory_is_bounded(world: World) -> None:
    for number in range(5):
        put(world, keyed(world, str(number)))
    with pytest.raises(KeysFull):
        put(world, keyed(world, "5"))
    assert len(put(world, keyed(world, "4"))) == 5, "what it knows it tells still"
    assert len(put(world, keyed(world, "5"), seconds=60)) == 6
    assert world.core.duplicates.count(world.core, "A") == 1


def test_a_time_that_is_made_shorter_holds_for_what_comes(world: World) -> None:
    put(world, keyed(world, "long"))
    world.core.define_queue(replace(RULES, dedupe_ns=5 * NS))
    for number in range(4):
        put(world, keyed(world, str(number)), seconds=1)
    with pytest.raises(KeysFull):
        put(world, keyed(world, "4"))
    assert len(put(world, keyed(world, "4"), seconds=5)) == 6, "they are not behind the long one"
    assert set(world.core.duplicates.known(world.core, "A")[0]) == {
        name.ljust(24, b"\0") for name in (b"long", b"4")}
    assert len(put(world, keyed(world, "long"))) == 6


def test_room_is_asked_of_the_queues_of_a_request_alone(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand queues that remember ids cost a put to one of them nothing."""
    for number in range(B, 40):
        world.core.define_queue(QueueRules(number, f"Q{number}", 9, 1 << 20, dedupe_ns=NS))
    asked: list[str] = []
    real = duplicates_module.name_key

    def counted(name: str) -> int:
        asked.append(name)
        return real(name)

    monkeypatch.setattr(duplicates_module, "name_key", counted)
    put(world, keyed(world, "k"))
    assert set(asked) == {"A"}


def test_no_member_names_a_container_beside_a_key(world: World) -> None:
    """A batch with keys goes another way than one without; what it may not is the same."""
    world.putter.owns, world.putter.uid = False, 1000
    made = [encode_outgoing(Outgoing(body=b"~/data/0000001/000001u", unique_key=key), (A,), 0,
                            world.info.paths, 1 << 18, "test") for key in ("a", None)]
    made[1].flags |= int(PutFlag.CONTAINER)
    heads = memoryview(b"".join(each.head() for each in made))
    payloads = memoryview(b"".join(each.payload for each in made))
    world.begin()
    try:
        with pytest.raises(BadRequest, match="owner"):
            put_many(world.engine, world.putter, heads, payloads, 2, A, 9)
    finally:
        world.engine.commit()
    assert on(world, A) == []


def test_a_memory_ends_by_its_time_through_idel(world: World) -> None:
    put(world, keyed(world, "k"))
    (memory,) = on(world, IDEL)
    assert world.give(1, IDEL) == []
    (given,) = world.give(1, IDEL, seconds=60)
    assert given.qpool == memory
    world.settle(1, given)
    assert on(world, IDEL) == []


@pytest.mark.parametrize("action", list(Action))
def test_no_operator_has_a_memory(world: World, action: Action) -> None:
    put(world, keyed(world, "k"))
    (memory,) = on(world, IDEL)
    world.begin()
    done = world.engine.operate(world.putter, Order(
        action, (Item(memory, A if action is Action.RESTORE else IDEL),), b"{}", (B,)))
    world.engine.commit()
    assert done.done == [] and isinstance(done.refused[0][1], NotInState)
    assert world.core.t.e_state[world.core.t.entries_of(
        world.core.t.slot_of(memory))[0]] == EntryState.DEFERRED


def test_moves_put_no_duplicates(world: World) -> None:
    world.put(B), world.put(B)
    put(world, keyed(world, "k"))
    first, second = world.give(2, B)
    world.begin()
    first.argument, second.argument = 2, 1
    move_many(world.engine, world.reader, (first, second),
              (keyed(world, "k"), keyed(world, "a"), keyed(world, "a")), 9)
    world.engine.commit()
    assert len(on(world, A)) == 2 and on(world, B) == []
    world.put(B)
    (third,) = world.give(1, B)
    world.begin()
    world.engine.move(world.reader, third, (), (keyed(world, "a"), keyed(world, "b")), 10)
    world.engine.commit()
    assert len(on(world, A)) == 3 and on(world, B) == [] and len(on(world, IDEL)) == 3


def test_a_unit_with_a_key_is_not_prepared(world: World) -> None:
    world.begin()
    with pytest.raises(UnitNotPrepared, match="dedupe_s"):
        world.engine.in_doubt.prepare(world.putter, (), (keyed(world, "k"),),
                                      Facts(uid=0, puts=1), 7)
    world.engine.commit()


def test_a_wrong_key_is_named() -> None:
    wrong: tuple[object, ...] = (5, b"\0", "x" * 1025, 1.5)
    for value in wrong:
        with pytest.raises(OmqError, match="unique_key"):
            Outgoing(unique_key=value)  # type: ignore[arg-type]
    with pytest.raises(OmqError, match="unique_key"):
        Outgoing(unique_key="a", message_id="b")
    assert Outgoing(unique_key="a", message_id="").given_id == b"a"
    long = Outgoing(unique_key="550e8400-e29b-41d4-a716-446655440000")
    assert len(long.given_id) == 24 and replace(long, priority=3).given_id == long.given_id
