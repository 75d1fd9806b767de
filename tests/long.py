"""What `make test` leaves to `make test-all`, and why.

The rule: a person waits for `make test`, on two free processors at most ten minutes. So it runs all
but

1. the folders of FOLDERS, which need a prepared machine or wait for another one;
2. the files that took longer than LIMIT_S where they were recorded (tests/durations.json);
3. of cases of one kind (tests/share.py) all but a third.

`make test-all` and CI run everything, CI of the cases of 3. a third that goes on with each commit.
Nothing is left out silently: the end of `make test` says what, and how to run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
