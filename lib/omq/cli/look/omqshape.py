"""omqshape: how old the messages on the queues are, as a histogram in growing buckets.

A row a queue: the total, then how many messages are younger than 5, 10, 20, ... minutes, and how
many are older than the last (the form of Postfix's qshape(1)). From the index by numpy:
milliseconds for a million messages. Columns fit 80.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from omq.base import clock
from omq.base.clock import NS_PER_S
from omq.base.errors import BadRequest, Exit, UnknownQueue
from omq.base.names import escape
from omq.cli.common import add_json, existing, print_json, tool_parser
from omq.cli.progress import looking
from omq.core.index.view import IndexView
from omq.format.index import EntryState

NAME: Final = "omqshape"
_STATES: Final = {state.name.lower(): state for state in EntryState if state}
_BUCKETS_MAX: Final = 20
_MINUTE_NS: Final = 60 * NS_PER_S
Row = tuple[str, list[int]]


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    if not 2 <= options.b <= _BUCKETS_MAX or not 1 <= options.t <= 1 << 20:
        raise BadRequest(reason=f"-b is 2 to {_BUCKETS_MAX}, -t a number of minutes")
    limits = [options.t << power for power in range(options.b - 1)]
    states = [_STATES[name] for name in options.state or _STATES]
    with looking(NAME, existing(options).paths) as seen:
        rows = shape(seen.view, [name.upper() for name in options.queue], limits, states,
                     clock.wall_ns())
        ids = {queue.name: queue.remembered for queue in seen.view.queues()}
    if options.json:
        for name, counts in rows:
            print_json({"queue": name, "messages": sum(counts), "minutes": limits,
                        "counts": counts, "remembered": ids[name]})
    else:
        sys.stdout.write("\n".join((*table(rows, limits), "")))
        if any(ids.values()):
            sys.stdout.write(f"besides {sum(ids.values())} remembered message ids (dedupe_s)\n")
    return Exit.OK


def shape(view: IndexView, wanted: Sequence[str], limits: Sequence[int],
          states: Sequence[EntryState], now_ns: int) -> list[Row]:
    """(queue, messages a bucket), for queues with messages or those that are wanted."""
    queues = view.queues()
    for name in wanted:
        if name not in {queue.name for queue in queues}:
            raise UnknownQueue(queue=escape(name))
    rows = []
    for queue in queues:
        if wanted and queue.name not in wanted:
            continue
        ages = now_ns - np.asarray(view.ages(queue.number, states))
        bounds = np.array(limits, dtype=np.int64) * _MINUTE_NS
        places = np.searchsorted(bounds, ages, side="right")
        counts = np.bincount(places, minlength=len(limits) + 1).tolist()
        if wanted or sum(counts):
            rows.append((queue.name, counts))
    return rows


def table(rows: Sequence[Row], limits: Sequence[int]) -> Iterator[str]:
    """The rows and their total; ages in minutes."""
    titles = ["T", *map(str, limits), f"{limits[-1]}+"]
    total = [sum(counts[at] for _, counts in rows) for at in range(len(limits) + 1)]
    listed = [("TOTAL", total), *rows]
    cells = [[str(sum(counts)), *map(str, counts)] for _, counts in listed]
    widths = [max(len(title), *(len(row[at]) for row in cells)) for at, title in enumerate(titles)]
    name = max(16, *(len(each) for each, _ in listed))
    yield _line("", name, titles, widths)
    for (each, _), row in zip(listed, cells, strict=True):
        yield _line(each, name, row, widths)


def _line(name: str, width: int, cells: Sequence[str], widths: Sequence[int]) -> str:
    return f"{name:>{width}} " + " ".join(
        f"{cell:>{each}}" for cell, each in zip(cells, widths, strict=True))


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(NAME, "Show how old the messages on the queues are, in minutes.", """
        omqshape
        omqshape LOCAL UNIX
        omqshape -b 12 -t 1 --state deferred
        """)
    found.add_argument("queue", nargs="*", help="queues (all that have messages)")
    found.add_argument("-b", type=int, default=10, metavar="N", help="buckets (10)")
    found.add_argument("-t", type=int, default=5, metavar="MINUTES",
                       help="age of the first bucket; each further one is twice as old (5)")
    found.add_argument("--state", action="append", choices=sorted(_STATES),
                       help="only messages in this state; may be given several times")
    add_json(found)
    return found
