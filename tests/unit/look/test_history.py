"""A history is the same from the journal, from a retired file, and from its archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.settings import Settings
from omq.cli.look.omqlog import what
from omq.core.engine.block import Block
from omq.core.engine.operate import Action, Item, Order, operate
from omq.core.engine.state import POISON, Party
from omq.core.history.frames import Happening, History
from omq.format.wire import Settlement
from omq.storage import archive
from omq.storage.archive import BODIES_SUFFIX, archive_name
from omq.storage.journal import JournalWriter, file_name
from tests.unit.engine.world import A, B, World, make_named


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One that was poisoned and sent back by an operator, one on two queues, two of groups."""
    made = make_named(tmp_path / "spool")
    made.put(A, body=b"first")
    made.put(A, B, body=b"both")
    made.put(B, body=b"of a group", group_id=b"g\0\1", group_sequence=3, last_in_group=True)
    made.put(A, B, body=b"both, of a group", group_id="account-42")
    for _ in range(3):
        (verdict,) = made.give(1, seconds=60)
        made.settle(Settlement.FAIL, verdict)
        made.give(0)
    made.begin(60)
    outcome = operate(made.core, Party(9, 7, 999, 0, 99), Order(
        Action.MOVE, (Item(1, POISON),), b'{"command": "omrequeue 1", "reason": "ticket"}', (B,)),
        made.engine.forget_reader)
    made.engine.commit()
    assert outcome.done == [1] or outcome.refused
    made.writer.close()
    return made


def told(world: World) -> list[Happening]:
    history = History(world.info.paths)
    found = list(history.read(lambda frames: frames["qpool"] > 0)) + list(history.orders())
    assert history.findings == []
    return [replace(each, file="") for each in found]


def test_the_same_from_every_form(world: World) -> None:
    paths = world.info.paths
    expected = told(world)
    assert {each.kind.name for each in expected} >= {"PUT", "GIVE", "DEFER", "OPERATOR"}
    both = next(each for each in expected if each.qpool == 2)
    assert both.targets == ("A", "B")
    assert what(both).startswith("put on A, B, priority 4"), "each queue is told"
    groups = {each.qpool: (each.group, each.group_sequence, each.last_in_group)
              for each in expected if each.kind.name == "PUT"}
    assert groups == {1: ("", 0, False), 2: ("", 0, False), 3: (f"{'670001':0<48}", 3, True),
                      4: ("account-42", 0, False)}
    name = file_name(1)
    data = (paths.journal / name).read_bytes()
    (paths.journal / name).rename(paths.archive / name)
    assert told(world) == expected, "retired"
    archive.write(paths.archive, archive.cut(data, 1, world.info.uuid), level=3, bodies=True)
    (paths.archive / name).unlink()
    assert told(world) == expected, "archived"
    (paths.archive / archive_name(1, BODIES_SUFFIX)).unlink()
    assert told(world) == expected, "archived, its bodies dropped"


def test_a_broken_archive_is_a_finding(world: World) -> None:
    paths = world.info.paths
    (paths.archive / archive_name(7)).write_bytes(b"\x55" * 5000)
    history = History(paths)
    assert list(history.of_message(1))
    assert len(history.findings) == 1


def test_a_client_is_the_one_of_its_manager(tmp_path: Path) -> None:
    """Numbers of clients begin anew: who puts with a number that a reader had before is not it."""
    world = make_named(tmp_path / "spool")
    world.engine.clients.reads(world.reader, "of the first manager", A, auxiliary=False)
    world.engine.commit()
    world.put(A)
    world.settle(Settlement.DONE, *world.give(1))
    writer, paths = world.writer, world.info.paths
    writer.close()
    again = JournalWriter.open_epoch(
        paths, Settings(journal_file_bytes=1 << 20), world.info.uuid, 2, writer.last_lsn + 1,
        writer.last_lsn, 1, world.core.next_qpool, world.wall)
    world.core.block = Block(again, writer.last_lsn + 1, 100, 1 << 20, 4096)
    putter = world.putter
    world.putter = Party(world.reader.client, putter.slot, putter.pid, putter.uid, putter.token)
    world.put(A)
    again.close()
    reader = "of the first manager"
    told = {qpool: [(each.kind.name, each.client) for each in History(paths).of_message(qpool)]
            for qpool in (1, 2)}
    assert told == {1: [("PUT", ""), ("GIVE", reader), ("DONE", reader)], 2: [("PUT", "")]}
