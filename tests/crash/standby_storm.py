"""A primary is lost with its spool COUNT times, after random kills, stops and deaths of promotions;
the histories of all clients judge what the promoted ones have (omqtools.omqtest.failovers).

    python -m tests.crash.standby_storm COUNT [SEED [ROUND]]

The losses are made in rounds of ROUND (default 50), each with a seed of its own from SEED on, and
judged at its end: so a long storm that is cut has a verdict for nearly all of it, and goes on with
the seed that its last line names.

Exit code 1: the promise was broken, in the round whose seed is told; the others are run all the
same. A seed chooses what is done, not how processes interleave.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from omqtools.omqtest.failovers import failover_loop
from omqtools.omqtest.standby import report

ROUND: Final = 50


def main(arguments: list[str]) -> int:
    """The command."""
    left = int(arguments[0])
    seed = int(arguments[1]) if len(arguments) > 1 else secrets.randbelow(1 << 31)
    most = int(arguments[2]) if len(arguments) > 2 else ROUND
    done = acknowledged = broken = 0
    while left > 0:
        began, count = time.monotonic(), min(left, most)
        with tempfile.TemporaryDirectory(prefix="omq-storm-") as folder:
            place = Path(folder)
            found = failover_loop((place / "one", place / "two"), place, count, seed)
        report(found, seed, time.monotonic() - began, as_json=False)
        done, left, seed = done + found.done, left - count, seed + 1
        acknowledged += found.verdict.acknowledged
        broken += bool(found.verdict.faults)
        sys.stdout.write(f"so far: failovers {done}, acknowledged {acknowledged}, rounds that were "
                         f"not kept {broken}; the next seed is {seed}\n")
        sys.stdout.flush()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
