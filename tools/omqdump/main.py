"""The command line of omqdump.

Three ways to give options: a menu on a terminal; lines of standard input anywhere else, each option
followed by its answers, a line each; or `-e 'LETTER ANSWER...'`, several times. Without a terminal
the first error ends it with the exit code of the error, because the lines that follow may be the
answers to what failed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys

from omq.cli.common import add_json, existing, say, tool_parser
from omq.core.look.look import Source
from omqtools.omqdump.option_desk import Desk, Orders
from omqtools.omqdump.prompts import Prompts
from omqtools.omqdump.session import Session
from omqtools.omqdump.sources import Choice, Sources

NAME = "omqdump"


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    location = existing(options)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # a file name may have any bytes
    scripted: list[str] | None = options.execute
    if options.apply:
        scripted = [*(scripted or []), f"A '{options.apply}'"]
    if options.undo:
        scripted = [*(scripted or []), f"u '{options.undo}'"]
    interactive = scripted is None and sys.stdin.isatty()
    answers = Prompts(None if scripted else sys.stdin, sys.stdout, interactive=interactive)
    choice = Choice(Source(options.source), options.segment)
    sources = Sources(location, lambda text: say(NAME, text), choice)
    desk = Desk(sources, answers, sys.stdout, location, json=options.json,
                orders=Orders(options.reason, options.yes, NAME),
                note=lambda text: say(NAME, text))
    session = Session(desk, NAME)
    with contextlib.closing(sources):
        if scripted is not None:
            session.commands(scripted)
        elif interactive:
            session.interactive()
        else:
            session.batch()
    return 0


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(
        NAME,
        "Look into the queues, and move, copy, delete and export messages: from a menu on a "
        "terminal, by a script from standard input.",
        """
        omqdump
        omqdump -e s -e T
        omqdump -e 'l LOCAL 20'
        omqdump -e "M LOCAL ERROR --where 'age>2d attempts>0' --dry-run plan.txt"
        omqdump --apply plan.txt --reason 'ticket 4711' --yes
        omqdump --undo 956
        omqdump -e 't m /tmp/pool.txt' --instance test
        printf 's\\nt\\nq\\n/tmp/queues.txt\\n' | omqdump
        omqdump -e s --json
        """,
    )
    found.add_argument(
        "-e", dest="execute", action="append", metavar="'LETTER ANSWER...'",
        help="an option of the menu with its answers; may be given several times",
    )  # fmt: skip
    found.add_argument("--apply", metavar="PLAN", help="carry out a plan that --dry-run wrote")
    found.add_argument("--undo", metavar="ID", help="take back the delete of a message, or 'all'")
    found.add_argument("--reason", metavar="TEXT", default="", help="the reason, recorded in the "
                                                                    "journal")
    found.add_argument("--yes", action="store_true", help="do not ask before changing many "
                                                          "messages")
    found.add_argument("--source", choices=[source.value for source in Source], default="auto",
                       help="where to look: the manager's segment, the files (default: auto)")
    found.add_argument("--segment", metavar="SHMID", type=int,
                       help="the id of a left-over segment (ipcs -m), when run/ is lost")
    add_json(found)
    return found
