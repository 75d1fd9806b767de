"""No test leaves a thread that runs: many tests fork daemons from this very process, and whoever
forks while another's thread runs would fail in its place (tests.process.processes).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Set as AbstractSet
from typing import Final

from omq.ipc.client import watcher
from tests.left_behind import LeftBehind

_ENDING_S: Final = 10.0
"""For those that have been told to end: only a failure waits for so long."""


def others() -> set[threading.Thread]:
    """The threads of this process but the first, and but the one that watches managers, which ends
    with its process and is made again behind a fork."""
    return {each for each in threading.enumerate()
            if each is not threading.main_thread() and each.name != watcher.NAME}


class Threads(LeftBehind[threading.Thread]):
    """The plugin."""

    title = "threads left running"

    def now(self) -> AbstractSet[threading.Thread]:
        return others()

    def end(self, left: AbstractSet[threading.Thread]) -> None:
        until = time.monotonic() + _ENDING_S
        for each in left:
            each.join(max(0.0, until - time.monotonic()))

    def line(self, thing: threading.Thread) -> str:
        return thing.name
