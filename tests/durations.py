"""A plugin: adds up the seconds of each unit (tests.parts) and writes them into a file, with those
that others wrote there. At the end it reports where the processor's time went, its children's
included."""

from __future__ import annotations

import fcntl
import json
import os
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.units import ROOT, unit_of

MOST: Final = 20
"""Units, and tests, whose processor time is told."""


class Durations:
    """See the module."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._used: defaultdict[str, float] = defaultdict(float)
        self._each: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = sum(os.times()[:4])
        try:
            return (yield)
        finally:
            used = sum(os.times()[:4]) - before
            self._used[unit_of(item.path)] += used
            self._each[item.nodeid] = used

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[unit_of(ROOT / report.nodeid.partition("::")[0])] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = sum(os.times()[:4])
        terminalreporter.section(
            f"processor: {total:.0f} s, of it in tests {sum(self._used.values()):.0f} s")
        for found in (self._used, self._each):
            for name, used in sorted(found.items(), key=lambda item: -item[1])[:MOST]:
                terminalreporter.write_line(f"{used:7.1f} s {name}")

    def pytest_sessionfinish(self) -> None:
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            known: dict[str, Any] = json.loads(text) if text else {}
            known |= {unit: round(spent, 1) for unit, spent in self._seconds.items()}
            known = {unit: spent for unit, spent in known.items() if (ROOT / unit).exists()}
            write(self._path, known)


def write(path: Path, seconds: Mapping[str, float]) -> None:
    path.write_text(json.dumps(seconds, indent=1, sort_keys=True) + "\n")
