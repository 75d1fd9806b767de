"""What did not run and why, counted at the end of every run; and written down for a comparison, as
is what failed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

LEFT = pytest.StashKey[list[tuple[str, str]]]()
"""Files that were not even collected, each with why."""


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped, in one line."""
    told = report.longrepr
    text = str(told[2] if isinstance(told, tuple) else told)
    return " ".join(text.removeprefix("Skipped:").split())


class NotRun:
    """A plugin; `outcomes` names a file for one line a test: its id, a tab, why it did not run. If
    tests failed and nothing else went wrong their ids are in OUTCOMES.failed, one a line."""

    def __init__(self, outcomes: str | None) -> None:
        self._outcomes = outcomes
        self._reasons: Counter[str] = Counter()
        self._lines: list[str] = []
        self._failed: dict[str, None] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._note(report.nodeid, reason(report))
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self._note(report.nodeid, reason(report))
        elif report.when == "call" or report.failed:
            self._lines.append(f"{report.nodeid}\t\n")
        if report.failed:
            self._failed[report.nodeid] = None

    def _note(self, node: str, why: str) -> None:
        self._reasons[why] += 1
        self._lines.append(f"{node}\t{why}\n")

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        for file, why in terminalreporter.config.stash.get(LEFT, []):
            self._note(file, why)
        if self._outcomes:
            Path(self._outcomes).write_text("".join(self._lines), encoding="utf-8")
            if exitstatus == pytest.ExitCode.TESTS_FAILED:
                Path(f"{self._outcomes}.failed").write_text(
                    "".join(f"{node}\n" for node in self._failed), encoding="utf-8")
        if self._reasons:
            count = self._reasons.total()
            terminalreporter.section(f"{count} did not run", sep="-")
            for why, number in self._reasons.most_common():
                terminalreporter.write_line(f"{number:>5}  {why}")
