"""A primary is lost with its spool COUNT times, after random kills, stops and deaths of promotions;
the histories of all clients judge what the promoted ones have (omqtools.omqtest.failovers).

    python -m tests.crash.standby_storm COUNT [SEED]

Exit code 1: the promise was broken. The seed chooses what is done, not how processes interleave.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from pathlib import Path

from omqtools.omqtest.failovers import failover_loop
from omqtools.omqtest.standby import report


def main(arguments: list[str]) -> int:
    """The command."""
    count = int(arguments[0])
    seed = int(arguments[1]) if len(arguments) > 1 else secrets.randbelow(1 << 31)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omq-storm-") as folder:
        place = Path(folder)
        found = failover_loop((place / "one", place / "two"), place, count, seed)
    report(found, seed, time.monotonic() - began, as_json=False)
    return 1 if found.verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
