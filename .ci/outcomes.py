"""What ran in none of CI's places, and what failed (pytest --outcomes FILE).

    outcomes.py left FILE...     the tests that ran nowhere so far, for another place
    outcomes.py check FILE...    the same with the reason, by reason; exit code 1 when one is not
                                 among those that may be left out
    outcomes.py again FILE...    of NAME.failed: the name and a file of tests, one a line, to be run
                                 once more; exit code 1 when there are more files than MOST_AGAIN
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

MAY_BE_LEFT_OUT = {
    "OMQ_CRASH_LONG": "hours of it: make crash",
    "the extra `peers`": "make setup-peers, then make test: a server of 100 MB for one test",
    "the extra `amqp`": "it is compiled from its source; where that fails there is no AMQP",
    "rhea, a client of AMQP for node": "no Debian package; npm install rhea, OMQ_RHEA=its folder",
    "no azurite, a server of Azure blobs": "365 MB of node; npm install azurite, its .bin in PATH",
    "no pacemaker and corosync": "minutes of two nodes; tests/system/pacemaker_nodes.py says how",
    "a long file of another share": "one of the next commits runs it; OMQ_LONG_FILES=1/1: all",
    "the history of the repository is not here": "a clone without depth: a full one runs it",
    "no memory cgroup of version 1": "depends on the kernel's settings",
    "the kernel does not give a chosen pid": "depends on the kernel",
}
"""A part of the reason of a skip -> why it may stand."""

MOST_AGAIN = 3
"""Files of tests that are run once more in one run of CI (ADR 0109)."""


def nowhere(files: list[str]) -> dict[str, str]:
    """Test -> why it did not run, for those that ran in none of the places."""
    reasons: dict[str, str] = {}
    ran = set()
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            test, _, why = line.rpartition("\t")
            if why:
                reasons[test] = why
            else:
                ran.add(test)
    # A module, or a folder, that was skipped whole has no tests there: its line is its own.
    for module in {test.partition("::")[0] for test in ran}:
        ran |= {module, *map(str, Path(module).parents)}
    return {test: why for test, why in reasons.items() if test not in ran}


def again(files: list[str]) -> list[tuple[str, str]]:
    """Whose outcomes it is in, and each file of tests with a failure."""
    return list(dict.fromkeys(
        (Path(file).name.removesuffix(".failed"), node.partition("::")[0])
        for file in files for node in Path(file).read_text(encoding="utf-8").splitlines()))


def main() -> int:
    what, *files = sys.argv[1:]
    if what == "again":
        failed = again(files)
        print(*(f"{name} {file}" for name, file in failed), sep="\n")
        return 1 if len(failed) > MOST_AGAIN else 0
    found = nowhere(files)
    if what == "left":
        print(*found, sep="\n")
        return 0
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for test, why in found.items():
        by_reason[why].append(test)
    missing = 0
    for why, tests in by_reason.items():
        stands = next((text for part, text in MAY_BE_LEFT_OUT.items() if part in why), "")
        missing += 0 if stands else len(tests)
        print(f"{len(tests):>5} ran nowhere: {why} ({stands or 'NOT ALLOWED'})")
        if not stands:
            print(*(f"        {test}" for test in tests), sep="\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
