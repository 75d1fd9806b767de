"""omscan: what lies in the spool and belongs to no message; a report first, --remove takes it away.

    container   a file under data/ that no message names: its submitter died before the put, or an
                operator took a message off and exported it
    record      a pool record that the index does not know (--remove leaves it: a start reads it)
    store       a store file, journal file or volatile file that nothing needs is the pool writer's
                business and is not told

References are taken from the pool with the journal redone over it AND from the index, so that
messages which a start did not read (qm_dont_read_messages_at_start) keep their containers. A
container is only called an orphan when it is older than --older: a submitter writes it before the
put. Files are listed before the references are read, so what comes later is never called one.

Exit code 0: nothing found, or all of it removed; 1: orphans are there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from omq.base import clock
from omq.base.clock import NS_PER_S, iso_time
from omq.base.errors import BadItemRef, BadRequest, Exit, ManagerUnavailable, NotConfirmed
from omq.base.paths import SpoolPaths
from omq.cli.change import connect
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.core.index_view import IndexView
from omq.core.offline_index import OfflineIndex, read_files
from omq.format.pool import RecordFlag
from omq.ipc.operator import Operator
from omq.services.options import Location
from omq.storage import containers

NAME: Final = "omscan"


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something that no message names."""

    kind: str
    name: str
    size: int = 0
    modified_ns: int = 0


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    if options.older < 0:
        raise BadRequest(reason="--older is a number of seconds")
    location = existing(options)
    paths = location.paths
    found = list(scan(paths, options.older * NS_PER_S))
    orphans = [each for each in found if each.kind == "container"]
    removed: set[str] = set()
    if options.remove and orphans:
        removed = _remove(location, orphans, yes=options.yes, reason=options.reason)
    for each in found:
        if options.json:
            print_json({"kind": each.kind, "name": each.name, "size": each.size,
                        "modified": iso_time(each.modified_ns) if each.modified_ns else None,
                        "removed": each.name in removed})
        else:
            gone = "  removed" if each.name in removed else ""
            when = iso_time(each.modified_ns) if each.modified_ns else ""
            sys.stdout.write(f"{each.kind:<10}{each.size:>12}  {when:<32}  {each.name}{gone}\n")
    if not options.json:
        size = sum(each.size for each in orphans)
        sys.stdout.write(f"{len(orphans)} orphan containers, {size} bytes; "
                         f"{len(found) - len(orphans)} other\n")
    return Exit.OK if len(removed) == len(found) else Exit.NO


def _remove(location: Location, orphans: list[Orphan], *, yes: bool, reason: str) -> set[str]:
    if not yes:
        sys.stderr.write(f"{NAME}: remove {len(orphans)} containers (y/n) ? ")
        sys.stderr.flush()
        if not sys.stdin.isatty() or sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise NotConfirmed(count=len(orphans), action="remove containers")
    _journal(location, len(orphans), reason)
    return {each.name for each in orphans if containers.remove(location.paths, each.name)}


def _journal(location: Location, count: int, reason: str) -> None:
    """A running manager writes the command down; without one there is no journal to write to."""
    try:
        with connect(location, NAME) as connection:
            Operator(connection, f"{NAME} --remove").note((), count, reason=reason)
    except ManagerUnavailable:
        say(NAME, "no queue manager runs: the command is not in the journal")


def scan(paths: SpoolPaths, older_ns: int) -> Iterator[Orphan]:
    """Everything that no message names, containers first."""
    before_ns = clock.wall_ns() - older_ns
    there = list(_containers(paths))
    files = read_files(paths, clock.wall_ns())
    with IndexView.of(files.tables, paths) as view:
        named, damaged = _named(view)
        known = {message.qpool for message in view.messages()}
    live: set[int] = set()
    try:
        with IndexView.attach(paths) as view:
            more, unread = _named(view)
            named, damaged = named | more, damaged + unread
            live = {message.qpool for message in view.messages()} if view.alive else set()
    except ManagerUnavailable:
        say(NAME, "no queue manager runs: pool records are not compared with its index")
    yield from _orphans(there, named, before_ns, damaged)
    if live:
        yield from _unknown(files, paths, known - live)


def _orphans(there: list[Orphan], named: set[str], before_ns: int, damaged: int
             ) -> Iterator[Orphan]:
    if damaged:  # one of them may be theirs
        say(NAME, f"{damaged} large messages cannot be read: no container is called an orphan")
        return
    yield from (each for each in there if each.name not in named and each.modified_ns < before_ns)


def _containers(paths: SpoolPaths) -> Iterator[Orphan]:
    """All files under data/ that have the name of a container."""
    for folder in sorted(paths.data.iterdir()):
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            name = f"~/data/{folder.name}/{path.name}"
            try:
                containers.relative_path(name)
            except BadItemRef:
                continue  # not a name of ours: nobody's business here
            status = path.lstat()
            yield Orphan("container", name, status.st_size, status.st_mtime_ns)


def _named(view: IndexView) -> tuple[set[str], int]:
    """The containers that messages name, and how many large messages could not be read."""
    refs = [message.item_ref for message in view.messages()
            if message.flags & RecordFlag.CONTAINER]
    named = {ref for ref in refs if ref.startswith("~/data/")}
    return named, len(refs) - len(set(refs) & named)


def _unknown(files: OfflineIndex, paths: SpoolPaths, qpools: set[int]) -> Iterator[Orphan]:
    """Records of messages that the running manager does not have: it was told not to read them, or
    they ended between the two looks."""
    with IndexView.attach(paths) as view:
        later = {message.qpool for message in view.messages()}
        if view.counters()["last_lsn"] != files.lsn:
            again = read_files(paths, clock.wall_ns())
            with IndexView.of(again.tables, paths) as offline:
                qpools &= {message.qpool for message in offline.messages()}
    with IndexView.of(files.tables, paths) as offline:
        for message in offline.messages():
            if message.qpool in qpools - later:
                yield Orphan("record", f"{message.file}QP:{message.record} QPoolId "
                             f"{message.qpool}", message.size, message.created_ns)


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(NAME, "Find containers and pool records that no message names.", """
        omscan
        omscan --remove --yes
        omscan --older 0 --json
        """)
    found.add_argument("--remove", action="store_true", help="remove orphan containers")
    found.add_argument("--older", type=int, default=3600, metavar="SECONDS",
                       help="only what was written so long ago (3600)")
    found.add_argument("--yes", action="store_true", help="do not ask")
    found.add_argument("--reason", metavar="TEXT", default="", help="why; kept in the journal")
    add_json(found)
    return found
