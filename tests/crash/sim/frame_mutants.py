"""Of each type of frame: redo passes over it, and the harness finds that. A type that is new has
its row here, or is named as one of which redo makes nothing; test_mutants asks for it.

Frames are passed over where redo chooses what it carries out (Window.select), so records, bulk and
answers all go without them, and a message that ends in its own window is not concerned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from omq.core.redo.window import Window
from omq.format.journal import FrameType
from tests.crash.sim.life import SETTINGS
from tests.crash.sim.mutants import MUTANTS, Mutant

_select = Window.select


def _passing_over(kind: FrameType) -> Sequence[Any]:
    def without(self: Window) -> Any:
        keep, brief = _select(self)
        return keep & (self.frames["type"] != kind), brief

    return [mock.patch.object(Window, "select", without)]


ROWS: Final[dict[FrameType, tuple[str, tuple[str, ...]]]] = {
    FrameType.PUT: ("plain", ("lost",)),
    FrameType.GIVE: ("poison", ("changed",)),
    FrameType.DONE: ("wide", ("resurrected", "changed")),
    FrameType.MOVE: ("moves", ("changed", "lost", "resurrected")),
    FrameType.DEFER: ("poison", ("changed",)),
    FrameType.POISON: ("poison", ("changed", "lost")),
    FrameType.DELETE: ("operators", ("resurrected", "changed")),
    FrameType.HOLD: ("operators", ("changed",)),
    FrameType.RELEASE: ("operators", ("changed",)),
    FrameType.PREPARE: ("doubts", ("changed", "lost")),
    FrameType.COMMIT: ("doubts", ("changed", "lost")),
    FrameType.BACKOUT: ("units", ("changed", "lost")),
    FrameType.RELEASE_GIVEN: ("groups", ("changed",)),
    FrameType.EXPIRE: ("times", ("changed", "lost", "resurrected")),
    FrameType.QUEUE: ("queues", ("queues", "lost", "changed", "the start fails")),
    FrameType.DEFINE: ("queues", ("queues",)),
    FrameType.UNDEFINE: ("queues", ("queues",)),
    FrameType.RELOCATE: ("rotation", ("the pool names a body", "lost", "damaged")),
}
"""The workload, and how what is found begins."""
NOTHING: Final = {
    FrameType.CHECKPOINT: "says what poolctrl says",
    FrameType.READER_UP: "readers register anew",
    FrameType.READER_DOWN: "the same",
    FrameType.OPERATOR: "who ordered it; the frames behind it change the messages",
    FrameType.STOP: "only saves the numbers that a crash skips",
}
"""Types of which redo makes nothing."""
FRAMES: Final = {
    f"{kind.name} passed over": Mutant(
        f"redo passes over {kind.name}", lambda kind=kind: _passing_over(kind),  # type: ignore[misc]
        workload=workload, shows=shows,
        settings=replace(SETTINGS, archive="delete") if kind == FrameType.RELOCATE else SETTINGS)
    for kind, (workload, shows) in ROWS.items()}
ALL: Final = MUTANTS | FRAMES
