"""Two servers by turns, the same work for each: rounds, and a table of both.

`ours` and `theirs` have a name, `round(count)`, which does the work once and adds a figure for each
row to `found`.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tests.bench.peers.processes import cpu_of


class Place(Protocol):
    """See the module."""

    name: str
    found: list[tuple[float, ...]]

    def round(self, count: int) -> None:
        """The work, once."""


def measured(pids: list[int], work: Callable[[], object], count: int
             ) -> tuple[float, float, float]:
    """Messages a second, and microseconds of processor time a message: the server's, and those of
    this process, which does the work."""
    before, own, began = cpu_of(pids), time.process_time(), time.monotonic()
    work()
    wall, own = time.monotonic() - began, time.process_time() - own
    return count / wall, (cpu_of(pids) - before) / count * 1e6, own / count * 1e6


def told(rows: Sequence[str], rates: int, ours: Place, theirs: Place) -> str:
    """A table of both, and of the ratios of each round: above 1, ours is better. `rates`: so many
    of the rows are rates, of which more is better."""
    lines = [f"{'':24}{ours.name:>12}{theirs.name:>12}{'ratio':>8}  of the rounds"]
    for row, title in enumerate(rows):
        both = [[each[row] for each in place.found] for place in (ours, theirs)]
        ratios = [a / b if row < rates else b / a for a, b in zip(*both, strict=True)]
        lines.append(f"{title:24}{statistics.median(both[0]):12,.1f}"
                     f"{statistics.median(both[1]):12,.1f}{statistics.median(ratios):8.2f}  "
                     + " ".join(f"{ratio:.2f}" for ratio in ratios))
    return "\n".join(lines)


def compared(rows: Sequence[str], rates: int, ours: Place, theirs: Place, count: int, rounds: int
             ) -> str:
    """All rounds, and what is printed of them."""
    load = os.getloadavg()[0]
    for number in range(rounds):
        for place in ((ours, theirs), (theirs, ours))[number % 2]:
            place.round(count)
    return (f"{rounds} rounds of {count} messages by turns; load {load:.1f} before, "
            f"{os.getloadavg()[0]:.1f} behind\n{told(rows, rates, ours, theirs)}")
