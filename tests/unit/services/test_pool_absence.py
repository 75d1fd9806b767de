"""While a pool file is known to be other than it was left, pool.writer deletes nothing: journal and
archive could make it again. Afterwards it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from omq.format.pool import RECORD_BYTES
from omq.format.store import HEADER_BYTES
from omq.storage import poolctrl
from omq.storage.journal import numbers_in
from omq.storage.store import file_name, store_numbers
from tests.unit.services.pool_world import ManagerWorld

DIFFERS = 1281


def _gone(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 2 * RECORD_BYTES])


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _zeroed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[RECORD_BYTES : 2 * RECORD_BYTES] = bytes(RECORD_BYTES)
    path.write_bytes(data)


FAULTS: dict[str, Callable[[Path], None]] = {
    "gone": _gone, "cut": _cut, "emptied": _emptied, "zeroed record": _zeroed}


def journal(world: ManagerWorld) -> set[int]:
    """Numbers of all journal files, wherever they are."""
    return {*numbers_in(world.paths.journal), *numbers_in(world.paths.archive)}


def stores(world: ManagerWorld) -> dict[int, int]:
    """Store files that hold something, and their sizes."""
    sizes = {n: (world.paths.store / file_name(n)).stat().st_size
             for n in store_numbers(world.paths)}
    return {n: size for n, size in sizes.items() if size > HEADER_BYTES}


def lived(world: ManagerWorld) -> Path:
    """Bodies in store and journal, a checkpoint; the pool file."""
    world.settings = replace(world.settings, archive="delete")
    world.fill_journal(4)
    world.rounds(3)
    world.fill_journal(2)
    assert stores(world)
    return world.paths.msgpool / "0QP"


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_deleted_while_a_pool_file_differs(world: ManagerWorld, fault: str) -> None:
    """pool.writer was started again meanwhile, so it looks at the files anew."""
    path = lived(world)
    kept = path.read_bytes()
    there, stored = journal(world), stores(world)
    FAULTS[fault](path)
    world.finish()
    world.rounds(5)
    assert world.events().count(DIFFERS) == 1, "once, not at each checkpoint"
    assert there <= journal(world), "retired files are in archive/, although they are to be deleted"
    assert {n: stores(world).get(n) for n in stored} == stored
    path.write_bytes(kept)
    count_anew(world)
    world.fill_journal(2)
    world.finish()
    world.rounds(5)
    assert world.events().count(DIFFERS) == 1
    assert not {*stored} <= {*stores(world)}, "now they go"
    assert world.writer.file_number - 2 not in journal(world)


def count_anew(world: ManagerWorld) -> None:
    """What a repair ends with: poolctrl says what the files hold now."""
    control, _ = poolctrl.load(world.paths)
    assert control is not None
    pool = world.pool()
    pool.recover_double_write(control)
    pool.should_hold(None)
    poolctrl.store(world.paths, replace(control, generation=pool.checkpoint,
                                        contents=pool.contents()))
    pool.close()


def test_a_file_that_vanishes_under_the_writer_is_noticed(world: ManagerWorld) -> None:
    """It has the file open: what it writes goes nowhere."""
    path = lived(world)
    there, stored = journal(world), stores(world)
    interval = world.settings.checkpoint_interval_s * 10**9

    def news() -> None:
        world.put([30])
        world.commit()
        world.signals.now_ns += interval

    def damage() -> None:
        news()
        world.finish()
        path.unlink()

    world.follow(news, damage, *[news] * 5)
    assert world.events().count(DIFFERS) == 1
    assert there <= journal(world)
    assert {n: stores(world).get(n) for n in stored} == stored
