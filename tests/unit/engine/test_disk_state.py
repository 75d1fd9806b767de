"""Who may use which rows of the index, when it is almost full: core.engine.puts.rows_kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import IndexFull
from omq.core.engine.operate import Action, Item, Order, operate
from omq.core.engine.put_many import put_many
from omq.core.engine.state import Party
from omq.format.index import Counter
from omq.format.journal import FRAME
from omq.format.message import Part
from omq.format.wire import Settlement
from tests.unit.engine.test_requests_as_a_whole import new, one
from tests.unit.engine.world import A, B, World, make_world

ROWS, RESERVE = 10, 4


@pytest.fixture(params=["messages", "entries"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Ten rows in one of the tables, of which four are kept."""
    made = make_world(tmp_path / "spool")
    made.core.index_reserve = RESERVE
    if request.param == "messages":
        made.core.messages_total_max = ROWS
    else:
        made.core.t.entries.capacity = ROWS
    yield made
    made.writer.close()
    made.core.volatile.close()  # type: ignore[attr-defined]


def fill(world: World, party: Party) -> int:
    """How many messages wait when no more are taken."""
    world.putter = party
    with pytest.raises(IndexFull):
        for _ in range(ROWS + 1):
            world.put()
    world.engine.commit()
    return world.core.t.messages.used


@pytest.fixture
def parties(world: World) -> dict[str, Party]:
    owner = world.putter
    return {"owner": owner, "root": _other(owner, 0), "member": _other(owner, 1000)}


def _other(like: Party, uid: int) -> Party:
    """A client of a user who may not write the spool, in the place of this one."""
    return Party(like.client, like.slot, like.pid, uid, like.token, owns=False)


@pytest.mark.parametrize(("who", "most"), [("member", 6), ("owner", 8), ("root", 8)])
def test_puts_leave_a_reserve(world: World, parties: dict[str, Party], who: str, most: int) -> None:
    assert fill(world, parties[who]) == most


def test_batches_leave_it_too(world: World, parties: dict[str, Party]) -> None:
    """All of a batch or none; the refusal names what this user may have."""
    message = new(world, A)
    payload = bytes(message.payload)
    said = dict.fromkeys(FRAME.names, 0) | {
        "flags": message.flags, "queue": A, "priority": 4, "size": message.size,
        "length": len(payload), "crc": message.crc}
    heads = FRAME.pack(*said.values()) * 7
    area = memoryview(heads + payload * 7)

    def many(who: str) -> None:
        world.begin()
        try:
            put_many(world.engine, parties[who], area, area[len(heads):], 7, A, 1)
        finally:
            world.engine.commit()

    with pytest.raises(IndexFull):
        many("member")
    assert world.core.t.messages.used == 0
    many("owner")
    assert world.core.t.messages.used == 7


def test_a_member_makes_no_room_by_moves(world: World, parties: dict[str, Party]) -> None:
    """A move that needs rows leaves what his puts leave; one that needs none always goes."""
    fill(world, parties["member"])
    given = one(world)
    member = _other(world.reader, parties["member"].uid)
    world.begin()
    with pytest.raises(IndexFull):
        world.engine.move(member, given, [Part(B, 4)], [new(world)], 3)
    world.engine.move(member, given, [Part(B, 4)], [], 4)
    world.engine.commit()
    assert world.core.t.q_depth[B] == 1


def test_moves_of_the_owner_use_it_up(world: World, parties: dict[str, Party]) -> None:
    fill(world, parties["owner"])
    for _ in range(RESERVE // 2):
        given = one(world)
        world.begin()
        world.engine.move(world.reader, given, [Part(B, 4)], [new(world)], 3)
        world.engine.commit()
    given = one(world)
    world.begin()
    with pytest.raises(IndexFull):
        world.engine.move(world.reader, given, [Part(B, 4)], [new(world)], 3)
    world.engine.commit()
    assert world.settle(Settlement.DONE, given) == 0


def test_an_operator_may_use_it(world: World, parties: dict[str, Party]) -> None:
    fill(world, parties["member"])
    (given,) = world.give(1)
    world.settle(Settlement.RELEASE, given)
    order = Order(Action.MOVE, (Item(given.qpool, A),), b"{}", (A, B))
    world.begin()
    outcome = operate(world.core, parties["member"], order, world.engine.forget_reader)
    world.engine.commit()
    assert outcome.done == [given.qpool]


@pytest.mark.parametrize(("used", "low"), [(5, 0), (6, 1), (7, 1), (8, 2)])
def test_who_has_room_is_told(world: World, used: int, low: int) -> None:
    for _ in range(used):
        world.put()
    assert world.engine.books.room() == low == world.core.t.counters[Counter.INDEX_LOW]


@pytest.mark.parametrize(("total", "percent", "found"), [
    (0, 2, (2000, 40)), (500, 2, (500, 10)), (10, 2, (10, 0)), (0, 0, (2000, 0)),
    (100_000, 50, (100_000, 1000))])
def test_the_limits(world: World, total: int, percent: int, found: tuple[int, int]) -> None:
    world.engine.books.limit(total, percent)
    assert (world.core.messages_total_max, world.core.index_reserve) == found


def test_without_a_reserve_all_rows_are_for_all(world: World, parties: dict[str, Party]) -> None:
    world.core.index_reserve = 0
    assert fill(world, parties["member"]) == ROWS
