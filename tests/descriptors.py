"""No test leaves a file descriptor open: a spool that stays open in one test is found in another.

A descriptor is known by its number and what it leads to.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Set as AbstractSet
from multiprocessing import resource_tracker

from tests.left_behind import LeftBehind

_ARENA = "/dev/shm/pym-"
"""multiprocessing's own memory for Value and Array: kept for the next one, by the whole process."""


def open_descriptors() -> dict[int, str]:
    """This process's descriptors and what each leads to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the one that listed the folder
            continue
        if not target.startswith(_ARENA):
            found[int(name)] = target
    return found


class Descriptors(LeftBehind[tuple[int, str]]):
    """The plugin."""

    title = "descriptors left open"

    def pytest_sessionstart(self) -> None:
        # The first process that multiprocessing spawns starts it, for as long as we live.
        resource_tracker.ensure_running()

    def pytest_collection_finish(self) -> None:
        """What is imported stays: no collection looks at it again, here or in what is forked."""
        gc.collect()
        gc.freeze()

    def now(self) -> AbstractSet[tuple[int, str]]:
        return open_descriptors().items()

    def end(self, left: AbstractSet[tuple[int, str]]) -> None:
        gc.collect()  # what only a reference cycle holds is closed by now at the latest

    def line(self, thing: tuple[int, str]) -> str:
        return f"{thing[0]} -> {thing[1]}"
