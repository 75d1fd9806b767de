"""No test leaves a thread that runs: many tests fork daemons from this very process, and whoever
forks while another's thread runs would fail in its place (tests.process.processes).

As with descriptors what runs is compared when a module ends, for fixtures may live as long as their
module, and a thread that ends by itself has until then. The test that is named is the one after
which it was first seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from typing import Any, Final

import pytest

from omq.ipc.client import watcher

_APART: Final = ("tests/spark/", "tests/system/")
"""The JVM's bridge lives as long as its session; a whole machine runs beside the other."""
_ENDING_S: Final = 10.0
"""For those that have been told to end: only a failure waits for so long."""


def others() -> list[threading.Thread]:
    """The threads of this process but the first, and but the one that watches managers, which ends
    with its process and is made again behind a fork."""
    return [each for each in threading.enumerate()
            if each is not threading.main_thread() and each.name != watcher.NAME]


class Threads:
    """A plugin: fails the last test of a module that left threads."""

    def __init__(self) -> None:
        self._known: set[threading.Thread] = set()
        self._seen: dict[threading.Thread, str] = {}
        self._module = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]
                             ) -> Generator[None, object, object]:
        if fixturedef.scope != "session":
            return (yield)
        before = set(others())
        try:
            return (yield)
        finally:
            self._known |= set(others()) - before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        module = item.nodeid.partition("::")[0]
        if module != self._module:
            self._module, self._seen = module, {}
            self._known |= set(others())
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None
                                ) -> Generator[None, object, object]:
        result = yield
        for each in self._new():
            self._seen.setdefault(each, item.nodeid)
        if nextitem is None or nextitem.nodeid.partition("::")[0] != self._module:
            self._seen = {each: test for each, test in self._seen.items() if each.is_alive()}
            end = time.monotonic() + _ENDING_S
            for each in self._new():
                each.join(max(0.0, end - time.monotonic()))
            left = self._new()
            if left and not self._module.startswith(_APART):
                pytest.fail("threads left running:\n" + "\n".join(
                    f"  {each.name}, first seen after {self._seen[each]}"
                    for each in sorted(left, key=lambda each: each.name)), pytrace=False)
        return result

    def _new(self) -> set[threading.Thread]:
        return set(others()) - self._known
