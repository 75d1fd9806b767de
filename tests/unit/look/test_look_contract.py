"""What a tool sees through the files equals what the manager's own tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base import clock
from omq.base.errors import ManagerUnavailable
from omq.core.index_rows import EntryRow
from omq.core.index_view import IndexView
from omq.core.look import Origin, Source, look
from omq.core.offline_index import read_files
from omq.format.wire import Settlement
from tests.unit.engine.world import NS, A, B, World, make_world


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
    world = make_world(tmp_path / "spool")
    world.begin()
    world.engine.name_everything()
    world.engine.commit()
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
