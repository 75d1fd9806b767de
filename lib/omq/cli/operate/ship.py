"""omq ship: the journal of an instance, and copies of its pool, in an object store or a directory
of another disk, from which `omqrecover restore` makes a spool as it was at a point of time.

    omq ship run --to s3://bucket/omq       until a signal; omq-ship.service runs it
    omq ship run --once                     until everything is there
    omq ship run --anew                     the place may be empty, though there was another one
    omq ship status                         what is there, and what would be lost now

Where it ships to is in omq.conf (`ship_to`) or behind --to; credentials and endpoints in the
environment, as the store's own tools take them. The queue manager waits for nothing: what it
acknowledged less than `ship_interval_ms` and the way ago is not there.

Exit code of status: 0, or 1 when something has waited for more than `ship_late_s`, or nothing runs.
Errors: BadRequest, and those of services.ship.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Final

from omq.base.amounts import duration, size
from omq.base.clock import iso_time
from omq.base.config import load_settings
from omq.base.errors import BadRequest, Exit
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.services.daemon.signals import Signals
from omq.services.ship import shown
from omq.services.ship.shown import ShipState
from omq.storage import spool

NAME: Final = "omq ship"


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    return _run(options) if options.command == "run" else _status(options)


def _run(options: argparse.Namespace) -> int:
    from omq.services.ship.places import place
    from omq.services.ship.runner import Runner

    location = existing(options)
    info = spool.open_spool(location.paths.root, writer=True)
    settings = load_settings(location.conf_dir)
    url = options.to or settings.ship_to
    if not url:
        raise BadRequest(reason="say where to: --to URL, or ship_to in omq.conf")
    signals = Signals()
    signals.install()
    lock = spool.lock(info.paths.ship_lock, NAME)
    try:
        Runner(info.paths, info.instance, settings, place(url), signals, partial(say, NAME),
               anew=options.anew).run(once=options.once)
    finally:
        lock.close()
    return Exit.OK


def _status(options: argparse.Namespace) -> int:
    location = existing(options)
    state = shown.load(location.paths, load_settings(location.conf_dir))
    late = state.trouble
    if options.json:
        print_json(state.found | {"problem": late})
    else:
        for line in lines(state):
            sys.stdout.write(line + "\n")
        if late:
            sys.stdout.write(f"-> {late}\n")
    return Exit.NO if late else Exit.OK


def lines(state: ShipState) -> list[str]:
    """For people."""
    found, waits, lacks = state.found, state.waits_s, state.waits_bytes
    if not found:
        return []
    known = found["durable_lsn"]
    base = (f"LSN {found['base_lsn']}, {iso_time(found['base_time_ns'])}" if found["base_time_ns"]
            else "none yet")
    return [f"{'to':<16}{found['url']}", f"{'shipped':<16}LSN {found['shipped_lsn']} of "
            f"{'unknown' if known is None else known}", f"{'lost by now':<16}"
            + (shown.NOT_KNOWN if waits is None else
               f"what came in the last {duration(waits)}" + (f", {size(lacks)}" if lacks else "")
               if waits else "nothing"),
            f"{'last object':<16}{found['last_object'] or 'none'}", f"{'base':<16}{base}"]


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "The journal and copies of the pool in an object store, to restore "
                         "from.", """
        omq ship run --to s3://bucket/omq
        omq ship run --to file:///mnt/backup/omq --once
        omq ship status --json
        """)
    parser.add_argument("command", choices=("run", "status"), metavar="COMMAND",
                        help="run (ship until a signal), status (how much is shipped)")
    parser.add_argument("--to", default="", metavar="URL",
                        help="with run: s3://, gs://, az:// or file:///; else ship_to of omq.conf")
    parser.add_argument("--once", action="store_true",
                        help="with run: stop once everything is shipped, including a base")
    parser.add_argument("--anew", action="store_true",
                        help="with run: start over in an empty place, although this instance has "
                             "shipped before")
    add_json(parser)
    return parser
