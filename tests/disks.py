"""No test leaves another disk in use than the real one: a test behind it would write to a simulated
one, and find nothing there.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from omq.storage import durable
from omq.storage.disk import Disk
from tests.left_behind import LeftBehind


class Disks(LeftBehind[str]):
    """The plugin."""

    title = "another disk left in use"

    def now(self) -> AbstractSet[str]:
        kind = type(durable.current())
        return set() if kind is Disk else {kind.__qualname__}

    def end(self, left: AbstractSet[str]) -> None:
        """None is left by itself."""

    def line(self, thing: str) -> str:
        return thing
