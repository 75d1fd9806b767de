"""Messages on a queue whose name and definition are lost: they keep their number, which gets a name
that says so, and no queue that is made later has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base import errors
from omq.format.message import Part
from omq.format.wire import Operation
from omq.storage import poolctrl
from tests.model.defined import ROWS, DefiningInstance
from tests.model.driver import WIDE, draft, encoded
from tests.model.instance import Client

FIRST = WIDE[-1] + 1
"""The number of the first queue that is made at run time."""


@pytest.fixture
def make_instance() -> Callable[[Path], DefiningInstance]:
    return lambda spool: DefiningInstance(spool, [])


def command(instance: DefiningInstance, who: Client, do: str, name: str) -> None:
    instance.group(lambda: instance.plane.queue(who.live, {"do": do, "queue": name}))


def client(instance: DefiningInstance, number: int, queue: int = 0) -> Client:
    made = Client(number, queue, auxiliary=False)
    instance.register(made)
    return made


def put(instance: DefiningInstance, who: Client, queue: int) -> object:
    one = encoded(draft([Part(queue, 4)], b"kept"))
    instance.group(lambda: instance.request(
        who, Operation.PUT, area=one.payload, queue=queue, priority=4, flags=one.flags,
        length=len(one.payload), size=one.size, crc=one.crc))
    return instance.reply(who)


def started_without(instance: DefiningInstance, number: int) -> None:
    """A manager starts on a checkpoint that knows nothing of this number, nor does the journal
    behind it."""
    instance.stop()
    instance.start()
    instance.checkpoint()
    assert instance.keeper is not None
    instance.keeper.close()
    instance.keeper = None
    control, _ = poolctrl.load(instance.paths)
    assert control is not None and number in control.queues and control.definitions
    poolctrl.store(instance.paths, replace(
        control, generation=control.generation + 1, definitions={},
        queues={n: name for n, name in control.queues.items() if n != number}))
    instance.start()


@pytest.fixture
def left(instance: DefiningInstance) -> DefiningInstance:
    """A manager that has started behind the loss."""
    who = client(instance, 1)
    command(instance, who, "define", "R0")
    assert isinstance(put(instance, who, FIRST), tuple)
    started_without(instance, FIRST)
    return instance


def test_they_are_there_under_a_name_that_says_so(left: DefiningInstance) -> None:
    assert left.engine.queues.numbers["LOST26"] == FIRST
    assert left.changes.lost == ["LOST26"]
    reader = client(left, 2, FIRST)
    left.group(lambda: left.request(reader, Operation.NEXT, want=1, argument=0))
    assert left.reply(reader) == (1, 0, 0)
    (given,) = left.take(reader, 1)
    assert given.payload.endswith(b"kept")


def test_nobody_puts_there(left: DefiningInstance) -> None:
    assert isinstance(put(left, client(left, 2), FIRST), errors.PutInhibited)


def test_no_other_queue_gets_the_number(left: DefiningInstance) -> None:
    who = client(left, 2)
    for number in range(ROWS - FIRST - 1):
        command(left, who, "define", f"N{number}")
    with pytest.raises(errors.TooManyQueues):
        command(left, who, "define", "MORE")
    assert FIRST not in [left.engine.queues.numbers[f"N{n}"] for n in range(ROWS - FIRST - 1)]


@pytest.mark.parametrize("end", [DefiningInstance.stop, lambda instance: None])
def test_the_name_stays(left: DefiningInstance, end: Callable[[DefiningInstance], None]) -> None:
    end(left)
    left.start()
    assert left.engine.queues.numbers["LOST26"] == FIRST and left.changes.lost == []


def test_whoever_has_the_name_already(instance: DefiningInstance) -> None:
    """A queue LOST26 was made, and has another number."""
    who = client(instance, 1)
    for name in ("R0", "LOST26"):
        command(instance, who, "define", name)
    assert isinstance(put(instance, who, FIRST), tuple)
    started_without(instance, FIRST)
    numbers = instance.engine.queues.numbers
    assert (numbers["LOST26"], numbers["LOST26.2"]) == (FIRST + 1, FIRST)
