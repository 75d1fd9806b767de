"""L3, memory: the n-th line of omq that a request runs through raises MemoryError, for n = 1, 2 ...
until the request ends without it.

Any line can need memory. A tracer raises there, so this does not depend on how Python was built.
The manager has no answer to it but to end; the next start must find every acknowledged message, and
the request whole or not at all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from omq.format.wire import Settlement
from tests.crash.sim.disk import Mark, SimDisk
from tests.crash.sim.explore import History, Outcome, index_errors, verdict
from tests.crash.sim.life import SETTINGS, START_NS, A, B, Life, fixed, make_spool, recover_into
from tests.crash.sim.platter import image_of


def _put(life: Life) -> None:
    life.put(A, B, size=600)


def _give(life: Life) -> None:
    life.give(A, 2)


def _settle(life: Life) -> None:
    life.settle(Settlement.DONE, life.give(A, 1))


def _move(life: Life) -> None:
    life.move(life.give(A, 1)[0], [B], [B])


def _rotate(life: Life) -> None:
    life.rotate()


def _checkpoint(life: Life) -> None:
    life.checkpoint()


OPERATIONS: Final[dict[str, Callable[[Life], None]]] = {
    "put": _put, "give": _give, "settle": _settle, "move": _move, "rotate": _rotate,
    "checkpoint": _checkpoint}


class OutOfMemory:
    """Raises at the n-th line in omq; `lines`: how many there were."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.fired = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("omq.") or name.startswith("omq.base.clock"):
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and self.left > 0:
            self.left -= 1
            if not self.left:
                self.fired = True
                raise MemoryError
        return self._line


def out_of_memory(name: str, step: int = 1) -> int:
    """How many lines were tried (each `step`-th, until one is behind the end of the request);
    AssertionError when one broke the promise."""
    with fixed(11):
        disk = SimDisk(record=False)
        make_spool(disk)
        life = Life(disk)
        for size in (20, 700, 20):
            life.put(A, size=size)
            life.commit()
        life.stop()
        begin, model = image_of(disk), dict(life.model)
        number = 1
        while _once(name, begin.mount(record=True), dict(model), number):
            number += step
    return number // step


def _once(name: str, disk: SimDisk, model: dict[int, Any], number: int) -> bool:
    life = Life(disk, model=model)
    history = History(acked=dict(model))
    tracer = OutOfMemory(number)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        OPERATIONS[name](life)
        life.commit()
    except MemoryError:
        pass
    finally:
        sys.settrace(before)
    assert disk.log is not None
    for event in disk.log:
        if isinstance(event, Mark):
            history.feed(event.what)
    disk.kill()
    found, core, _ = recover_into(disk, SETTINGS, START_NS)
    wrong, _ = verdict(Outcome(found, "; ".join(index_errors(core))), history)
    assert not wrong, f"{name}, line {number}: {wrong}"
    return tracer.fired
