"""Units of work as bytes of a client that makes mistakes, or is hostile: each is refused by its
name, nothing has changed, and nothing of it is kept."""

from __future__ import annotations

import pytest

from omq.base import errors
from omq.core.engine.state import IDEL, POISON
from omq.format.index import Counter
from omq.format.message import Part
from omq.format.wire import SETTLE, Operation, Settlement
from omq.ipc.server.fast_server import FastServer
from omq.ipc.server.units import UnitLimits
from tests.model.driver import A, B, draft, encoded
from tests.model.instance import Client, Instance

KIB = 1024


def client(instance: Instance, number: int = 0, queue: int = 0) -> Client:
    made = Client(number, queue, auxiliary=False)
    instance.register(made)
    return made


def ask(instance: Instance, who: Client, operation: Operation, **fields: object) -> object:
    instance.group(lambda: instance.request(who, operation, **fields))  # type: ignore[arg-type]
    return instance.reply(who)


def part(instance: Instance, who: Client, operation: Operation, new: int = 1, size: int = 10,
         **fields: int) -> object:
    """Some new messages for B as a part of a unit."""
    ready = [encoded(draft([Part(B, 4)], bytes(size))) for _ in range(new)]
    heads, at = [], 0
    for e in ready:
        heads.append(e.head(at))
        at += len(e.payload)
    area = b"".join([*heads, *(e.payload for e in ready)])
    return ask(instance, who, operation, area=area, **{"count": new, "length": at, **fields})


def nothing_kept(instance: Instance) -> None:
    plane = instance.server.units
    assert (plane.kept, plane.bytes_by_user.total()) == ({}, 0)
    assert instance.core.t.messages.used == 0


@pytest.mark.parametrize("fields", [
    {"want": 2}, {"want": 0}, {"want": 1, "argument": 1}, {"want": 1, "length": 5},
    {"want": 1, "length": 1 << 30}, {"want": 1, "count": 65535}, {"want": 1, "parts": 65535},
    {"want": 1 << 63}, {"want": 1, "argument": -1},
])
def test_a_commit_that_is_not_all_of_its_unit(instance: Instance, fields: dict[str, int]) -> None:
    who = client(instance)
    assert isinstance(part(instance, who, Operation.COMMIT, **fields), errors.BadRequest)
    nothing_kept(instance)
    assert part(instance, who, Operation.COMMIT, want=1) == (1, 1, 0)


def test_a_part_that_was_lost_with_the_manager(instance: Instance) -> None:
    """The next one knows nothing of what was staged: it does not carry out the rest alone."""
    who = client(instance)
    assert isinstance(part(instance, who, Operation.STAGE), tuple)
    instance.stop()
    instance.start()
    instance.register(who)
    assert isinstance(part(instance, who, Operation.COMMIT, want=2), errors.BadRequest)
    nothing_kept(instance)


def test_limits_of_one_unit_and_of_all(instance: Instance) -> None:
    plane = instance.server.units
    plane._limits = UnitLimits(3, 4 * KIB, 6 * KIB)
    one, other = client(instance, 0), client(instance, 1)
    assert isinstance(part(instance, one, Operation.STAGE, 2), tuple)
    assert isinstance(part(instance, one, Operation.STAGE, 2), errors.UnitTooLarge)
    assert isinstance(part(instance, one, Operation.STAGE, 1, 4000), errors.UnitTooLarge)
    nothing_kept(instance)
    assert isinstance(part(instance, one, Operation.STAGE, 1, 3000), tuple)
    assert isinstance(part(instance, other, Operation.STAGE, 1, 3000), errors.UnitsFull)
    instance.group(lambda: instance.end(one.live, died=True))
    assert isinstance(part(instance, other, Operation.STAGE, 1, 3000), tuple)
    assert ask(instance, other, Operation.BACKOUT, want=1) == (0, 0, 0)
    nothing_kept(instance)


def test_no_user_shuts_out_the_others(instance: Instance) -> None:
    plane = instance.server.units
    plane._limits = UnitLimits(100, 8 * KIB, 8 * KIB)
    member, owner = client(instance, 0), client(instance, 1)
    member.live.party.uid, member.live.party.owns, member.live.trusted = 1000, False, False
    member.live.rights["put", B] = True
    assert isinstance(part(instance, member, Operation.STAGE, 1, 3000), tuple)
    assert isinstance(part(instance, member, Operation.STAGE, 1, 3000), errors.UnitsFull)
    assert isinstance(part(instance, member, Operation.STAGE, 1, 3000), tuple)
    assert isinstance(part(instance, owner, Operation.STAGE, 1, 3000), tuple)
    for who in (member, owner):
        instance.group(lambda who=who: instance.end(who.live, died=True))  # type: ignore[misc]
    nothing_kept(instance)


def test_what_can_be_taken(instance: Instance) -> None:
    who, reader = client(instance), client(instance, 1, queue=A)
    assert isinstance(ask(instance, reader, Operation.TAKE, queue=A, want=1), errors.UnitOpen)
    for queue in (IDEL, 0, 60_000):
        assert isinstance(ask(instance, who, Operation.TAKE, queue=queue, want=1),
                          errors.BadRequest)
    assert isinstance(ask(instance, who, Operation.TAKE, queue=A, want=0), errors.BadRequest)
    assert ask(instance, who, Operation.TAKE, queue=A, want=1 << 63, argument=0) == (0, 0, 0)


@pytest.mark.parametrize("ending", [Operation.BACKOUT, Operation.COMMIT])
def test_a_wait_that_was_given_up_keeps_nothing(instance: Instance, ending: Operation) -> None:
    """A signal ended the program's wait; what it was given since, it does not know of."""
    who, other = client(instance), client(instance, 1)
    t = instance.core.t
    assert ask(instance, who, Operation.TAKE, queue=B, want=1, argument=-1) is None
    part(instance, other, Operation.COMMIT, want=1)
    assert t.q_active[B] == 1
    assert isinstance(ask(instance, who, ending, want=int(ending == Operation.BACKOUT)), tuple)
    assert (t.q_active[B], t.q_ready[B], who.live.party.active) == (0, 1, 0)
    assert ask(instance, who, Operation.TAKE, queue=A, want=1, argument=-1) is None
    assert isinstance(ask(instance, who, ending, want=int(ending == Operation.BACKOUT)), tuple)
    assert not instance.engine.waiters[A]


@pytest.mark.parametrize("kind", [0, Settlement.DEFER, Settlement.FAIL, Settlement.RELEASE, 9])
def test_a_message_of_a_unit_is_taken_and_nothing_else(instance: Instance, kind: int) -> None:
    who = client(instance)
    row = SETTLE.pack(kind, 0, 0, 0, 1, 1, 0, 0, 0)
    for operation in (Operation.COMMIT, Operation.STAGE, Operation.BACKOUT):
        refused = ask(instance, who, operation, area=row, parts=1, argument=1)
        assert isinstance(refused, errors.BadRequest)
    nothing_kept(instance)


def test_a_message_that_is_named_twice_comes_back_once(instance: Instance) -> None:
    who = client(instance)
    part(instance, who, Operation.COMMIT, want=1)
    reply = ask(instance, who, Operation.TAKE, queue=B, want=1, argument=0)
    assert isinstance(reply, tuple)
    (given,) = instance.take(who, reply[0])
    row = SETTLE.pack(1, 0, 0, given.entry, given.qpool, given.lease, 0, 0, 0)
    twice = ask(instance, who, Operation.COMMIT, area=row * 2, parts=2, argument=2)
    assert isinstance(twice, errors.BadRequest)
    assert ask(instance, who, Operation.BACKOUT, area=row * 2, parts=2, want=1) == (1, 0, 0)
    assert who.live.party.active == 0
    t = instance.core.t
    assert (t.q_ready[B], t.q_active[B], t.q_depth[B]) == (1, 0, 1)


def fast(instance: Instance) -> int:
    """Requests that the fast path took; 0: it is off."""
    server = instance.server
    return server.fast if isinstance(server, FastServer) else 0


def test_plain_parts_are_kept_as_bytes_and_end_as_one(instance: Instance) -> None:
    who, other = client(instance), client(instance, 1)
    part(instance, who, Operation.COMMIT, want=1)  # its pool file is chosen
    part(instance, other, Operation.COMMIT, want=1)
    before, on = fast(instance), instance.core.t.messages.used
    for _ in range(2):
        assert part(instance, who, Operation.STAGE, 2) == (2, 0, 0)
    plane = instance.server.units
    assert plane.holds(B)
    assert not plane.holds(A)
    assert instance.core.t.messages.used == on
    assert part(instance, other, Operation.COMMIT, want=1) == (1, 3, 0)  # staged by another one
    assert part(instance, who, Operation.COMMIT, 1, want=5) == (5, 4, 0)
    assert (plane.kept, plane.bytes_by_user.total()) == ({}, 0)
    assert not plane.holds(B)
    assert fast(instance) - before == (4 if isinstance(instance.server, FastServer) else 0)
    assert [len(instance.body(qpool)) for qpool in range(4, 9)] == [len(instance.body(3))] * 5
    one = instance.core.t.slot_of(4)
    assert {instance.core.t.m_lsn[instance.core.t.slot_of(qpool)] for qpool in range(4, 9)} == {
        *range(instance.core.t.m_lsn[one], instance.core.t.m_lsn[one] + 5)}


def test_a_part_that_is_not_plain_makes_the_unit_the_engines(instance: Instance) -> None:
    """What was kept before it comes first still, and is judged with it."""
    who = client(instance)
    assert part(instance, who, Operation.STAGE, 2) == (2, 0, 0)
    ready = encoded(draft([Part(A, 4), Part(B, 4)], b"on two queues"))
    area = ready.head(0) + ready.payload
    assert ask(instance, who, Operation.STAGE, area=area, count=1,
               length=len(ready.payload)) == (1, 0, 0)
    plane = instance.server.units
    assert [len(each.new) for each in plane.kept.values()] == [3]
    assert part(instance, who, Operation.STAGE, 1) == (1, 0, 0)
    assert part(instance, who, Operation.COMMIT, 1, want=5) == (5, 1, 0)
    t = instance.core.t
    assert [t.m_parts[t.slot_of(qpool)] for qpool in range(1, 6)] == [1, 1, 2, 1, 1]
    assert (plane.kept, plane.bytes_by_user.total()) == ({}, 0)
    assert ask(instance, who, Operation.STAGE, area=area, count=1,
               length=len(ready.payload)) == (1, 0, 0)
    assert isinstance(part(instance, who, Operation.COMMIT, 1, want=1), errors.BadRequest)
    assert t.messages.used == 5


def test_a_unit_that_is_refused_behind_kept_parts_leaves_nothing(instance: Instance) -> None:
    who = client(instance)
    assert part(instance, who, Operation.STAGE, 2) == (2, 0, 0)
    row = SETTLE.pack(1, 0, 0, 0, 1, 1, 0, 0, 0)
    assert isinstance(ask(instance, who, Operation.COMMIT, area=row, parts=1, argument=1, want=2),
                      errors.LeaseLost)
    nothing_kept(instance)
    assert part(instance, who, Operation.STAGE, 2) == (2, 0, 0)
    assert isinstance(part(instance, who, Operation.STAGE, 1, length=5), errors.BadRequest)
    nothing_kept(instance)
    assert part(instance, who, Operation.STAGE, 2) == (2, 0, 0)
    assert part(instance, who, Operation.COMMIT, 1, want=3) == (3, 1, 0)


@pytest.mark.parametrize("queue", [0, IDEL, POISON, 60_000])
def test_a_part_for_no_queue_of_users_is_refused_when_it_comes(instance: Instance, queue: int
                                                               ) -> None:
    who = client(instance)
    ready = encoded(draft([Part(B, 4)], b"x"))
    ready.queue = queue
    assert isinstance(ask(instance, who, Operation.STAGE, area=ready.head(0) + ready.payload,
                          count=1, length=len(ready.payload)), errors.BadRequest)
    nothing_kept(instance)


@pytest.mark.parametrize("queue", [0, IDEL, POISON, 60_000, 65_535])
def test_an_id_for_no_queue_of_users_is_refused(instance: Instance, queue: int) -> None:
    """Whether that queue remembers ids is asked of one that is."""
    who = client(instance)
    ready = encoded(draft([Part(B, 4)], b"x"))
    ready.queue, ready.key = queue, 7
    assert isinstance(ask(instance, who, Operation.COMMIT, area=ready.head(0) + ready.payload,
                          count=1, length=len(ready.payload), want=1), errors.BadRequest)
    nothing_kept(instance)


def test_parts_that_do_not_fit_behind_others_are_a_block_of_their_own(instance: Instance) -> None:
    who, other = client(instance), client(instance, 1)
    part(instance, who, Operation.COMMIT, want=1)
    part(instance, other, Operation.COMMIT, want=1)
    assert part(instance, who, Operation.STAGE, 2, 3000) == (2, 0, 0)
    t = instance.core.t

    def commit(client_: Client, new: int, want: int) -> None:
        ready = [encoded(draft([Part(B, 4)], bytes(3000))) for _ in range(new)]
        size = len(ready[0].payload)
        area = b"".join([*(e.head(i * size) for i, e in enumerate(ready)),
                         *(e.payload for e in ready)])
        instance.request(client_, Operation.COMMIT, area=area, count=new, length=new * size,
                         want=want)

    before = t.counters[Counter.GROUPS]
    instance.group(lambda: commit(other, 4, 4), lambda: commit(who, 2, 4))
    assert (instance.reply(other), instance.reply(who)) == ((4, 3, 0), (4, 7, 0))
    assert t.counters[Counter.GROUPS] - before == 2
    assert all(len(instance.body(qpool)) > 3000 for qpool in range(3, 11))
