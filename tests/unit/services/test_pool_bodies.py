"""Behind the checkpoint: bodies are relocated, journal files retired, store files compacted; and
nothing that somebody may still need ever goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omq.base import clock
from omq.base.errors import SpoolFull, TimedOut
from omq.base.paths import SpoolPaths
from omq.format.index import Counter, IndexFlag, write_header
from omq.format.location import LocationKind, kind_of, number_of
from omq.format.store import HEADER_BYTES
from omq.services.pool import bodies as pool_bodies
from omq.storage import spool, standby_holds
from omq.storage.files import File
from omq.storage.journal import numbers_in
from omq.storage.store import file_name, store_numbers
from tests.unit.core.redo_world import found
from tests.unit.services.pool_world import ManagerWorld

RETIRED, COMPACTED, DAMAGED, FAILED = 1402, 1431, 1442, 1008


def archive(world: ManagerWorld) -> list[int]:
    return numbers_in(world.paths.archive)


def bodies(world: ManagerWorld, qpools: list[int]) -> dict[int, bytes]:
    return {qpool: world.body(qpool) for qpool in qpools}


def check_pool(world: ManagerWorld) -> None:
    """The pool agrees with the index, also about where bodies are."""
    pool = world.pool()
    assert found(pool) == world.expected()
    pool.close()


def test_files_without_live_bodies_are_retired_oldest_first(world: ManagerWorld) -> None:
    world.fill_journal(4)
    world.finish()
    world.rounds(4)
    newest = world.writer.file_number
    assert archive(world) == list(range(1, newest - 1))
    assert numbers_in(world.paths.journal) == [newest - 1, newest]
    assert world.events().count(RETIRED) == newest - 2


def test_they_can_be_removed_instead(world: ManagerWorld) -> None:
    world.settings = replace(world.settings, archive="delete", journal_files_kept=0)
    world.fill_journal(3)
    world.finish()
    world.rounds(4)
    assert archive(world) == [] and numbers_in(world.paths.journal) == [world.writer.file_number]


def test_bodies_that_are_needed_go_to_the_store_first(world: ManagerWorld) -> None:
    qpools = world.fill_journal(4)
    before = bodies(world, qpools)
    world.finish(set(qpools[::2]))
    kept = qpools[1::2]
    world.rounds(5)
    assert archive(world) == list(range(1, world.writer.file_number - 1))
    old = [word for word in world.words() if kind_of(word) == LocationKind.JOURNAL]
    assert all(number_of(word) >= world.writer.file_number - 1 for word in old)
    assert any(kind_of(word) == LocationKind.STORE for word in world.words())
    for path in world.paths.archive.iterdir():
        path.unlink()  # nobody needs them
    assert bodies(world, kept) == {qpool: before[qpool] for qpool in kept}
    check_pool(world)


def test_it_is_not_retired_before_the_checkpoint_that_covers_it(world: ManagerWorld) -> None:
    world.fill_journal(3)
    world.finish()
    world.rounds(1)
    assert archive(world) == [], "seen empty for the first time"
    world.rounds(1)
    assert archive(world) == [], "nothing is known of what was seen before"
    world.rounds(2)
    assert archive(world)


def test_what_ends_in_the_group_in_progress_is_not_believed(world: ManagerWorld) -> None:
    """VERSION is odd: the index is ahead of the disk. The round waits, and gives up."""
    world.fill_journal(3)

    def in_progress() -> None:
        world.engine.begin(0, 0)
        world.signals.now_ns += 10**10

    world.finish()
    world.follow(*[in_progress] * 4)
    assert archive(world) == [] and world.signals.short_waits > 0


def test_a_round_waits_for_the_end_of_the_group(world: ManagerWorld) -> None:
    world.fill_journal(3)
    world.finish()

    def in_progress() -> None:
        world.put([30])
        world.engine.begin(0, 0)
        world.signals.now_ns += 10**10
        world.signals.short_steps = [lambda: None, world.commit]

    world.follow(*[in_progress] * 4)
    assert archive(world)


def test_an_index_without_the_messages_says_nothing(world: ManagerWorld) -> None:
    world.fill_journal(3)
    world.finish()
    write_header(world.core.t.buffer, replace(world.header, flags=int(IndexFlag.POOL_NOT_READ)))
    world.rounds(4)
    assert archive(world) == []


def test_kept_files_stay(world: ManagerWorld) -> None:
    world.settings = replace(world.settings, journal_files_kept=100)
    world.fill_journal(3)
    world.finish()
    world.rounds(4)
    assert archive(world) == []


def test_a_file_of_which_a_copy_begins_meanwhile_stays(world: ManagerWorld,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """A round takes a while; `omq standby init` may name the oldest file at any moment of it."""
    world.fill_journal(4)
    world.finish()
    still, asked = standby_holds.still, list[int]()

    def a_copy_begins(paths: SpoolPaths, what: str) -> File | None:
        asked.append(numbers_in(paths.journal)[0])
        if len(asked) == 2:
            assert standby_holds.note(paths, "b", asked[-1])
        return still(paths, what)

    monkeypatch.setattr(standby_holds, "still", a_copy_begins)
    world.rounds(6)
    assert asked[:2] == [1, 2] and archive(world) == [1]
    assert numbers_in(world.paths.journal)[0] == 2
    assert standby_holds.note(world.paths, "b", None)
    held = spool.lock(world.paths.standbys_lock, "a copy that says so now")
    world.rounds(3)
    assert numbers_in(world.paths.journal)[0] == 2
    held.close()
    world.rounds(3)
    assert numbers_in(world.paths.journal) == [world.writer.file_number - 1,
                                               world.writer.file_number]


def test_there_is_never_a_gap(world: ManagerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is needed keeps the later ones, too."""
    qpools = world.fill_journal(4)
    world.finish(set(qpools[1:]))
    monkeypatch.setattr(pool_bodies.BodyKeeper, "_relocate", lambda *_: 0)
    world.rounds(5)
    assert archive(world) == []
    monkeypatch.undo()
    monkeypatch.setattr(clock, "monotonic_ns", lambda: world.signals.now_ns)
    world.rounds(4)
    assert archive(world) == list(range(1, world.writer.file_number - 1))


def test_a_damaged_body_stays_and_its_file_is_kept_for_it(world: ManagerWorld) -> None:
    world.settings = replace(world.settings, archive="delete")
    qpools = world.fill_journal(4)
    first = qpools[0]
    t = world.core.t
    where = t.m_location[t.slot_of(first)], t.m_offset[t.slot_of(first)]
    world.follow()  # a checkpoint: redo has read the payload while it was whole
    with (world.paths.journal / "0000000001.jnl").open("r+b") as file:
        file.seek(where[1] + 1000)
        file.write(b"damage")
    world.rounds(5)
    assert archive(world) == [1], "the others are deleted"
    assert (t.m_location[t.slot_of(first)], t.m_offset[t.slot_of(first)]) == where
    assert world.body(first)[1000:1006] == b"damage", "still found, in the archive"
    assert world.events().count(DAMAGED) == 1
    assert len(list(world.paths.quarantine.glob("*.bin"))) == 1


def test_the_body_of_an_unreadable_record_is_never_deleted(world: ManagerWorld) -> None:
    """The manager could not read a record: nobody can say where its body lies. Journal files go to
    archive/, store files stay."""
    world.settings = replace(world.settings, archive="delete")
    world.fill_journal(4)
    world.rounds(3)  # bodies are in the store now
    stores = [n for n in store_numbers(world.paths)
              if (world.paths.store / file_name(n)).stat().st_size > HEADER_BYTES]
    assert stores and archive(world) == []
    world.fill_journal(2)
    write_header(world.core.t.buffer, replace(world.header, flags=int(IndexFlag.POOL_DAMAGED)))
    world.finish()
    world.rounds(5)
    assert archive(world), "kept, although retired files are to be deleted"
    assert set(stores) <= set(store_numbers(world.paths))
    assert all((world.paths.store / file_name(n)).stat().st_size > HEADER_BYTES for n in stores)


def test_a_refused_relocation_is_tried_again(world: ManagerWorld) -> None:
    qpools = world.fill_journal(4)
    before = bodies(world, qpools)
    world.line.refuse = TimedOut(seconds=5, what="the queue manager")
    world.rounds(3)
    assert archive(world) == [] and FAILED in world.events()
    world.line.refuse = None
    world.rounds(5)
    assert archive(world) and bodies(world, qpools) == before
    check_pool(world)


def test_copies_of_a_relocation_that_finds_no_room_give_their_space_back(world: ManagerWorld
                                                                           ) -> None:
    """A request that was refused for lack of journal left its copies: each try added its own, until
    the store had the whole disk."""
    world.settings = replace(world.settings, store_file_bytes=1 << 22)
    qpools = world.fill_journal(4)
    before = bodies(world, qpools)
    world.line.refuse = SpoolFull(path=world.paths.journal, detail="no rotation")
    world.rounds(3)
    sizes = [(world.paths.store / file_name(number)).stat().st_size
             for number in store_numbers(world.paths)]
    assert sizes and max(sizes) <= world.settings.journal_page_bytes
    world.line.refuse = None
    world.rounds(4)
    assert sum(world.line.accepted) and archive(world)
    assert bodies(world, qpools) == before
    check_pool(world)


def test_copies_of_a_request_that_was_sent_again_stay(world: ManagerWorld) -> None:
    """The manager has taken the first copy of it, and refused the second one."""
    qpools = world.fill_journal(4)
    before = bodies(world, qpools)
    world.line.registers = True
    world.line.refuse = SpoolFull(path=world.paths.journal, detail="no rotation")
    world.rounds(1)
    assert sum(world.line.accepted)
    assert bodies(world, qpools) == before
    world.line.registers, world.line.refuse = False, None
    world.rounds(4)
    assert bodies(world, qpools) == before
    check_pool(world)


def test_the_store_file_of_a_request_in_doubt_stays(world: ManagerWorld) -> None:
    """The manager may still carry it out: then live bodies are there."""
    qpools = world.fill_journal(4)
    world.line.refuse = TimedOut(seconds=5, what="the queue manager")
    doubtful: list[int] = []

    def news() -> None:
        world.put([30])
        world.commit()
        world.signals.now_ns += 10**10

    def answer() -> None:
        doubtful.extend(store_numbers(world.paths))
        world.line.refuse = None

    def finish_all() -> None:
        world.finish(set(qpools))
        news()

    world.follow(news, lambda: None, answer, *[finish_all] * 6)
    assert doubtful and set(doubtful) <= set(store_numbers(world.paths))
    sizes = [(world.paths.store / file_name(number)).stat().st_size for number in doubtful]
    assert min(sizes) > HEADER_BYTES
    world.rounds(4)  # another connection: what was asked for in the old one is void
    assert not set(doubtful[:-1]) & set(store_numbers(world.paths))


def test_store_files_that_nobody_needs_give_their_space_back(world: ManagerWorld) -> None:
    qpools = world.fill_journal(4)
    world.rounds(3)
    assert sum((world.paths.store / file_name(n)).stat().st_size
               for n in store_numbers(world.paths)) > 100_000
    world.finish(set(qpools))
    world.rounds(5)
    left = store_numbers(world.paths)
    assert len(left) == 1, "the highest number stays, so that it is not used again"
    assert (world.paths.store / file_name(left[0])).stat().st_size == HEADER_BYTES
    assert COMPACTED in world.events()
    check_pool(world)


def test_a_store_file_that_is_mostly_dead_is_emptied(world: ManagerWorld) -> None:
    qpools = world.fill_journal(5)
    before = bodies(world, qpools)
    world.rounds(3)
    first = min(store_numbers(world.paths))
    t = world.core.t
    inside = [q for q in qpools
              if t.m_location[t.slot_of(q)] == int(LocationKind.STORE) << 30 | first]
    assert len(inside) > 1
    world.finish(set(inside[1:]))
    world.rounds(5)
    assert first not in store_numbers(world.paths)
    assert world.body(inside[0]) == before[inside[0]]
    check_pool(world)


def test_a_message_that_moved_meanwhile_is_asked_for_again(world: ManagerWorld) -> None:
    """Its pool record is another one: the manager refuses the row, the next round has it right."""
    qpools = world.fill_journal(4)
    before = bodies(world, qpools)
    (entry,) = world.give(3, 1)
    qpool = world.core.t.m_qpool[world.core.t.e_message[entry]]
    asked = world.line.relocate

    def moving(rows: bytes) -> int:
        world.line.relocate = asked  # type: ignore[method-assign]
        world.move(entry, range(4, 30))
        world.commit()
        return asked(rows)

    world.line.relocate = moving  # type: ignore[method-assign]
    world.rounds(6)
    assert world.body(qpool) == before[qpool]
    assert archive(world) == list(range(1, world.writer.file_number - 1))
    check_pool(world)


def test_a_full_disk_ends_the_round(world: ManagerWorld) -> None:
    world.settings = replace(world.settings, disk_reserve_bytes=1 << 60)
    world.fill_journal(4)
    world.rounds(3)
    assert store_numbers(world.paths) == [] and archive(world) == []
    assert FAILED in world.events() and world.checkpoint_lsn() == world.lsn


def test_a_round_is_bounded(world: ManagerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_bodies, "BATCH_BYTES", 50_000)
    world.settings = replace(world.settings, checkpoint_journal_bytes_max=64 * 1024)
    world.fill_journal(6)
    world.rounds(1)
    assert 0 < sum(world.line.accepted) < 20 < len(world.live())
    world.rounds(20)
    assert archive(world) == list(range(1, world.writer.file_number - 1))


def test_a_reader_that_looks_while_files_change_place_finds_every_body(world: ManagerWorld) -> None:
    qpools = world.fill_journal(4)
    before = bodies(world, qpools)
    seen: list[bool] = []

    def look() -> None:
        seen.append(bodies(world, qpools) == before)
        world.put([30])
        world.commit()
        world.signals.now_ns += 10**10

    world.follow(*[look] * 6)
    assert all(seen) and archive(world)


def test_versions_are_counted_by_the_engine(world: ManagerWorld) -> None:
    """What the rounds rely on: odd inside a group, even behind its commit."""
    counters = world.core.t.counters
    assert counters[Counter.VERSION] % 2 == 0
    world.engine.begin(0, 0)
    assert counters[Counter.VERSION] % 2 == 1
    world.commit()
    assert counters[Counter.VERSION] % 2 == 0
    assert counters[Counter.DURABLE_LSN] == world.writer.last_lsn
