"""MOVE_MANY as bytes: a batch moves whole, each message with its own unit of work; what is wrong is
refused by its name and has changed nothing."""

from __future__ import annotations

import pytest

from omq.base import errors
from omq.format.journal import FrameType
from omq.format.message import Part
from omq.format.wire import SETTLE, Operation, Settlement
from tests.model.driver import A, B, C, draft, encoded
from tests.model.instance import Client, Given, Instance
from tests.model.test_unit_requests import ask, client, part


@pytest.fixture
def reader(instance: Instance) -> Client:
    """A reader of B with five messages in hand."""
    part(instance, client(instance, 7), Operation.COMMIT, new=5, want=5)
    return client(instance, 1, B)


@pytest.fixture
def held(instance: Instance, reader: Client) -> list[Given]:
    reply = ask(instance, reader, Operation.NEXT, want=5, argument=0)
    assert isinstance(reply, tuple)
    return instance.take(reader, reply[0])


def move(instance: Instance, who: Client, rows: list[tuple[Given, int]], queue: int = A,
         kind: int = Settlement.DONE, new: int = -1) -> object:
    """These messages; each has so many new ones, for `queue`."""
    count = sum(each for _, each in rows) if new < 0 else new
    ready = [encoded(draft([Part(queue, 4)], b"new %d" % i)) for i in range(count)]
    heads, at = [], 0
    for e in ready:
        heads.append(e.head(at))
        at += len(e.payload)
    area = b"".join([
        *(SETTLE.pack(kind, 0, 0, g.entry, g.qpool, g.lease, each, 0, 0) for g, each in rows),
        *heads, *(e.payload for e in ready)])
    return ask(instance, who, Operation.MOVE_MANY, area=area, parts=len(rows), count=count,
               length=at)


def test_a_batch_moves_by_one_request(instance: Instance, reader: Client,
                                      held: list[Given]) -> None:
    assert len(held) == 5
    reply = move(instance, reader, [(held[0], 1), (held[1], 0), (held[2], 2)])
    assert isinstance(reply, tuple)
    assert reply[0] == 3
    t = instance.core.t
    assert (t.q_depth[A], t.q_depth[B], t.q_active[B]) == (3, 2, 2)
    assert reader.live.party.active == 2
    assert [instance.body(reply[1] + i)[-5:] for i in range(3)] == [b"new 0", b"new 1", b"new 2"]


def test_each_message_has_its_own_unit_of_work(instance: Instance, reader: Client,
                                               held: list[Given],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    block, frames = instance.core.block, []
    whole = block.frame

    def noted(kind: FrameType, *args: object, **fields: object) -> int:
        lsn = whole(kind, *args, **fields)  # type: ignore[arg-type]
        frames.append((kind, fields["unit"], lsn))
        return lsn

    monkeypatch.setattr(block, "frame", noted)
    move(instance, reader, [(held[0], 1), (held[1], 0), (held[2], 2)])
    kinds = [kind for kind, _, _ in frames]
    assert kinds == [FrameType.DONE, FrameType.PUT, FrameType.DONE, FrameType.DONE, FrameType.PUT,
                     FrameType.PUT]
    first, second, third = frames[0][2], frames[2][2], frames[3][2]
    assert [unit for _, unit, _ in frames] == [first, first, 0, third, third, third]
    assert second == first + 2


@pytest.mark.parametrize("kind", [0, Settlement.DEFER, Settlement.FAIL, Settlement.RELEASE, 9])
def test_only_what_is_finished_moves(instance: Instance, reader: Client, held: list[Given],
                                     kind: int) -> None:
    assert isinstance(move(instance, reader, [(held[0], 1)], kind=kind), errors.BadRequest)
    assert reader.live.party.active == 5


@pytest.mark.parametrize(("counts", "new"), [((1, 1), 1), ((1, 1), 3), ((-1, 2), 1), ((), 1),
                                             ((1 << 40, 1), 1)])
def test_the_counts_are_those_of_the_new_messages(instance: Instance, reader: Client,
                                                  held: list[Given], counts: tuple[int, ...],
                                                  new: int) -> None:
    rows = list(zip(held, counts, strict=False))
    assert isinstance(move(instance, reader, rows, new=new), errors.BadRequest)
    assert (instance.core.t.q_depth[A], reader.live.party.active) == (0, 5)


def test_all_or_nothing(instance: Instance, reader: Client, held: list[Given]) -> None:
    """Named twice, not held, a queue that has no room for all of them: nothing has happened."""
    twice = move(instance, reader, [(held[0], 1), (held[0], 1)])
    assert isinstance(twice, errors.BadRequest)
    stranger = client(instance, 2, B)
    assert isinstance(move(instance, stranger, [(held[0], 1)]), errors.LeaseLost)
    full = move(instance, reader, [(each, 2) for each in held], queue=C)
    assert isinstance(full, errors.QueueFull)
    t = instance.core.t
    assert (t.q_depth[A], t.q_depth[C], reader.live.party.active) == (0, 0, 5)
    assert isinstance(move(instance, reader, [(each, 1) for each in held], queue=C), tuple)
    assert (t.q_depth[C], t.q_depth[B]) == (5, 0)


def test_who_reads_nothing_moves_nothing(instance: Instance, held: list[Given]) -> None:
    assert isinstance(move(instance, client(instance, 3), [(held[0], 0)]), errors.BadRequest)


def test_more_than_the_request_has_room_for(instance: Instance, reader: Client) -> None:
    refused = ask(instance, reader, Operation.MOVE_MANY, parts=60_000, count=0, length=0)
    assert isinstance(refused, errors.BadRequest)
