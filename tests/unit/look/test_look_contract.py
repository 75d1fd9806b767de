"""What a tool sees through the files equals what the manager's own tables say."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from omq.base import clock
from omq.base.errors import ManagerUnavailable
from omq.core.index.rows import EntryRow
from omq.core.index.view import IndexView
from omq.core.load import offline_index
from omq.core.load.offline_index import read_files
from omq.core.look.look import Origin, Source, look
from omq.core.redo.held_records import HeldRecords
from omq.core.redo.redo import Redo
from omq.core.redo.source import NoPool
from omq.format.double_write import Image
from omq.format.message import Part
from omq.format.poolctrl import PoolControl
from omq.format.wire import Settlement
from omq.storage import poolctrl
from omq.storage.journal_reader import JournalScan
from omq.storage.pool import PoolFiles
from tests.unit.engine.world import NS, A, B, World, make_named


def plain(entry: EntryRow) -> tuple[object, ...]:
    """What of an entry must be the same in both: not slots, not who holds it."""
    message = entry.message
    until = -(-entry.until_ns // NS) if entry.state.name == "DEFERRED" else 0
    return (entry.queue, entry.state, entry.priority, entry.sequence, entry.attempts,
            entry.retries, entry.submitted_ns // NS, until, message.qpool, message.parts,
            message.size, message.flags, message.file, message.record, message.item_ref,
            message.created_ns)


@pytest.fixture
def busy(tmp_path: Path) -> World:
    """Messages ready, deferred, on two queues, finished; none in a reader's hands."""
    world = make_named(tmp_path / "spool")
    for priority in (4, 9, 0, 4):
        world.put(A, body=b"body of %d" % priority, priority=priority)
    world.put(A, B, body=b"both")
    world.put(B, body=b"other")
    first, second, third = world.give(3)
    world.settle(Settlement.DONE, first)
    world.settle(Settlement.DEFER, second, argument=3600 * NS)
    world.settle(Settlement.RELEASE, third)
    return world


def test_the_files_say_what_the_tables_say(busy: World) -> None:
    with IndexView.of(busy.core.t, busy.info.paths) as view:
        live = [plain(entry) for entry in view.entries()]
        rows = {queue.name: queue.messages for queue in view.queues()}
    found = read_files(busy.info.paths, busy.wall)
    with IndexView.of(found.tables, busy.info.paths) as view:
        assert [plain(entry) for entry in view.entries()] == live
        assert {queue.name: queue.messages for queue in view.queues()} == rows
        assert view.counters()["last_lsn"] == busy.core.block.lsn - 1
    assert (len(live), rows["A"], rows["B"], found.findings) == (6, 4, 2, [])


def test_births_of_one_window_that_change_in_a_later_one(
    busy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New messages are kept as rows; what happens to one later is done there, or to its whole
    record when it goes elsewhere."""
    both, given = busy.give(2, queue=B)
    busy.settle(Settlement.RELEASE, both)
    busy.begin()
    busy.engine.move(busy.reader, given, [Part(A, 4)], [], 3)
    busy.engine.commit()
    with IndexView.of(busy.core.t, busy.info.paths) as view:
        live = [plain(entry) for entry in view.entries()]
    whole = []
    pop = HeldRecords.pop

    def popped(self: HeldRecords, qpool: int) -> tuple[Image, bool] | None:
        found = pop(self, qpool)
        whole.append(found is not None)
        assert pop(self, qpool) is None, "once only"
        return found

    monkeypatch.setattr(HeldRecords, "pop", popped)
    monkeypatch.setattr(offline_index, "_WINDOW_BYTES", 1)
    monkeypatch.setattr(offline_index, "Redo", partial(Redo, many=1))
    found = read_files(busy.info.paths, busy.wall)
    assert True in whole
    with IndexView.of(found.tables, busy.info.paths) as view:
        assert [plain(entry) for entry in view.entries()] == live


def test_new_records_are_those_that_one_frame_after_the_other_gives(busy: World) -> None:
    rows, single = (Redo(NoPool(), many=many) for many in (1, 1_000_000))
    for block in JournalScan(busy.info.paths, busy.info.uuid):
        for redo in (rows, single):
            redo.apply([block])
    assert rows.changes() == single.changes()
    born = rows.images
    qpools = born.qpools().tolist()
    assert qpools and len(born) == len(qpools) and not len(single.images)
    assert all(qpool in born for qpool in qpools) and 0 not in born
    assert {image for _, _, image in born.images()} <= set(single.changes().values())
    born.clear()
    assert len(born) == 0 and born.pop(qpools[0]) is None


def test_what_a_cut_checkpoint_has_written_is_not_seen_twice(
    busy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool holds records already, old or new, that the journal is redone over."""
    with IndexView.of(busy.core.t, busy.info.paths) as view:
        live = [plain(entry) for entry in view.entries()]
    first = Redo(NoPool(), many=1)
    for block in list(JournalScan(busy.info.paths, busy.info.uuid))[:8]:
        first.apply([block])  # as far as a checkpoint of that moment would write
    poolctrl.store(busy.info.paths, PoolControl(  # as the first start has left it
        busy.info.uuid, generation=1, lsn=0, epoch=1, journal=1, offset=4096, next_qpool=1,
        time_ns=busy.wall, pool_files=0, contents={}))
    pool = PoolFiles(busy.info.paths, busy.info.uuid)
    pool.checkpoint = 2
    pool.write(first.changes())
    pool.close()
    assert first.changes()
    for many in (1, 1000):
        monkeypatch.setattr(offline_index, "Redo", partial(Redo, many=many))
        found = read_files(busy.info.paths, busy.wall)
        assert found.findings == []
        with IndexView.of(found.tables, busy.info.paths) as view:
            assert [plain(entry) for entry in view.entries()] == live


def test_looking_at_the_files_changes_nothing(busy: World) -> None:
    def state() -> dict[Path, tuple[int, bytes]]:
        return {path: (path.stat().st_mtime_ns, path.read_bytes())
                for path in busy.info.paths.root.rglob("*") if path.is_file()}

    before = state()
    read_files(busy.info.paths, clock.wall_ns())
    assert state() == before


def test_without_a_segment_the_files_are_read(busy: World) -> None:
    with look(busy.info.paths) as seen:
        assert (seen.origin, seen.findings) == (Origin.FILES, [])
        assert "no segment" in seen.note
        assert len(list(seen.view.entries("A"))) == 4
    with pytest.raises(ManagerUnavailable):
        look(busy.info.paths, Source.SEGMENT)
    with pytest.raises(ManagerUnavailable, match="no segment 99"):
        look(busy.info.paths, segment=99)


def test_damage_is_told_and_all_else_is_seen(busy: World) -> None:
    file = next(busy.info.paths.journal.glob("*.jnl"))
    raw = bytearray(file.read_bytes())
    at = raw.index(b"body of 9")
    raw[at] ^= 0xFF
    raw[raw.index(b"OMQB", at + 4096) + 9] ^= 0xFF  # the block behind: its header
    file.write_bytes(raw)
    with look(busy.info.paths) as seen:
        assert seen.findings
        assert "damaged" in seen.note
        assert 0 < len(list(seen.view.entries())) < 6
