"""omq standby aside: what a former primary has that the new one does not, a line a message.

Exit code 0: nothing; 1: something; 65: it cannot be told in full.
"""

from __future__ import annotations

import sys
from collections import Counter

from omq.base.clock import iso_time
from omq.base.errors import BadRequest, Exit
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.cli.common import print_json
from omq.core.standby.aside import LOST, Aside, Line, aside
from omq.format import message
from omq.storage import spool
from omq.storage.instance_file import Role


def show(paths: SpoolPaths, since: int | None, *, as_json: bool) -> int:
    """Print it; the exit code."""
    info = spool.open_spool(paths.root, any_role=True)
    if info.instance.role is not Role.FORMER:
        raise BadRequest(reason=f"{paths.root} is a {info.instance.role.value}, and what is its "
                         "own is asked of a former primary; 'omq standby demote' makes one")
    if since is None or since < 1:
        raise BadRequest(reason="give, after --since, the LSN that 'omq standby status' on the new "
                         f"primary shows for the first promotion after term {info.instance.term}")
    found = aside(paths, since)
    for each in found.lines:
        identity = message.derived_id(info.uuid, each.qpool).hex()
        if as_json:
            print_json({"state": each.state, "id": identity, "qpool": each.qpool,
                        "queue": each.queue, "lsn": each.lsn, "time_ns": each.time_ns,
                        "size": each.size if each.born else None, "how": each.how})
        else:
            sys.stdout.write(_text(each, identity) + "\n")
    _summary(paths, since, found, as_json=as_json)
    if not found.complete:
        return Exit.DATA
    return Exit.NO if found.lines else Exit.OK


def _text(line: Line, identity: str) -> str:
    how = f" ({', '.join(line.how)})" if line.how else ""
    return f"{line.state:<9} {identity} {escape(line.queue)} {iso_time(line.time_ns)}{how}"


def _summary(paths: SpoolPaths, since: int, found: Aside, *, as_json: bool) -> None:
    counts = Counter(each.state for each in found.lines)
    if as_json:
        print_json({"since": since, "last_lsn": found.last_lsn, "complete": found.complete,
                    "why": found.why, **counts})
        return
    said = ", ".join(f"{counts[each]} {each}" for each in sorted(counts)) or "nothing"
    sys.stdout.write(f"behind LSN {since}, up to {found.last_lsn}: {said}\n")
    if counts[LOST]:
        sys.stdout.write("bodies of what is lost: omqrecover extract "
                         f"{escape(str(paths.root))} DIR 'lsn>{since}'\n")
    if not found.complete:
        sys.stdout.write(f"this is not all: {found.why}\n")
