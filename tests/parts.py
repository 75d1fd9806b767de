"""The test files in parts that take equally long, run side by side.

    python -m tests.parts 4 [ARGUMENT OF PYTEST...]        all parts, one status
    python -m pytest -p tests.parts --part 2/4 [...]       one of them alone
    python -m tests.parts 4 --record [...]                 and note their seconds in durations.json
    python -m tests.parts merge FILE RECORD...             the most of each, of tests that exist

Most long tests wait for processes, disks and time-outs, so there may be twice as many parts as
processors. A part is made of whole files, and of the folders of SHARED, whose tests share what
takes long to start. They are dealt out by their recorded seconds, the longest first, each to the
part that has least; a file without a record counts as the middle one. The division depends on the
files that are asked for (what --ignore names is not), the record and the number of parts alone, so
that every part comes to the same one.

pytest-xdist is not used: its workers have a thread beside pytest's own, and tests that fork daemons
must not be forked beside a thread.

Parts of one user in one System V namespace see each other's objects. Tests that count what is left
take a namespace of their own, which needs root: as another user take one part.
"""

from __future__ import annotations

import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
RECORD: Final = ROOT / "tests/durations.json"
SHARED: Final = ("tests/spark", "tests/system")
MOST: Final = 20
"""Units, and tests, whose processor time is told."""
NO_TESTS: Final = int(pytest.ExitCode.NO_TESTS_COLLECTED)


def unit_of(path: Path) -> str:
    """What is dealt out as one: a file of tests, or the folder that shares something."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()
    return next((each for each in SHARED if name.startswith(f"{each}/")), name)


def divide(units: Iterable[str], seconds: Mapping[str, float], parts: int) -> list[list[str]]:
    """The units of each part; every unit is in exactly one."""
    unknown = statistics.median(seconds.values()) if seconds else 1.0
    load, found = [0.0] * parts, [list[str]() for _ in range(parts)]
    for unit in sorted(set(units), key=lambda each: (-seconds.get(each, unknown), each)):
        least = load.index(min(load))
        load[least] += seconds.get(unit, unknown)
        found[least].append(unit)
    return found


def recorded() -> dict[str, float]:
    """Seconds by unit; nothing when there is no record."""
    return dict(json.loads(RECORD.read_text())) if RECORD.exists() else {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="only part K of N")
    parser.addoption("--record-durations", metavar="FILE", help="note the seconds of each file")


def pytest_configure(config: pytest.Config) -> None:
    if text := config.getoption("--part"):
        number, _, parts = text.partition("/")
        if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
            raise pytest.UsageError(f"--part {text}: K/N with K from 1 to N is wanted")
        ignored = tuple(Path(name).resolve() for name in config.getoption("ignore") or ())
        units = map(unit_of, _files(config.args, ignored))
        mine = divide(units, recorded(), int(parts))[int(number) - 1]
        config.pluginmanager.register(_Part(frozenset(mine)))
    if path := config.getoption("--record-durations"):
        config.pluginmanager.register(_Durations(Path(path)))


def _files(arguments: Iterable[str], ignored: tuple[Path, ...]) -> set[Path]:
    """All files of tests that pytest's arguments name and --ignore does not."""
    found: set[Path] = set()
    for argument in arguments:
        path = Path(argument.partition("::")[0]).resolve()
        found.update(path.rglob("test_*.py") if path.is_dir() else [path])
    return {path for path in found if not any(map(path.is_relative_to, ignored))}


class _Part:
    """Leaves out the files of other parts before they are imported."""

    def __init__(self, units: frozenset[str]) -> None:
        self._units = units

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if collection_path.is_dir() or not collection_path.name.startswith("test_"):
            return None
        return True if unit_of(collection_path) not in self._units else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Those of files that were named are collected all the same."""
        others = [item for item in items if unit_of(item.path) not in self._units]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if unit_of(item.path) in self._units]


class _Durations:
    """Adds up the seconds of each unit and writes them into the file, beside those of others. At
    the end it tells where the processor's went, its children's among them."""

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
            _write(self._path, known)


def main(arguments: list[str]) -> int:
    """Run all parts; the worst status."""
    if arguments[:1] == ["merge"] and len(arguments) > 2:
        merge(Path(arguments[1]), map(Path, arguments[2:]))
        return 0
    if not arguments or not arguments[0].isdecimal() or int(arguments[0]) < 1:
        sys.stderr.write("usage: python -m tests.parts N [--record] [ARGUMENT OF PYTEST...]\n"
                         "       python -m tests.parts merge FILE RECORD...\n")
        return 2
    parts, rest = int(arguments[0]), arguments[1:]
    if "--record" in rest:
        rest = [each for each in rest if each != "--record"] + [f"--record-durations={RECORD}"]
    command = [sys.executable, "-m", "pytest", "-p", "tests.parts", *rest]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, str(number)) for number in range(1, parts + 1)]
        running = []
        for number, output in enumerate(outputs, 1):
            with output.open("wb") as file:
                running.append(subprocess.Popen(
                    [*command, f"--part={number}/{parts}"], cwd=ROOT, stdout=file,
                    stderr=subprocess.STDOUT))
        codes = []
        for number, (process, output) in enumerate(zip(running, outputs, strict=True), 1):
            codes.append(process.wait())
            sys.stdout.write(f"=== part {number} of {parts}: status {codes[-1]}\n")
            sys.stdout.write(output.read_text(errors="replace"))
            sys.stdout.flush()
    return worst(codes)


def merge(into: Path, records: Iterable[Path]) -> None:
    """Writes the most that each unit took in one of the records; none of a unit that is gone."""
    found: dict[str, float] = {}
    for record in records:
        for unit, spent in json.loads(record.read_text()).items():
            if (ROOT / unit).exists():
                found[unit] = max(spent, found.get(unit, 0.0))
    _write(into, found)


def _write(path: Path, seconds: Mapping[str, float]) -> None:
    path.write_text(json.dumps(seconds, indent=1, sort_keys=True) + "\n")


def worst(codes: list[int]) -> int:
    """One status for all parts: a part may be without tests, not all of them."""
    failed = [code for code in codes if code not in (0, NO_TESTS)]
    if failed:
        return max(abs(code) for code in failed)
    return 0 if 0 in codes else NO_TESTS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
