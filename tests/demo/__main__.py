"""The demo behind `make run`: real mail through a whole omq instance, checked from outside.

Options have the environment's value as default, so that `N=100 CRASH=1 make run` works:
OMQ_DEMO_MAIL (a login shell sets MAIL for itself), N, SEED, CONNECTIONS, CRASH=1, STANDBY=1,
KEEP=0. An empty value is none. Exit code: 0 everything arrived exactly once and unaltered, 1
something did not, 64 wrong options, 66 no mail in OMQ_DEMO_MAIL, 69 the instance did not start, 130
interrupted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from omq.base.errors import Exit
from omq.core.index.view import IndexView
from tests.demo.corpus import CorpusError
from tests.demo.instance import InstanceError
from tests.demo.live import Screen
from tests.demo.result import as_lines
from tests.demo.session import DEFAULT_COUNT, Options, Session
from tests.demo.sink import SinkError

_INTERRUPTED = 130  # what a shell gives for a process that SIGINT ended
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CONNECTIONS = 8  # what several send at once is put at once


def main(argv: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    options = _parse(sys.argv[1:] if argv is None else argv)
    for number in _ENDING:
        signal.signal(number, _interrupt)
    base = Path(tempfile.mkdtemp(prefix="omq-demo-"))
    screen = Screen(sys.stdout)
    screen.say(f"everything of this run lies in {base}")
    try:
        result = Session(options, base, screen, IndexView.attach).run()
    except KeyboardInterrupt:
        screen.say("interrupted; everything is stopped")
        return _INTERRUPTED
    except CorpusError as error:
        screen.say(f"no mail: {error}")
        return Exit.NO_INPUT
    except (InstanceError, SinkError) as error:
        screen.say(str(error))
        return Exit.UNAVAILABLE
    finally:
        if not options.kept:
            shutil.rmtree(base)
    for line in as_lines(result):
        screen.say(line)
    return Exit.OK if result.good else Exit.NO


def _interrupt(number: int, frame: FrameType | None) -> None:
    """The first request to end stops everything in order; further ones must not cut that short."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _parse(argv: list[str]) -> Options:
    found = {name: text for name, text in os.environ.items() if text}
    parser = argparse.ArgumentParser(
        prog="python -m tests.demo", description=(__doc__ or "").split("\n")[0],
        epilog="Defaults are taken from the environment: OMQ_DEMO_MAIL, N, SEED, CONNECTIONS,"
               " CRASH=1, STANDBY=1, KEEP=0.",
    )  # fmt: skip
    parser.add_argument(
        "--mail", default=found.get("OMQ_DEMO_MAIL"), type=Path, metavar="PATH",
        help="an mbox file, a Maildir, a message or a folder of .eml files",
    )  # fmt: skip
    parser.add_argument(
        "--count", default=found.get("N"), type=_positive, metavar="N",
        help=f"number of messages (default {DEFAULT_COUNT}, or all of PATH)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", default=found.get("SEED", "1"), type=int,
        help="another seed gives other messages and envelopes (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--connections", default=found.get("CONNECTIONS", str(_CONNECTIONS)), type=_positive,
        help=f"SMTP connections at once (default {_CONNECTIONS})",
    )  # fmt: skip
    parser.add_argument(
        "--crash", action="store_true", default=found.get("CRASH", "0") != "0",
        help="kill queue.manager, pool.writer and two readers in the middle",
    )  # fmt: skip
    parser.add_argument(
        "--standby", action="store_true", default=found.get("STANDBY", "0") != "0",
        help="with a standby: in the middle kill all of the primary, remove its spool, and go on "
        "with the standby",
    )  # fmt: skip
    parser.add_argument(
        "--discard", action="store_true", default=found.get("KEEP") == "0",
        help="remove everything at the end",
    )  # fmt: skip
    try:
        chosen = parser.parse_args(argv)
    except SystemExit as stop:
        raise SystemExit(Exit.USAGE if stop.code else Exit.OK) from None
    return Options(
        mail=chosen.mail,
        count=chosen.count,
        seed=chosen.seed,
        connections=chosen.connections,
        crash=chosen.crash,
        kept=not chosen.discard,
        standby=chosen.standby,
    )


def _positive(text: str) -> int:
    """A count from the command line or the environment: 1 or more."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
