"""omtop: the queues live, on a terminal; --once: the same figures as text, once.

Keys: s sorts by the next column, r turns the order, Enter goes into a queue and from there into a
message, e to the queue's readers and Enter there to what one holds, Escape back; h holds, l
releases, u sends back from POISON (each asks first); p pauses, x ends it, ? shows the keys. Looking
asks the queue manager nothing, so it shows a hung one too. The screen needs the package textual
(`pip install 'omq-suite[top]'`).
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from omq.base import clock
from omq.base.amounts import duration
from omq.base.errors import BadRequest, Exit, ExtraMissing
from omq.cli.common import add_json, existing, print_json, tool_parser
from omq.cli.look.alarm_lines import alarm_lines
from omq.cli.look.gateways import gateway_lines
from omq.cli.look.top_facts import SORTS, Moment, QueueLine, moment, text
from omq.core.look.look import look
from omq.services.daemon.options import Location

NAME: Final = "omtop"
_INTERVAL_MIN_S: Final = 0.2


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    location = existing(options)
    if options.interval < _INTERVAL_MIN_S:
        raise BadRequest(reason=f"--interval is at least {duration(_INTERVAL_MIN_S)}")
    if options.once or options.json:
        _once(location, options)
        return Exit.OK
    try:
        from omq.cli.look.top_app import TopApp
    except ModuleNotFoundError as error:
        raise ExtraMissing(command="the screen of omtop (not omtop --once)", package=error.name,
                           extra="omq-suite[top]") from error
    return TopApp(location, options.interval, options.sort).run() or Exit.OK


def _once(location: Location, options: argparse.Namespace) -> None:
    before = _moment(location, None)
    time.sleep(options.interval)
    now = _moment(location, before)
    lines = now.sorted(options.sort)
    if options.json:
        for line in lines:
            print_json(record(line) | now.space.record())
    else:
        sys.stdout.write("\n".join((*text(now, lines), "")))


def _moment(location: Location, before: Moment | None) -> Moment:
    with look(location.paths) as seen:
        return moment(seen, clock.wall_ns(), before,
                      (*gateway_lines(location), *alarm_lines(location)))


def record(line: QueueLine) -> dict[str, object]:
    """The JSON object of a queue: a contract, keys are only added."""
    row = line.row
    return {"queue": row.name, "messages": row.messages, "active": row.active,
            "deferred": row.deferred, "held": row.held, "remembered": row.remembered,
            "in_per_s": line.arriving,
            "out_per_s": line.leaving, "load": list(row.load), "oldest_s": line.oldest_s,
            "readers": line.readers}


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(NAME, "Show the queues live.", """
        omtop
        omtop --sort messages --interval 5
        omtop --once
        """)
    found.add_argument("--interval", type=float, default=2.0, metavar="SECONDS",
                       help="time between two looks (2)")
    found.add_argument("--sort", choices=SORTS, default="name", help="order of the queues (name)")
    found.add_argument("--once", action="store_true", help="print the figures once, as text")
    add_json(found)
    return found
