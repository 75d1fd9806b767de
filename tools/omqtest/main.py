"""omqtest powercut: does a file system of yours keep omq's promise? omqtest standby: do two of
them, when a primary is lost with its disk?

Exit codes: 0 the promise was kept; 1 it was not (what, and where the evidence lies, is printed); 64
wrong options; 71 the run itself could not be carried out, which says nothing of the promise.
"""

from __future__ import annotations

import argparse
import sys

from omq.base.errors import Exit
from omqtools.omqtest import powercut, standby
from omqtools.omqtest.instance import RunError


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="omqtest", description="Tests of omq that a user runs on a machine of their own.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    powercut.add_options(commands)
    standby.add_options(commands)
    options = parser.parse_args(argv)
    try:
        return {"powercut": powercut.powercut, "standby": standby.standby}[options.command](options)
    except RunError as error:
        sys.stderr.write(f"omqtest: {error}\n")
        return Exit.OS
