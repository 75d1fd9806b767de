"""pool.writer behind, and on a disk that runs short: no rest, no file kept for reading, history
goes, and the manager hears when nothing more can be gained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from omq.services.pool import following
from omq.services.pool.protocols import Connection
from omq.services.pool.shortage import PAUSE_NS, Shortage
from omq.storage import disk_usage, history, holds, poolctrl
from omq.storage.disk_usage import Free
from omq.storage.holds import Hold
from omq.storage.journal import numbers_in
from tests.unit.services.pool_world import ManagerWorld

CHECKPOINT, PRUNED = 1411, 1405
ROOMY = Free(1 << 40, None, 0, 0, 0)
SHORT = Free(10, None, 5, 0, 1 << 40)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Free]]:
    """What the file system has, from now on: its last item."""
    said = [ROOMY]
    monkeypatch.setattr(disk_usage, "free", lambda *_: said[-1])
    yield said


def nothing() -> None:
    """A turn goes by."""


def test_there_is_no_rest_while_it_is_behind(world: ManagerWorld, monkeypatch: pytest.MonkeyPatch
                                             ) -> None:
    """Six files are redone in as many checkpoints, and one wait; each used to have a wait of its
    own, while the manager wrote on."""
    monkeypatch.setattr(following, "WINDOW_BYTES", 1 << 17)
    world.settings = replace(world.settings, checkpoint_journal_bytes_max=1 << 17)
    world.fill_journal(6)
    before = world.events().count(CHECKPOINT)
    world.follow(nothing)
    assert world.events().count(CHECKPOINT) - before >= 6
    assert len(world.signals.long_waits) <= 3
    control, _ = poolctrl.load(world.paths)
    assert control is not None and control.journal >= world.writer.file_number - 1


def test_a_short_disk_keeps_no_file_for_reading(world: ManagerWorld, free: list[Free]) -> None:
    world.settings = replace(world.settings, journal_files_kept=3, archive="delete")
    world.fill_journal(5)
    world.finish()
    world.rounds(4)
    kept = numbers_in(world.paths.journal)
    assert len(kept) >= 4
    free.append(SHORT)
    world.follow(*[nothing] * 6)
    assert numbers_in(world.paths.journal) == kept[-1:]


def test_history_goes_on_a_short_disk_but_not_what_is_held(world: ManagerWorld, free: list[Free]
                                                           ) -> None:
    world.settings = replace(world.settings, journal_files_kept=0)
    world.fill_journal(5)
    world.finish()
    world.rounds(4)
    there = numbers_in(world.paths.archive)
    assert len(there) >= 4 and PRUNED not in world.events()
    with history.changing(world.paths, "test"):
        holds.make(world.paths, Hold("base", there[2], "test", lives=False)).close()
    free.append(SHORT)
    world.follow(*[nothing] * 6)
    assert numbers_in(world.paths.archive)[: len(there) - 2] == there[2:]
    assert holds.release(world.paths, "base")
    world.follow(*[nothing] * 6)
    assert not numbers_in(world.paths.archive)


def test_a_damaged_pool_keeps_history(world: ManagerWorld, free: list[Free]) -> None:
    world.settings = replace(world.settings, journal_files_kept=0)
    world.fill_journal(4)
    world.finish()
    world.rounds(4)
    there = numbers_in(world.paths.archive)
    free.append(SHORT)
    made = world.following()
    made._bodies.differing.add("0QP")
    world.signals.steps += [nothing] * 5
    world.signals.stopping = False
    made.follow()
    made.close()
    assert there and numbers_in(world.paths.archive)[: len(there)] == there


def test_the_manager_hears_that_there_is_nothing_to_gain(world: ManagerWorld, free: list[Free]
                                                         ) -> None:
    free.append(SHORT)
    shortage, line = Shortage(world.paths, world.settings), world.line

    def manager() -> Connection:
        return line

    assert shortage.look(0, 1)
    shortage.tell(manager)
    first = dict(line.asked[-1])
    assert first["op"] == "room" and not first["stuck"] and "in the spool: " in first["says"]
    shortage.after_round(gained=True)
    assert shortage.look(0, 1), "at once"
    shortage.after_round(gained=False)
    shortage.tell(manager)
    assert line.asked[-1]["stuck"]
    told = len(line.asked)
    shortage.tell(manager)
    assert len(line.asked) == told, "what has not changed is not told again"
    looks = [shortage.look(0, 1)]
    world.signals.now_ns += 2 * PAUSE_NS
    looks.append(shortage.look(0, 1))
    shortage.after_round(gained=False)
    looks.append(shortage.look(0, 1))
    looks.append(shortage.look(0, 2))
    free.append(ROOMY)
    looks.append(shortage.look(0, 2))
    assert looks == [False, True, False, True, False], "one a second, and with each journal file"
    shortage.tell(manager)
    assert line.asked[-1] == {"op": "room", "stuck": False, "says": ""}
