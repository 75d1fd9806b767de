"""What the programs of the bench have in common, whatever library sends and does their tasks.

PATH.sent gets a task's number when the library has returned from sending it, PATH a line when it is
done: its number, when it was sent, when it was done (seconds of the monotonic clock, which all
processes of a machine share).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.bench.peers.processes import pause

BROKER: Final[dict[str, Any]] = json.loads(os.environ["OMQ_BENCH_BROKER"])
"""`name` of brokers.BROKERS, its `url`, the `options` for this library."""


def _line(path: str, text: str) -> None:
    """One write: lines of several processes do not mix."""
    with Path(path).open("a") as file:
        file.write(text + "\n")


def note_done(path: str, number: int, sent: float) -> None:
    """What a task does."""
    _line(path, f"{number} {sent} {time.monotonic()}")


def send(enqueue: Callable[[str, int, float], object]) -> None:
    """As the arguments PATH, COUNT, RATE say: COUNT tasks, RATE a second (0: at once)."""
    path, count, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    began = time.monotonic()
    for number in range(count):
        if rate:
            pause(max(0.0, began + number / rate - time.monotonic()))
        enqueue(path, number, time.monotonic())
        _line(f"{path}.sent", str(number))
