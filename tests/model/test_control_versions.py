"""poolctrl of other versions: an older one is taken over, a newer one is refused and untouched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omq.base.errors import NewerFormat
from omq.core.load.recovery import recover
from omq.format.poolctrl import DEFINITIONS_FROM_VERSION, SLOT_BYTES, VERSION
from omq.storage import poolctrl
from omq.storage.pool import PoolFiles
from tests.model.defined import DefiningInstance
from tests.model.test_lost_definitions import FIRST, client, command, put

_VERSION_AT = 8  # behind magic and CRC


@pytest.fixture
def make_instance() -> Callable[[Path], DefiningInstance]:
    return lambda spool: DefiningInstance(spool, [])


def versions(instance: DefiningInstance) -> list[int]:
    """Of both slots."""
    raw = (instance.paths.msgpool / poolctrl.NAME).read_bytes()
    return [int.from_bytes(raw[at + _VERSION_AT : at + _VERSION_AT + 2], "little")
            for at in (0, SLOT_BYTES)]


def checkpointed(instance: DefiningInstance) -> None:
    """Both slots are of now."""
    instance.checkpoint()
    instance.group()
    instance.checkpoint()
    assert instance.keeper is not None
    instance.keeper.close()
    instance.keeper = None


def test_a_spool_without_definitions_can_go_back(instance: DefiningInstance) -> None:
    """It stays of version 2; with the first definition it is of version 3, and without any of
    version 2 again."""
    who = client(instance, 1)
    checkpointed(instance)
    assert set(versions(instance)) == {DEFINITIONS_FROM_VERSION - 1}
    command(instance, who, "define", "R0")
    assert isinstance(put(instance, who, FIRST), tuple)
    checkpointed(instance)
    assert set(versions(instance)) == {DEFINITIONS_FROM_VERSION}
    instance.stop()
    instance.start()
    assert instance.engine.queues.numbers["R0"] == FIRST
    who = client(instance, 2)
    command(instance, who, "clear", "R0")
    command(instance, who, "delete", "R0")
    checkpointed(instance)
    assert set(versions(instance)) == {DEFINITIONS_FROM_VERSION - 1}


@pytest.mark.parametrize("slots", [(0,), (1,), (0, 1)])
def test_a_newer_one_is_refused(instance: DefiningInstance, slots: tuple[int, ...]) -> None:
    """Also when only one slot is: the other one is older, and what it says is over."""
    command(instance, client(instance, 1), "define", "R0")
    checkpointed(instance)
    instance.stop()
    path = instance.paths.msgpool / poolctrl.NAME
    raw = bytearray(path.read_bytes())
    for slot in slots:
        raw[slot * SLOT_BYTES + _VERSION_AT] = VERSION + 1
    path.write_bytes(raw)
    pool = PoolFiles(instance.paths, instance.uuid)
    with pytest.raises(NewerFormat, match=f"version {VERSION + 1}.*up to {VERSION}") as raised:
        recover(instance.paths, instance.settings, instance.uuid, pool, lambda _: None)
    pool.close()
    assert str(path) in str(raised.value)
    assert path.read_bytes() == raw
