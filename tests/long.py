"""What `make test` leaves to `make test-all`, and why.

The rule: a person waits for `make test`, on two free processors at most ten minutes. So it runs all
but

1. the folders of FOLDERS, which need a prepared machine or wait for another one;
2. the files that took longer than LIMIT_S where they were recorded (tests/durations.json);
3. of cases of one kind (tests/share.py) all but a third.

`make test-all` runs everything. Of what `make test` leaves out CI runs an eighth of the files and a
third of the cases of 3., which ones its commit says (ADR 0226); with OMQ_LONG_FILES=1/1 all files.
Nothing is left out silently: the end of each says what, and how to run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.units import ROOT, divide, unit_of

FOLDERS: Final = {
    "tests/spark": "a session of Spark: a JRE, and packages of 1 GB",
    "tests/system": "whole machines boot and shut down: root",
    "tests/crash/daemons": "power cuts and storms on mounted file systems: root",
    "tests/bench": "the benchmarks' own tests, which measure",
}
LIMIT_S: Final = 25.0
SHARE: Final = "1/3"


def why_long(unit: str, seconds: Mapping[str, float]) -> str:
    """Why a file or folder of tests is left to make test-all; "": it is not."""
    for folder, why in FOLDERS.items():
        if unit == folder or unit.startswith(f"{folder}/"):
            return why
    spent = seconds.get(unit, 0.0)
    return f"{spent:.0f} s" if spent > LIMIT_S else ""


def of_other_shares(files: Iterable[Path], seconds: Mapping[str, float], which: int, shares: int
                    ) -> frozenset[Path]:
    """Of the files that are left to make test-all those that are not of this share (from 0). Shares
    take equally long by the record; a folder's seconds are those of its files together."""
    found: dict[str, Path] = {}
    weights: dict[str, float] = {}
    many: dict[str, int] = {}
    for path in files:
        if why_long(unit := unit_of(path), seconds):
            name = path.relative_to(ROOT).as_posix()
            found[name], many[unit] = path, many.get(unit, 0) + 1
            weights[name] = seconds.get(name, 0.0)
    for name, path in found.items():
        if (unit := unit_of(path)) != name:
            weights[name] = seconds.get(unit, 0.0) / many[unit]
    mine = divide(found, weights, shares)[which]
    return frozenset(found.values()) - {found[name] for name in mine}
