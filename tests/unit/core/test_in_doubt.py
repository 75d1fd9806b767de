"""Units of work in doubt: over redo, checkpoints and a start, and what may be missing of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base import errors
from omq.base.settings import Settings
from omq.core.engine.in_doubt import InDoubt
from omq.core.engine.operate import Action
from omq.core.engine.state import CONTAINER, IDEL, PERSISTENT, Core, Party
from omq.core.engine.unit_facts import Facts, UnitInDoubt, read_facts
from omq.core.index.tables import Tables
from omq.core.load.pool_columns import Loaded
from omq.core.load.rebuild import load
from omq.core.redo.redo import Redo
from omq.format.index import Counter
from omq.services.manager.units_in_doubt import doubts_text, old_doubts
from omq.storage import durable
from omq.storage.journal import file_name
from omq.storage.journal_scan import Block as JournalBlock
from omq.storage.slots import SlotAllocator
from tests.unit.core.redo_world import TIME_NS, NoBodies, QuietDisk, World, found

A, B, C = 3, 4, 5


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    before = durable.use(QuietDisk())
    made = World(tmp_path / "spool")
    made.engine.in_doubt.limit = 10
    yield made
    made.close()
    durable.use(before)


def prepare(world: World, taken: int = 1, puts: tuple[tuple[int, ...], ...] = ((B,),),
            name: str = "", party: Party | None = None, flags: int = PERSISTENT) -> UnitInDoubt:
    """A unit that took so many messages of A and puts on these queues; durable."""
    given = world.give(A, taken) if taken else []
    return prepare_these(world, given, puts, name, party, flags)


def prepare_these(world: World, given: list[int], puts: tuple[tuple[int, ...], ...] = ((B,),),
                  name: str = "", party: Party | None = None, flags: int = PERSISTENT
                  ) -> UnitInDoubt:
    world.sequence += 1
    party = party or world.party
    facts = Facts(name, "test", party.uid, party.pid, len(given), sum(map(len, puts)))
    qpool = world.engine.in_doubt.prepare(
        party, [world.verdict(entry) for entry in given],
        [world.message(queues, flags=flags) for queues in puts], facts, world.sequence)
    world.commit()
    return next(u for u in world.engine.in_doubt.units.values() if u.qpool == qpool)


def end(world: World, unit: UnitInDoubt, *, commit: bool) -> None:
    world.sequence += 1
    world.engine.in_doubt.end(unit, world.party, world.sequence, commit=commit)
    world.commit()


def depth(world: World, queue: int) -> tuple[int, int]:
    """(all, ready)."""
    return world.core.t.q_depth[queue], world.core.t.q_ready[queue]


def started(world: World) -> tuple[Core, Loaded]:
    """An index as a start loads it from the pool that redo makes."""
    world.recover()
    files = world.pool()
    core = Core(Tables.private(2000, 8000), SlotAllocator(), NoBodies(), world.info.uuid)
    core.now_ns, core.mono_ns = TIME_NS, 1
    core.rules = world.core.rules
    loaded = load(core, files, core.slots)  # type: ignore[arg-type]
    files.close()
    return core, loaded


def body_of(world: World, core: Core) -> Callable[[int], bytes]:
    """Reads what the journal has, as a start does."""
    def read(slot: int) -> bytes:
        t = core.t
        for block in world.blocks():
            at = t.m_offset[slot] - block.payload_at
            if 0 <= at < block.header.payload:
                raw = block.payload(at, t.m_length[slot])
                return raw[160:]
        return b""

    return read


def damage(world: World, qpool: int) -> list[JournalBlock]:
    """Turn a byte of the body of a message in its journal file; the journal then."""
    for block in world.blocks():
        for frame in block.frames[block.frames["qpool"] == qpool]:
            if frame["length"]:
                with (world.paths.journal / file_name(block.number)).open("r+b") as file:
                    file.seek(block.payload_at + int(frame["offset"]) + 5)
                    byte = file.read(1)
                    file.seek(-1, 1)
                    file.write(bytes([byte[0] ^ 1]))
    return world.blocks()


def test_between_its_phases_nobody_has_its_messages(world: World) -> None:
    for _ in range(2):
        world.put([A])
    world.commit()
    unit = prepare(world, puts=((B,), (B, C)))
    assert depth(world, A) == (2, 1) and depth(world, B) == (2, 0) and depth(world, C) == (1, 0)
    assert world.give(B, 5) == [] and world.party.active == 0
    t = world.core.t
    assert t.counters[Counter.UNITS_IN_DOUBT] == t.counters[Counter.UNITS_PREPARED] == 1
    assert world.engine.in_doubt.counts(unit) == (1, 3)
    assert world.engine.in_doubt.queues(unit) == {A: (1, 0), B: (0, 2), C: (0, 1)}
    for entry in unit.entries:
        slot, queue = t.e_message[entry], t.e_queue[entry]
        for action in Action:
            outcome = world.operate(action, slot, queue if action is not Action.RESTORE else 9,
                                    [9] if action is Action.MOVE else [])
            assert outcome.done == [] and "prepared" in str(outcome.refused[0][1])
    slot = t.e_message[unit.own]
    assert world.operate(Action.DELETE, slot, IDEL).done == []
    assert world.operate(Action.RESTORE, slot, A).done == []
    assert world.recover() == world.expected()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("checkpointed", [True, False])
def test_its_end_is_redone(world: World, commit: bool, checkpointed: bool) -> None:  # noqa: FBT001
    """In one window with its prepare, and over a checkpoint."""
    for _ in range(3):
        world.put([A, C])
    world.commit()
    unit = prepare(world, 2, puts=((B,), (B, C)))
    if checkpointed:
        assert world.recover() == world.expected()
    end(world, unit, commit=commit)
    assert world.engine.in_doubt.units == {} and world.core.t.q_depth[IDEL] == 0
    if commit:
        assert depth(world, A) == (1, 1) and depth(world, B) == (2, 2) and depth(world, C) == (4, 4)
    else:
        assert depth(world, A) == (3, 3) and depth(world, B) == (0, 0) and depth(world, C) == (3, 3)
        attempts = sorted(world.core.t.e_attempts[e] for m in world.live()
                          for e in world.core.t.entries_of(m) if world.core.t.e_queue[e] == A)
        assert attempts == [0, 1, 1]
    assert world.recover() == world.expected()


@pytest.mark.parametrize("commit", [True, False])
def test_a_start_knows_it(world: World, commit: bool) -> None:  # noqa: FBT001
    world.put([A])
    world.commit()
    unit = prepare(world, puts=((B,), (B,)), name="order-1")
    core, loaded = started(world)
    again = InDoubt(core, lambda _: None)
    assert again.load(loaded.prepared, body_of(world, core)) == []
    (known,) = again.units.values()
    assert (known.number, known.qpool, known.facts) == (unit.number, unit.qpool, unit.facts)
    assert again.counts(known) == (1, 2) and again.missing(known) == 0
    assert again.find("order-1", world.party) is again.find(again.name_of(known), world.party)
    assert core.t.q_ready[A] == core.t.q_ready[B] == 0
    assert core.t.counters[Counter.UNITS_IN_DOUBT] == 1
    assert loaded.limbo == {}, "nobody holds what it took"
    world.engine.in_doubt.end(unit, world.party, 9, commit=commit)
    world.commit()
    core, loaded = started(world)
    assert loaded.prepared == []
    assert core.t.q_ready[A] == (not commit) and core.t.q_ready[B] == 2 * commit


def test_what_is_lost_is_said(world: World) -> None:
    """Its own message, one of its messages; a body that says nothing."""
    for _ in range(2):
        world.put([A])
    world.commit()
    first, second = prepare(world, name="a"), prepare(world, name="b")
    core, loaded = started(world)
    t = core.t
    own = {t.e_until[e]: e for e in loaded.prepared if t.e_queue[e] == IDEL}
    put = next(e for e in loaded.prepared if t.e_queue[e] == B and t.e_until[e] == second.number)
    left = [e for e in loaded.prepared if e not in (own[first.number], put)]
    again = InDoubt(core, lambda _: None)
    said = sorted(again.load(left, body_of(world, core)), reverse=True)
    assert len(said) == 2 and "whose unit of work number-" in said[0]
    assert said[1].startswith("1 messages of unit")
    lost = again.units[first.number]
    assert lost.lost and again.name_of(lost) == f"number-{first.number}"
    stranger = Party(9, 3, 9, 4444, 9, owns=False)
    assert again.find(again.name_of(lost), stranger) is None
    assert again.by_id(again.name_of(lost)) is lost
    third = InDoubt(core, lambda _: None)
    assert all("lost" in text for text in third.load(loaded.prepared, lambda _slot: b"{}"))


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"{}", b'{"uid": -1}', b'{"uid": true}', b'{"uid": 1, "gets": "1"}',
    b'{"uid": 1, "name": 7}', b'{"uid": 1, "more": 1}', b"[" * 100_000])
def test_facts_that_say_nothing_are_nobodys(body: bytes) -> None:
    assert read_facts(body).uid is None
    assert read_facts(Facts("n", "p", 0, 1, 2, 3).encode()) == Facts("n", "p", 0, 1, 2, 3)


def test_what_cannot_be_prepared(world: World) -> None:
    before = world.lsn
    for puts, flags, reason in (((), PERSISTENT, "empty"), (((B,),), 0, "not persistent")):
        with pytest.raises(errors.UnitNotPrepared, match=reason):
            prepare(world, 0, puts, flags=flags)
    with pytest.raises(errors.UnitNotPrepared, match="delay"):
        world.engine.in_doubt.prepare(
            world.party, [], [world.message([A], until=TIME_NS // 10**9 + 9)], Facts(uid=1), 5)
    with pytest.raises(errors.UnitNotPrepared, match="looks like"):
        prepare(world, 0, name="number-4")
    assert world.core.block.count == 0 and world.lsn == before
    prepare(world, 0, name="same")
    with pytest.raises(errors.UnitNameTaken):
        prepare(world, 0, name="same")
    other = Party(9, 3, 9, 4444, 9, owns=False)
    for i in range(5):  # half of the limit
        prepare(world, 0, name="same" if not i else "", party=other)
    with pytest.raises(errors.TooManyInDoubt):
        prepare(world, 0, party=other)
    prepare(world, 0)


def test_a_queue_is_as_full_as_if_it_were_committed(world: World) -> None:
    """What it took is on its queue still: a backout has room; so has a commit."""
    world.put([A])
    world.commit()
    world.core.rules[A] = replace(world.core.rules[A], max_depth=1)
    given = world.give(A)
    with pytest.raises(errors.QueueFull):
        prepare_these(world, given, ((A,),))
    assert world.party.active == 1
    prepare_these(world, given, ())


def test_another_users_unit_is_unknown(world: World) -> None:
    world.put([A])
    world.commit()
    unit = prepare(world, name="mine")
    in_doubt = world.engine.in_doubt
    name, stranger = in_doubt.name_of(unit), Party(9, 3, 9, 4444, 9, owns=False)
    assert in_doubt.find(name, stranger) is in_doubt.find("mine", stranger) is None
    mine = prepare(world, 0, name="mine", party=stranger)
    assert in_doubt.find("mine", stranger) is mine and in_doubt.find("mine", world.party) is unit
    end(world, unit, commit=True)
    assert isinstance(in_doubt.ended(name, world.party), errors.UnitResolved)
    assert isinstance(in_doubt.ended(name, stranger), errors.UnitUnknown)


def test_numbers_are_those_of_one_unit(world: World) -> None:
    """A year later the QPoolIds come by again."""
    unit = prepare(world, 0)
    world.core.next_qpool = world.core.block.next_qpool = (1 << 32) + unit.number
    assert prepare(world, 0).number == unit.number + 1


def test_a_backout_removes_a_container_and_poisons(world: World) -> None:
    world.put([A])
    world.commit()
    (entry,) = world.give(A)
    world.core.t.e_attempts[entry] = world.core.rules[A].attempts_max
    unit = prepare_these(world, [entry], ((B, C),), flags=PERSISTENT | CONTAINER)
    end(world, unit, commit=False)
    t = world.core.t
    assert [p.qpool for p in world.engine.poisoned] and t.q_ready[2] == 1
    assert depth(world, IDEL) == (1, 1), "idel.server removes its file"
    assert world.recover() == {
        qpool: (where, frozenset(part for part in parts if part[0] != IDEL))
        for qpool, (where, parts) in world.expected().items()}


def test_a_damaged_body_of_a_unit_in_doubt_costs_itself(world: World) -> None:
    """It was promised: what else belongs to the unit stays."""
    world.put([A])
    world.commit()
    unit = prepare(world, puts=((B,), (C,)))
    damaged = world.core.t.m_qpool[world.core.t.e_message[unit.entries[1]]]
    world.put([A])  # behind it: the unit is durable
    world.commit()
    blocks = damage(world, damaged)
    pool = world.pool()
    redo = Redo(pool)
    redo.apply(blocks, durable=world.lsn)
    world.checkpoint(pool, redo)
    left = found(pool)
    pool.close()
    assert len(redo.findings) == 1
    wanted = world.expected()
    del wanted[damaged]
    assert {q: parts for q, (_, parts) in left.items()} == {
        q: parts for q, (_, parts) in wanted.items()}


def test_a_torn_body_of_a_unit_condemns_its_prepare(world: World) -> None:
    """Above what was durable nobody was told."""
    world.put([A])
    world.commit()
    (entry,) = world.give(A)
    before = world.expected()
    lsn = world.lsn
    unit = prepare_these(world, [entry], ((B,), (C,)))
    blocks = damage(world, world.core.t.m_qpool[world.core.t.e_message[unit.entries[1]]])
    redo = Redo(world.pool())
    redo.apply(blocks, durable=lsn)
    assert {m.qpool for m in redo.dirty.values() if m} | set(redo.images.qpools().tolist()) == \
        set(before)
    assert redo.clients[world.party.token].sequence < world.sequence


@pytest.mark.parametrize("commit", [True, False])
def test_a_full_disk_leaves_it_in_doubt(world: World, commit: bool,  # noqa: FBT001
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a unit needs room for its frames; refused, it can be asked for again."""
    world.put([A])
    world.commit()
    unit = prepare(world)
    before = world.expected()

    def full(frames: int, payload_bytes: int) -> None:
        raise errors.SpoolFull(path="journal", detail=f"{frames} frames, {payload_bytes} bytes")

    with monkeypatch.context() as patched:
        patched.setattr(world.core.block, "reserve", full)
        with pytest.raises(errors.SpoolFull):
            world.engine.in_doubt.end(unit, world.party, 9, commit=commit)
    assert world.engine.in_doubt.units == {unit.number: unit} and world.core.block.count == 0
    assert world.expected() == before
    end(world, unit, commit=commit)
    assert world.recover() == world.expected()


def test_who_is_in_doubt_for_long_is_told_of_once(world: World) -> None:
    first = prepare(world, 0, name="first")
    settings, warned = replace(Settings(), unit_in_doubt_warn_s=60), set[int]()
    assert list(old_doubts(world.engine, settings, warned)) == []
    world.core.now_ns += 61 * 10**9
    (told,) = old_doubts(world.engine, settings, warned)
    assert (told["unit"], told["name"]) == (world.engine.in_doubt.name_of(first), "first")
    assert list(old_doubts(world.engine, settings, warned)) == []
    assert doubts_text(world.engine) == "1 units of work in doubt, "
    world.engine.in_doubt.end(first, world.party, 9, commit=False)
    assert list(old_doubts(world.engine, settings, warned)) == [] and not warned
    assert doubts_text(world.engine) == ""
