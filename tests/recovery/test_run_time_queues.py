"""Queues made at run time, when poolctrl or the pool is lost, and numbers that are used again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.format.definition import pause_line
from omq.format.poolctrl import SLOT_BYTES
from omq.storage import durable, poolctrl
from tests.model.defined import DefiningInstance
from tests.model.disk import LossyDisk
from tests.model.test_lost_definitions import FIRST, client, command, put
from tests.recovery.spool import run, start


@pytest.fixture
def used(tmp_path: Path) -> Iterator[DefiningInstance]:
    """GONE had a message and is no more, R0 has its number, and a message; R1 has none, and a key
    that is paused. Then the manager was killed."""
    disk = LossyDisk()
    before = durable.use(disk)
    made = DefiningInstance(tmp_path / "spool", [])
    made.start()
    who = client(made, 1)
    command(made, who, "define", "GONE")
    assert isinstance(put(made, who, FIRST), tuple)
    checkpoint(made)
    command(made, who, "clear", "GONE")
    command(made, who, "delete", "GONE")
    disk.die(lambda count: count)
    made.start()
    who = client(made, 2)
    command(made, who, "define", "R0")
    command(made, who, "define", "R1")
    made.group(lambda: made.plane.queue(who.live, {
        "do": "pause", "queue": "R1", "key": "k", "keyed": False}))
    right(made, messages=0)
    assert isinstance(put(made, who, FIRST), tuple)
    checkpoint(made)
    assert isinstance(put(made, who, FIRST), tuple)
    disk.die(lambda count: count)
    yield made
    disk.die(lambda count: count)
    durable.use(before)


def checkpoint(instance: DefiningInstance) -> None:
    instance.checkpoint()
    assert instance.keeper is not None
    instance.keeper.close()
    instance.keeper = None


def right(instance: DefiningInstance, messages: int) -> None:
    """The queues are those, with so many messages in all, on R0."""
    queues, t = instance.engine.queues, instance.core.t
    assert set(queues.definitions) == {"R0", "R1"} and queues.pauses.of("R1") == ["k"]
    assert (queues.numbers["R0"], queues.numbers["R1"]) == (FIRST, FIRST + 1)
    assert not {"GONE", "LOST26"} & set(queues.numbers)
    assert (t.q_depth[FIRST], t.q_depth[FIRST + 1]) == (messages, 0)


def test_killed(used: DefiningInstance) -> None:
    used.start()
    right(used, messages=2)


def test_poolctrl_is_missing(used: DefiningInstance) -> None:
    """The start redoes all of the journal."""
    (used.paths.msgpool / poolctrl.NAME).unlink()
    redone(used)


def test_poolctrl_is_damaged(used: DefiningInstance) -> None:
    """The same, behind omqrecover, which keeps what is there."""
    (used.paths.msgpool / poolctrl.NAME).write_bytes(b"\x55" * 2 * SLOT_BYTES)
    plan = used.paths.root.parent / "plan"
    run("plan", used.paths.root, "--save", plan)
    code, out, err = run("apply", used.paths.root, plan)
    assert code == 0, (out, err)
    redone(used)


def redone(used: DefiningInstance) -> None:
    """A start knows all that there was, and says what it missed."""
    recovered, messages = start(used.paths.root, used.uuid)
    assert recovered.findings != []
    assert set(recovered.definitions) == {"R0", "R1", pause_line("R1", "k").name}
    assert (recovered.queues[FIRST], recovered.queues[FIRST + 1]) == ("R0", "R1")
    assert [{part[0] for part in parts} for _, parts in messages.values()] == [{FIRST}] * 2


@pytest.mark.parametrize("lost", [False, True])
def test_rebuilt(used: DefiningInstance, lost: bool) -> None:  # noqa: FBT001
    """From history; the pool is there, or lost."""
    if lost:
        shutil.rmtree(used.paths.msgpool)
    code, out, err = run("rebuild", used.paths.root, "--from-archive", used.paths.archive)
    assert code == 0, (out, err)
    used.start()
    right(used, messages=2)
