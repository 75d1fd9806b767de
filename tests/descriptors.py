"""No test leaves a file descriptor open: a spool that stays open in one test is found in another.

What is open is compared when a module ends, for fixtures may live as long as their module; what the
fixtures of a whole session opened is theirs. A descriptor is known by its number and what it leads
to. The test that is named is the one after which it was first seen.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from multiprocessing import resource_tracker
from typing import Any

import pytest

_LONG_LIVED = ("session", "package")
_APART = ("tests/spark/", "tests/system/")
"""The JVM's bridge keeps connections for all modules; a whole machine runs beside the other."""
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


class Descriptors:
    """A plugin: fails the last test of a module that left descriptors open."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._seen: dict[tuple[int, str], str] = {}
        self._module = ""

    def pytest_sessionstart(self) -> None:
        # The first process that multiprocessing spawns starts it, for as long as we live.
        resource_tracker.ensure_running()

    def pytest_collection_finish(self) -> None:
        """What is imported stays: no collection looks at it again, here or in what is forked."""
        gc.collect()
        gc.freeze()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]
                             ) -> Generator[None, object, object]:
        if fixturedef.scope not in _LONG_LIVED:
            return (yield)
        before = open_descriptors()
        try:
            return (yield)
        finally:
            self._known |= dict(open_descriptors().items() - before.items())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        module = _module(item)
        if module != self._module:
            self._module, self._known, self._seen = module, open_descriptors(), {}
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None
                                ) -> Generator[None, object, object]:
        result = yield
        for each in self._new():
            self._seen.setdefault(each, item.nodeid)
        if nextitem is None or _module(nextitem) != self._module:
            left = self._new()
            if left:
                gc.collect()  # what only a reference cycle holds is closed by now at the latest
                left = self._new()
            if left and not self._module.startswith(_APART):
                pytest.fail("descriptors left open:\n" + "\n".join(
                    f"  {number} -> {target}, first seen after {self._seen[number, target]}"
                    for number, target in sorted(left)), pytrace=False)
        return result

    def _new(self) -> set[tuple[int, str]]:
        return open_descriptors().items() - self._known.items()


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
