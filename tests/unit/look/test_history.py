"""A history is the same from the journal, from a retired file, and from its archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omq.core.engine.operate import Action, Item, Order, operate
from omq.core.engine.state import POISON, Party
from omq.core.history.frames import Happening, History
from omq.format.wire import Settlement
from omq.storage import archive
from omq.storage.archive import BODIES_SUFFIX, archive_name
from omq.storage.journal import file_name
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
    assert next(each for each in expected if each.qpool == 2).targets == ("A", "B")
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
