"""What it costs to wait for a standby: one client puts one message after the other, by turns where
nothing waits and where each reply waits until a standby on this machine has it on its disk.

    python -m tests.bench.standby_sync [SECONDS [ROUNDS]]

Printed are puts a second, medians, and the median of the ratios of the rounds. Both spools are on
one disk, so the standby's sync and the primary's compete.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.process.instance import MANAGER, WRITER, instance
from tests.process.test_standby_sync import SyncPair

BODY: Final = bytes(100)


def rate(folder: Path, seconds: float, *, waits: bool) -> float:
    """Puts a second of one client."""
    (folder / "primary").mkdir()
    with instance(folder / "primary") as primary:
        primary.start(MANAGER, WRITER)
        primary.ready()
        pair = SyncPair(primary, folder / "standby")
        pair.make()
        pair.log.touch()
        if waits:
            primary.stop()
            pair.waits()
            primary.start(MANAGER, WRITER)
        try:
            pair.follow()
            if waits:
                pair.reaches("synced")
            with primary.connect() as client:
                pair.caught_up()
                count, began = 0, time.monotonic()
                while time.monotonic() - began < seconds:
                    client.put("A", BODY)
                    count += 1
                found = count / (time.monotonic() - began)
                with client.reader("A", batch=1000) as reader:
                    while taken := reader.next(timeout_s=0):
                        for message in taken:
                            message.done()
                return found
        finally:
            pair.end()
            primary.kill()


def main(arguments: list[str]) -> int:
    """The command."""
    seconds = float(arguments[0]) if arguments else 5.0
    rounds = int(arguments[1]) if len(arguments) > 1 else 3
    load = os.getloadavg()[0]
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            found.append((rate(Path(one), seconds, waits=False),
                          rate(Path(other), seconds, waits=True)))
    alone, synced = (statistics.median(each[at] for each in found) for at in (0, 1))
    ratio = statistics.median(each[1] / each[0] for each in found)
    print(f"{alone:,.0f} puts a second where nothing waits, {synced:,.0f} where a standby is "
          f"waited for: {ratio:.2f}; {rounds} rounds, load {load:.1f} before")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
