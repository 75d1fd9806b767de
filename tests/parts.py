"""The test files in parts that take equally long, run side by side.

    python -m tests.parts [N] [ARGUMENT OF PYTEST...]      all parts (2 a processor), one status
    python -m tests.parts [N] --only quick [...]           what `make test` is (tests.long)
    python -m tests.parts [N] --only long [...]            what that leaves out
    python -m tests.parts [N] --long-files=K/N [...]       of what that leaves out a share
    python -m pytest -p tests.parts --part 2/4 [...]       one of them alone
    python -m tests.parts 4 --record [...]                 and note their seconds in durations.json
    python -m tests.parts merge FILE RECORD...             the most of each, of tests that exist

Most long tests wait for processes, disks and time-outs, so there may be twice as many parts as
processors. A part is made of whole files, and of the folders of tests.units.SHARED. They are dealt
out by their recorded seconds. The division depends on the files that are asked for (what --ignore
and --only leave out is not), the record and the number of parts alone, so that every part comes to
the same one.

pytest-xdist is not used: its workers have a thread beside pytest's own, and tests that fork daemons
must not be forked beside a thread.

Parts of one user share a System V namespace where they may not have one each: tests then count the
objects of their own process alone (tests/process/ipc_space.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import side_by_side
from tests.durations import Durations, write
from tests.long import of_other_shares, why_long
from tests.not_run import LEFT
from tests.units import RECORD, ROOT, SHARED, divide, recorded, unit_of

QUICK, LONG = "quick", "long"
OTHER_SHARE: Final = "a long file of another share"
USAGE: Final = "\n".join((__doc__ or "").splitlines()[2:9]) + "\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="only part K of N")
    parser.addoption("--only", choices=(QUICK, LONG), help="what make test runs, or leaves out")
    parser.addoption("--long-files", metavar="K/N",
                     help="of the files that make test leaves out only those of share K")
    parser.addoption("--record-durations", metavar="FILE", help="note the seconds of each file")


def pytest_configure(config: pytest.Config) -> None:
    text, only = config.getoption("--part"), config.getoption("--only")
    share = config.getoption("--long-files")
    if text or only or share:
        number, parts = _of("--part", text or "1/1")
        which, shares = _of("--long-files", share or "1/1")
        ignored = tuple(Path(name).resolve() for name in config.getoption("ignore") or ())
        files = _files(config.args, ignored)
        others = of_other_shares(files, recorded(), which - 1, shares)
        units = chosen(map(unit_of, files - others), only)
        mine = divide(units, recorded(), parts)[number - 1]
        config.pluginmanager.register(_Part(frozenset(mine), others))
        if number == 1:  # once is enough
            why = f"{OTHER_SHARE} than {share}"
            config.stash[LEFT] = [(path.relative_to(ROOT).as_posix(), why)
                                  for path in sorted(others)]
    if path := config.getoption("--record-durations"):
        config.pluginmanager.register(Durations(Path(path)))


def _of(option: str, text: str) -> tuple[int, int]:
    """K of N."""
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise pytest.UsageError(f"{option} {text}: K/N with K from 1 to N is wanted")
    return int(number), int(parts)


def chosen(units: Iterable[str], only: str | None) -> Iterator[str]:
    """The quick ones, the long ones, or all."""
    seconds = recorded()
    for unit in units:
        if only is None or (only == LONG) is bool(why_long(unit, seconds)):
            yield unit


def _files(arguments: Iterable[str], ignored: tuple[Path, ...]) -> set[Path]:
    """All files of tests that pytest's arguments name and --ignore does not."""
    found: set[Path] = set()
    for argument in arguments:
        path = Path(argument.partition("::")[0]).resolve()
        found.update(path.rglob("test_*.py") if path.is_dir() else [path])
    return {path for path in found if not any(map(path.is_relative_to, ignored))}


class _Part:
    """Leaves out the files of other parts before they are imported."""

    def __init__(self, units: frozenset[str], others: frozenset[Path] = frozenset()) -> None:
        self._units, self._others = units, others

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if collection_path.is_dir():  # what it shares is not there where it is not wanted
            unit = unit_of(collection_path)
            mine = any(each == unit or each.startswith(f"{unit}/") for each in self._units)
            return True if unit in SHARED and not mine else None
        if not collection_path.name.startswith("test_"):
            return None
        return True if self._is_out(collection_path) else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Those of files that were named are collected all the same."""
        others = [item for item in items if self._is_out(item.path)]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if not self._is_out(item.path)]

    def _is_out(self, file: Path) -> bool:
        return unit_of(file) not in self._units or file in self._others


def main(arguments: list[str]) -> int:
    """Run all parts; the worst status."""
    if arguments[:1] == ["merge"] and len(arguments) > 2:
        merge(Path(arguments[1]), map(Path, arguments[2:]))
        return 0
    if arguments[:1] in (["merge"], ["--help"], ["0"]):
        sys.stderr.write(USAGE)
        return 2
    number = arguments[0] if arguments and arguments[0].isdecimal() else ""
    rest = arguments[1:] if number else arguments
    if "--record" in rest:
        rest = [each for each in rest if each != "--record"] + [f"--record-durations={RECORD}"]
    return side_by_side.run(int(number) if number else side_by_side.usual_parts(), rest)


def merge(into: Path, records: Iterable[Path]) -> None:
    """Writes the most that each unit took in one of the records; none of a unit that is gone."""
    found: dict[str, float] = {}
    for record in records:
        for unit, spent in json.loads(record.read_text()).items():
            if (ROOT / unit).exists():
                found[unit] = max(spent, found.get(unit, 0.0))
    write(into, found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
