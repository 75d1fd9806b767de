"""Who ran a command that changes no message, and why: in the journal, or at least in the event log.

A queue manager that works writes an OPERATOR frame and the event; without one, or with one that
hangs, the command writes the event (OM 1251) itself, for it must not wait for what it is to mend.
"""

from __future__ import annotations

import argparse
import os

from omq.base.errors import ManagerUnavailable, OmqError
from omq.base.event_log import REPORT, EventLog
from omq.base.events import OPERATOR_COMMAND
from omq.services.daemon.options import Location


def add_reason(parser: argparse.ArgumentParser) -> None:
    """Add `--reason`."""
    parser.add_argument("--reason", metavar="TEXT", default="", help="the reason, recorded in the "
                                                                     "journal")


def note_command(location: Location, command: str, reason: str, count: int = 0,
                 things: str = "services") -> bool:
    """Write it down; whether it is in the journal. `count`: of the things it changes."""
    name = command.split(" ", 1)[0]
    missing: str | None = None  # why the journal does not have it
    # Imported late: where no manager was, as at the start of an instance, none of it is needed.
    if location.paths.ids.exists() and _works(location):
        from omq.cli.operate.change import connect
        from omq.ipc.client.operator import Operator

        try:
            with connect(location, name) as connection:
                Operator(connection, command).note((), count, reason=reason, things=things)
            return True
        except OmqError as error:  # it went away meanwhile, or this user may not connect
            missing = str(error)
    log = EventLog(name, location.paths.event_log, stderr=False)
    log.event(OPERATOR_COMMAND, REPORT, uid=os.getuid(), pid_of_operator=os.getpid(),
              command=command, reason=reason, count=count, things=things,
              not_in_journal=missing)
    log.close()
    return False


def _works(location: Location) -> bool:
    from omq.core.look.look import Origin, Source, look

    try:
        with look(location.paths, Source.SEGMENT) as seen:
            return seen.origin is Origin.LIVING
    except ManagerUnavailable:
        return False
