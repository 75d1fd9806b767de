"""Limits of work: in work at once, rates, keys and fair turns (core.engine.limits, turns)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.rates import Rate
from omq.core.check.invariants import check
from omq.core.engine import limits_shown
from omq.core.engine.expiry import MANY
from omq.core.engine.key_turns import TELL_NS
from omq.core.engine.limit_rules import LimitRules
from omq.core.engine.settle import Verdict
from omq.core.engine.state import Party
from omq.format.frame_rules import GIVEN_OUT_OF_TURN
from omq.format.index import Counter, QueueFlag
from omq.format.journal import FrameType
from omq.format.property_key import key_of_value
from omq.format.wire import Key, Settlement
from omq.storage.journal_scan import FileScan
from omq.storage.payloads import PayloadReader
from tests.unit.engine.world import NS, A, B, World, make_world

DONE, DEFER, FAIL, RELEASE = (int(kind) for kind in Settlement)
BY_TENANT = LimitRules(by="property:tenant", keys_max=100)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "spool")
    made.core.limits.payloads = PayloadReader(made.info.paths)
    made.core.limits.starting = False
    yield made
    assert check(made.engine) == []
    made.writer.close()


def define(world: World, limits: LimitRules | None, queue: int = A) -> None:
    world.begin()
    world.core.define_queue(replace(world.core.rules[queue], limits=limits))
    world.engine.commit()
    assert check(world.engine) == []


def put(world: World, tenant: str = "", **how: object) -> int:
    properties = {"tenant": tenant} if tenant else {}
    return world.put(properties=properties, **how)  # type: ignore[arg-type]


def give(world: World, want: int = 100, queue: int = A, reader: Party | None = None,
         seconds: float = 0.0) -> list[Verdict]:
    given = world.give(want, queue, reader, seconds)
    assert check(world.engine) == []
    return given


def second() -> Party:
    return Party(3, 2, 103, 0, 13)


# the queue as a whole


@pytest.mark.parametrize("keyed", [False, True])
def test_so_many_are_in_work_over_all_readers(world: World, *, keyed: bool) -> None:
    define(world, replace(BY_TENANT, in_work_max=3) if keyed else LimitRules(in_work_max=3))
    ids = [put(world, f"t{number}") for number in range(2 * MANY)]
    first = give(world, MANY)
    assert world.ids(first) == ids[:3]
    other = second()
    assert give(world, reader=other) == []
    assert world.core.t.q_flags[A] & QueueFlag.AT_LIMIT
    world.settle(DONE, first[0])
    assert world.ids(give(world, reader=other)) == ids[3:4]
    world.settle(FAIL, first[1])  # it comes back later, its place at once
    assert world.ids(give(world, reader=other)) == ids[4:5]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_hand_out_by_keys_says_that_it_is_out_of_turn(world: World, *, keyed: bool) -> None:
    """A later one of another key goes first, so who looks at the order later must not miss it."""
    define(world, replace(BY_TENANT, key_in_work_max=1) if keyed else LimitRules(in_work_max=1))
    ids = [put(world, tenant) for tenant in ("a", "a", "b")]
    (path,) = world.info.paths.journal.glob("[0-9]*.jnl")
    first = give(world, 3)
    assert world.ids(first) == ([ids[0], ids[2]] if keyed else ids[:1])
    scan = FileScan(path.read_bytes(), int(path.stem), world.info.uuid)
    told = [int(frame["argument"]) for block in scan for frame in block.frames
            if frame["type"] == FrameType.GIVE]
    assert told == ([GIVEN_OUT_OF_TURN] * 2 if keyed else [0])


@pytest.mark.parametrize("keyed", [False, True])
def test_a_reader_that_waits_is_woken_by_a_place(world: World, *, keyed: bool) -> None:
    define(world, replace(BY_TENANT, in_work_max=1) if keyed else LimitRules(in_work_max=1))
    first, following = put(world, "a"), put(world, "b")
    (one,) = give(world, 5)
    assert one.qpool == first
    world.begin()
    world.engine.wait(second(), A, 5, 1, -1, auxiliary=False)
    assert world.engine.dispatch() == []
    world.engine.commit()
    assert check(world.engine) == []
    world.begin()
    world.engine.settle(world.reader, [one], 2)
    ((_, entries),) = world.engine.dispatch()
    world.engine.commit()
    assert [world.core.t.m_qpool[world.core.t.e_message[each]] for each in entries] == [following]


def test_a_death_gives_the_place_back(world: World) -> None:
    define(world, replace(BY_TENANT, in_work_max=1, key_in_work_max=1))
    put(world, "a")
    following = put(world, "b")
    assert len(give(world)) == 1
    world.begin()
    world.engine.forget(world.reader, (), {}, orderly=False)
    world.engine.commit()
    assert world.ids(give(world, reader=second())) == [following]


def test_a_lease_that_ends_gives_its_place_back(world: World) -> None:
    rules = world.core.rules[A]
    world.begin()
    world.core.define_queue(replace(rules, lease_ns=5 * NS, limits=replace(
        BY_TENANT, key_in_work_max=1)))
    world.engine.commit()
    put(world, "a")
    following = put(world, "a")
    assert len(give(world)) == 1
    assert give(world, reader=second(), seconds=4.9) == []
    assert world.ids(give(world, reader=second(), seconds=0.2)) == [following]


@pytest.mark.parametrize("want", [1, 2 * MANY])
def test_a_rate_is_a_bucket(world: World, want: int) -> None:
    define(world, LimitRules(rate=Rate(NS // 10, 3)))
    ids = [put(world) for _ in range(3 * MANY)]
    given = [each for _ in range(4) for each in give(world, want)]
    assert world.ids(given) == ids[:3]
    assert give(world, want, seconds=0.09) == []
    assert world.engine.next_deadline() <= world.mono + NS // 100
    assert world.ids(give(world, want, seconds=0.01)) == ids[3:4]
    more = [each for _ in range(4) for each in give(world, want, seconds=0 if given else 1)]
    assert more == []
    world.begin(3600)
    assert world.ids([each for _ in range(4) for each in give(world, want)]) == ids[4:7]


def test_who_waits_is_woken_by_a_token(world: World) -> None:
    define(world, LimitRules(rate=Rate(NS, 1)))
    first, following = put(world), put(world)
    assert world.ids(give(world)) == [first]
    world.begin()
    world.engine.wait(world.reader, A, 5, 1, -1, auxiliary=False)
    assert world.engine.dispatch() == []
    world.engine.commit()
    assert world.mono < world.engine.next_deadline() <= world.mono + NS
    world.begin(1)
    world.engine.tick()
    ((_, entries),) = world.engine.dispatch()
    world.engine.commit()
    assert [world.core.t.m_qpool[world.core.t.e_message[each]] for each in entries] == [following]


def test_a_wall_clock_that_steps_gives_and_takes_no_tokens(world: World) -> None:
    define(world, replace(BY_TENANT, rate=Rate(NS, 1), key_rate=Rate(NS, 1)))
    put(world, "a")
    following = put(world, "a")
    assert len(give(world)) == 1
    world.wall += 3600 * NS
    assert give(world) == []
    world.wall -= 7200 * NS
    assert world.ids(give(world, seconds=1)) == [following]


# keys


@pytest.mark.parametrize("fair", [False, True])
def test_so_many_of_a_key(world: World, *, fair: bool) -> None:
    define(world, replace(BY_TENANT, key_in_work_max=2, fair=fair))
    a = [put(world, "a") for _ in range(5)]
    b = [put(world, "b") for _ in range(3)]
    none = [put(world) for _ in range(3)]
    first = give(world)
    assert sorted(world.ids(first)) == sorted([*a[:2], *b[:2], *none[:2]])
    world.settle(DONE, *[each for each in first if each.qpool in (a[0], b[1])])
    assert sorted(world.ids(give(world, reader=second()))) == [a[2], b[2]]


def test_without_fair_turns_the_order_is_that_of_the_queue(world: World) -> None:
    define(world, replace(BY_TENANT, key_in_work_max=9))
    ids = [put(world, "ab"[number % 2], priority=4 + (number == 7)) for number in range(10)]
    assert world.ids(give(world, 1)) == [ids[7]]
    back = give(world, 2)
    assert world.ids(back) == ids[:2]
    world.settle(RELEASE, *back)
    assert world.ids(give(world)) == [each for each in ids if each != ids[7]]


def test_a_backlog_delays_another_by_one_turn(world: World) -> None:
    define(world, replace(BY_TENANT, fair=True))
    a = [put(world, "a") for _ in range(50)]
    assert world.ids(give(world, 5)) == a[:5]
    b = [put(world, "b") for _ in range(2)]
    c = put(world, "c", priority=9)
    assert world.ids(give(world, 6)) == [a[5], b[0], c, a[6], b[1], a[7]]


def test_a_rate_of_a_key(world: World) -> None:
    define(world, replace(BY_TENANT, key_rate=Rate(NS, 2), fair=True))
    a = [put(world, "a") for _ in range(5)]
    b = [put(world, "b") for _ in range(1)]
    assert world.ids(give(world)) == [a[0], b[0], a[1]]
    assert give(world, seconds=0.9) == []
    assert world.engine.next_deadline() <= world.mono + NS // 5
    assert world.ids(give(world, seconds=0.2)) == [a[2]]
    assert world.ids(give(world, seconds=10)) == a[3:5]


def test_keys_that_do_not_come_again_are_forgotten(world: World) -> None:
    rules = replace(BY_TENANT, key_rate=Rate(NS, 1), keys_max=20)
    define(world, rules)
    turns = world.core.limits.queues[A].turns
    assert turns is not None
    for number in range(50):
        put(world, f"once {number}")
        world.settle(DONE, *give(world))
    counters = world.core.t.counters
    assert len(turns.keys) == counters[Counter.LIMIT_KEYS] == 20
    assert counters[Counter.LIMIT_KEYS_FORGOTTEN] == 30
    limits = world.core.limits
    assert limits_shown.queue_told(world.core, A)["limit_keys_forgotten"] == 30
    assert limits.forgotten(world.mono) == [(A, 30, 20)]
    put(world, "one more")
    world.settle(DONE, *give(world))
    assert limits.forgotten(world.mono + TELL_NS - 1) == []  # told a while ago
    assert limits.forgotten(world.mono + TELL_NS) == [(A, 1, 20)]
    assert limits.forgotten(world.mono + 9 * TELL_NS) == []
    world.begin(2)
    world.engine.tick()
    world.engine.commit()
    assert not turns.keys and not turns.due
    define(world, replace(BY_TENANT, key_in_work_max=1))
    for number in range(50):
        put(world, f"once {number}")
        world.settle(DONE, *give(world))
    assert not turns.keys and counters[Counter.LIMIT_KEYS_FORGOTTEN] == 31


def test_what_waits_has_its_key_again(world: World) -> None:
    """Deferred, failed, held, moved away and back: each stands by its key."""
    define(world, replace(BY_TENANT, key_in_work_max=1, fair=True))
    ids = [put(world, "a"), put(world, "b"), put(world, "a")]
    one, two = give(world)
    assert world.ids([one, two]) == ids[:2]
    world.settle(DEFER, one, two, argument=2 * NS)
    (three,) = give(world)
    assert three.qpool == ids[2]
    assert world.ids(give(world, seconds=5)) == [ids[1]]  # a has one in work
    world.settle(FAIL, three)
    assert world.ids(give(world)) == [ids[0]]


def test_keys_are_found_of_what_lies_there(world: World) -> None:
    """Limits that come when there is a backlog, and go, and come back by another key."""
    ids = [put(world, "a"), put(world, "b"), put(world, "a"), put(world, "b"), put(world)]
    held = give(world, 1)
    assert world.ids(held) == ids[:1]
    define(world, replace(BY_TENANT, key_in_work_max=1))
    assert world.core.limits.keys[held[0].entry] == key_of_value(b"a")
    given = give(world)
    assert world.ids(given) == [ids[1], ids[4]]
    define(world, replace(BY_TENANT, by="group", key_in_work_max=2))
    assert give(world) == []  # three without a group are being processed
    define(world, None)
    assert not world.core.t.q_flags[A] & QueueFlag.LIMITED
    assert world.ids(give(world)) == ids[2:4]


def test_limits_change_while_messages_wait(world: World) -> None:
    define(world, replace(BY_TENANT, key_in_work_max=1))
    ids = [put(world, "a") for _ in range(6)]
    assert world.ids(give(world)) == ids[:1]
    define(world, replace(BY_TENANT, key_in_work_max=3))
    assert world.ids(give(world)) == ids[1:3]
    define(world, replace(BY_TENANT, key_in_work_max=1))
    assert give(world) == []
    define(world, BY_TENANT)
    assert world.ids(give(world)) == ids[3:]


def test_a_key_is_paused_and_goes_on(world: World) -> None:
    define(world, replace(BY_TENANT, fair=True))
    ids = [put(world, "a"), put(world, "b"), put(world, "a")]
    limits = world.core.limits
    turns = limits.queues[A].turns
    assert turns is not None
    turns.pause({key_of_value(b"a")}, world.mono)
    assert world.ids(give(world)) == [ids[1]]
    assert put(world, "a")
    assert give(world) == []
    turns.pause(set(), world.mono)
    world.core.runnable.add(A)
    assert world.ids(give(world, 2)) == [ids[0], ids[2]]


# what readers choose


def by_id(world: World, qpool: int, reader: Party) -> list[int]:
    world.begin()
    world.engine.wait(reader, A, 1, 1, -1, auxiliary=False, by=int(Key.MESSAGE_ID), key=qpool)
    return [entry for _, entries in world.engine.dispatch() for entry in entries]


def test_who_chooses_keeps_the_limits_and_is_woken(world: World) -> None:
    define(world, replace(BY_TENANT, key_in_work_max=1))
    put(world, "a")
    wanted = put(world, "a")
    (one,) = give(world)
    assert by_id(world, wanted, second()) == []
    world.engine.commit()
    assert check(world.engine) == []
    world.begin()
    world.engine.settle(world.reader, [one], 2)
    ((_, (entry,)),) = world.engine.dispatch()
    world.engine.commit()
    assert world.core.t.m_qpool[world.core.t.e_message[entry]] == wanted


def test_other_queues_have_no_limits(world: World) -> None:
    define(world, replace(BY_TENANT, key_in_work_max=1, in_work_max=1))
    ids = [world.put(B) for _ in range(3)]
    both = world.put(A, B, properties={"tenant": "a"})
    assert world.ids(give(world, queue=B)) == [*ids, both]
    assert world.ids(give(world)) == [both]
    assert world.core.t.counters[Counter.KEYED_READY] == 0
