"""The command line of omqdump.

Three ways to give options: a menu on a terminal; lines of standard input anywhere else, each option
followed by its answers, a line each; or `-e 'LETTER ANSWER...'`, several times. Without a terminal
the first error ends it with the exit code of the error, because the lines that follow may be the
answers to what failed.
"""

from __future__ import annotations

import argparse
import io
import sys

from omq.base.errors import SpoolMissing
from omq.cli.common import add_json, locate, say, tool_parser
from omqdump.answers import Answers
from omqdump.options import Desk
from omqdump.session import Session
from omqdump.sources import Sources

NAME = "omqdump"


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = locate(options)
    if not location.paths.root.is_dir():
        raise SpoolMissing(path=location.paths.root)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # a file name may have any bytes
    scripted: list[str] | None = options.execute
    interactive = scripted is None and sys.stdin.isatty()
    answers = Answers(None if scripted else sys.stdin, sys.stdout, interactive=interactive)
    sources = Sources(location, note=lambda text: say(NAME, text))
    session = Session(Desk(sources, answers, sys.stdout, json=options.json), NAME)
    if scripted is not None:
        session.commands(scripted)
    elif interactive:
        session.interactive()
    else:
        session.batch()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        NAME,
        "Look into the queues: from a menu on a terminal, by a script from standard input.",
        """
        omqdump
        omqdump -e s -e T
        omqdump -e 'l LOCAL 20'
        omqdump -e 't m /tmp/pool.txt' --instance test
        printf 's\\nt\\nq\\n/tmp/queues.txt\\n' | omqdump
        omqdump -e s --json
        """,
    )
    parser.add_argument(
        "-e", dest="execute", action="append", metavar="'LETTER ANSWER...'",
        help="an option of the menu with its answers; may be given several times",
    )  # fmt: skip
    add_json(parser)
    return parser
