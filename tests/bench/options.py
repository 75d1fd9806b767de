"""What the benches beside peers and of the aims have in common on their command lines."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterable
from types import FrameType

from tests.bench.document import in_folder, marked


def bench_parser(description: str, names: Iterable[str], rounds: int, *, quick: str, json: str,
                 section: str) -> argparse.ArgumentParser:
    """--quick, --only (one of `names`), --rounds, --json, --document with marks of `section`."""
    names = list(names)
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--only", metavar="NAME", action="append", choices=names,
                        help=f"one of {', '.join(names)}; may be given several times")
    parser.add_argument("--rounds", metavar="N", type=int, default=0,
                        help=f"rounds (default {rounds})")
    parser.add_argument("--json", metavar="FILE", type=in_folder, help=json)
    parser.add_argument("--document", metavar="FILE", type=marked(section),
                        help="write the tables between the marks of this Markdown file")
    return parser


def end_in_order() -> None:
    """A kill, or a terminal that goes away, ends a bench as ^C does: what it started is stopped."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
