"""omq cancel: remove messages from their queues, by id, while they wait or are being processed.

    omq cancel ID ...          each of them, in this order; the first that cannot ends it
    omq cancel --in-work ID    also one that a reader has: it finds out at its next touch
    omq cancel --state ID ...  only say where they are, and in which state

ID is what `omsend` or `Connection.put` said. Who put a message may, and operators with `admin` on
its queue (omq.ipc.client.cancelling). It is final, and journaled with uid, pid and the command.

Errors: NoMessage, MessageBusy, NotInState, BadArgument, ManagerUnavailable.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

import omq
from omq.base.errors import Exit
from omq.base.names import escape
from omq.cli.common import existing, tool_parser
from omq.ipc.client.cancelling import MessageState

NAME: Final = "omq cancel"


def main(argv: list[str]) -> int:
    """The command; its exit code: 1 when there is no such message, 75 when a reader has it."""
    options = _parser().parse_args(argv)
    with omq.connect(existing(options).paths.root, name="omq") as connection:
        for each in options.id:
            if options.state:
                for place in connection.state(each):
                    sys.stdout.write(f"{escape(each)} {_said(place)}\n")
            else:
                connection.cancel(each, in_work=options.in_work)
                sys.stdout.write(f"{escape(each)} is cancelled\n")
            sys.stdout.flush()  # an error may follow
    return Exit.OK


def _said(place: MessageState) -> str:
    due = f" until {place.due:%Y-%m-%d %H:%M:%S}" if place.due else ""
    reader = f" by {escape(place.reader)}" if place.reader else ""
    said = (f"; at {place.progress_time:%Y-%m-%d %H:%M:%S} it said: {escape(place.progress)}"
            if place.progress_time else "")
    waits = (f"; a barrier that waits for {place.waits_for} "
             f"message{'s' if place.waits_for > 1 else ''}" if place.waits_for else "")
    return f"{place.queue}: {place.state}{due}{reader}{said}{waits}"


def _parser() -> argparse.ArgumentParser:
    found = tool_parser(NAME, "Remove messages from their queues, by id.", """
        omq cancel 4f4d51314c0f...0000000000000012
        omq cancel --in-work 4f4d51314c0f...0000000000000012
        omq cancel --state order-4711
        """)
    found.add_argument("id", nargs="+", metavar="ID", help="message id, as printed by omsend")
    found.add_argument("--in-work", action="store_true",
                       help="also one that a reader has; the reader learns of it at its next touch")
    found.add_argument("--state", action="store_true",
                       help="only show on which queues it is, in which state, and what its reader "
                       "said of its work")
    return found
