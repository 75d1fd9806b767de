"""omscan: what lies in the spool and belongs to no message; a report first, --remove takes it away.

    container   a file under data/ that no message names: its submitter died before the put, or an
                operator took a message off and exported it
    spare       a file of that kind that is empty, made ahead by one that writes large bodies, which
                removes it at its end unless it is killed; or one that idel.server keeps so that
                the next body is written over it; told, and no reason for exit code 1
                What a program has open stays, whatever its age: a put may be about to come
    record      a pool record that belongs to no message: a continuation that nothing leads to, an
                older record of a message (core.load.pool_orphans); --remove needs a stopped
                instance, whose last checkpoint has everything, and keeps a copy in quarantine/
    unread      a pool record that the index does not know: a manager that was told not to read the
                pool leaves its messages there; a later start serves them, so nothing removes them
    store       a store file, journal file or volatile file that nothing needs is the pool writer's
                business and is not told

References are taken from the pool with the journal redone over it AND from the index, so that
messages which a start did not read (qm_dont_read_messages_at_start) keep their containers. A
container is only called an orphan when it is older than --older: a submitter writes it before the
put. Files are listed before the references are read, so what comes later is never called one.
Containers of old queues (queues/ of the spool) that omqconv has not converted, or had to leave, are
not orphans either: the original's omscan took them for such, and its manual warns of that.

Exit code 0: nothing found, or all of it removed; 1: orphans are there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from omq.base import clock
from omq.base.amounts import counted
from omq.base.clock import NS_PER_S, iso_time
from omq.base.errors import (
    BadItemRef,
    BadRequest,
    DiskError,
    Exit,
    ManagerUnavailable,
    NeedsRepair,
    NotConfirmed,
    SpoolLocked,
)
from omq.base.paths import SpoolPaths
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.operate.command_notes import add_reason, note_command
from omq.cli.operate.old_queues import waiting
from omq.cli.progress import Reading
from omq.core.index.view import IndexView
from omq.core.judge.presence import pool_findings
from omq.core.load.offline_index import OfflineIndex, read_files
from omq.core.load.pool_orphans import orphan_records
from omq.core.redo.checkpoint import settle_changes
from omq.format.findings import Finding
from omq.format.pool import RecordFlag
from omq.services.daemon.options import Location
from omq.storage import containers, poolctrl
from omq.storage.pool import PoolFiles
from omq.storage.quarantine import save_found
from omq.storage.recycled_containers import is_spare, withdraw
from omq.storage.spool import lock, open_spool

NAME: Final = "omscan"


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something that no message names."""

    kind: str
    name: str
    size: int = 0
    modified_ns: int = 0
    finding: Finding | None = None  # of a pool record


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    if options.older < 0:
        raise BadRequest(reason="--older is a number of seconds")
    location = existing(options)
    found = list(scan(location.paths, options.older * NS_PER_S))
    orphans = [each for each in found if each.kind not in ("unread", "spare")]
    spares = [each for each in found if each.kind == "spare"]
    removed: set[str] = set()
    if options.remove and (orphans or spares):
        removed = _remove(location, orphans + spares, yes=options.yes, reason=options.reason)
    for each in found:
        _show(each, gone=each.name in removed, as_json=options.json)
    if not options.json:
        containers_found = [each for each in orphans if each.kind == "container"]
        size = sum(each.size for each in containers_found)
        sys.stdout.write(f"{len(containers_found)} orphan containers, {size} bytes; "
                         f"{len(orphans) - len(containers_found)} orphan records; "
                         f"{len(found) - len(orphans) - len(spares)} unread"
                         f"{f'; {len(spares)} spare' if spares else ''}\n")
    left = [each for each in found if each.name not in removed and each.kind != "spare"]
    return Exit.NO if left else Exit.OK


def _show(each: Orphan, *, gone: bool, as_json: bool) -> None:
    when = iso_time(each.modified_ns) if each.modified_ns else None
    if as_json:
        print_json({"kind": each.kind, "name": each.name, "size": each.size, "modified": when,
                    "removed": gone})
    else:
        sys.stdout.write(f"{each.kind:<10}{each.size:>12}  {when or '':<32}  {each.name}"
                         f"{'  removed' if gone else ''}\n")


def _remove(location: Location, orphans: list[Orphan], *, yes: bool, reason: str) -> set[str]:
    if not yes:
        asked = sys.stdin.isatty()
        if asked:
            sys.stderr.write(f"{NAME}: remove what is listed, {len(orphans)} in all (y/n) ? ")
            sys.stderr.flush()
        if not asked or sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise NotConfirmed(count=len(orphans), what="orphans", action="remove")
    open_spool(location.paths.root, writer=True)  # SpoolOwner: only its owner removes
    if not note_command(location, f"{NAME} --remove", reason, len(orphans), "orphans"):
        say(NAME, "no queue manager works: the command is in the event log, not in the journal")
    gone = {each.name for each in orphans
            if each.kind in ("container", "spare") and _take_away(location.paths, each.name)}
    records = [each for each in orphans if each.finding is not None]
    return gone | (_clear(location.paths, records) if records else set())


def _take_away(paths: SpoolPaths, name: str) -> bool:
    """Whether it is removed. One that cannot be is reported, and holds up none of the others."""
    try:
        withdraw(paths, name)
        removed = containers.remove_unused(paths, name)
        if removed is None:
            say(NAME, f"{name} stays: a program has it open, which may be about to put it")
        return bool(removed)
    except DiskError as error:
        say(NAME, str(error))
        return False


def _clear(paths: SpoolPaths, records: list[Orphan]) -> set[str]:
    """Free the slots, each with a copy in quarantine; what another look does not find is left."""
    try:
        locks = [lock(paths.manager_lock, NAME), lock(paths.pool_lock, NAME)]
    except SpoolLocked as error:
        say(NAME, f"{error}; pool records are removed from a stopped instance only")
        return set()
    pool = PoolFiles(paths, open_spool(paths.root).uuid)
    try:
        if read_files(paths, clock.wall_ns()).pending:
            say(NAME, "a manager has run meanwhile: nothing of the pool is removed")
            return set()
        now = {str(finding): finding for finding in orphan_records(pool)}
        chosen = [now[str(each.finding)] for each in records if str(each.finding) in now]
        for finding in chosen:
            save_found(paths, finding)
        control, _ = poolctrl.load(paths)
        pool.recover_double_write(control)
        for missing in pool_findings(control, pool, pool.possible):
            raise NeedsRepair(path=paths.msgpool / missing.file, reason=missing.reason,
                              command=f"omqrecover plan {paths.root}")
        settle_changes(paths, pool, {
            (int(each.file.removesuffix("QP")), each.record): None for each in chosen})
    finally:
        pool.close()
        for held in locks:
            held.close()
    return {_record_name(finding) for finding in chosen}


def scan(paths: SpoolPaths, older_ns: int) -> Iterator[Orphan]:
    """Everything that no message names, containers first."""
    before_ns = clock.wall_ns() - older_ns
    there = list(_containers(paths))
    reading = Reading(NAME)
    files = read_files(paths, clock.wall_ns(), reading)
    reading.end()
    with IndexView.of(files.tables, paths) as view:
        named, damaged = _named(view)
        known = _qpools(view)
    live: set[int] = set()
    try:
        with IndexView.attach(paths) as view:
            more, unread = _named(view)
            named, damaged = named | more, damaged + unread
            live = _qpools(view) if view.alive else set()
    except ManagerUnavailable:
        say(NAME, "no queue manager runs: pool records are not compared with its index")
    old = waiting(paths.root / "queues")
    if kept := [each for each in there if each.name in old and each.name not in named]:
        say(NAME, f"{counted(len(kept), 'container')} of old queues: their messages are not "
            "upgraded yet, so none of them is an orphan (omqconv names them)")
    yield from _orphans(paths, there, named | old, before_ns, damaged)
    yield from _records(paths, files)
    if live:
        yield from _unknown(files, paths, known - live)


def _records(paths: SpoolPaths, files: OfflineIndex) -> Iterator[Orphan]:
    """Pool records of no message, as far as the pool can be judged by itself."""
    if files.pending:
        say(NAME, f"{files.pending} changes are not in the pool yet: its records are judged behind "
            "a checkpoint (a stop writes one)")
        return
    pool = PoolFiles(paths, open_spool(paths.root).uuid, write=False)
    try:
        for finding in orphan_records(pool):
            yield Orphan("record", _record_name(finding), finding.length, 0, finding)
    finally:
        pool.close()


def _record_name(finding: Finding) -> str:
    return f"{finding.file}:{finding.record} {finding.reason}"


def _orphans(paths: SpoolPaths, there: list[Orphan], named: set[str], before_ns: int,
             damaged: int) -> Iterator[Orphan]:
    if damaged:  # one of them may be theirs
        say(NAME, f"{damaged} large messages cannot be read: no container is called an orphan")
        return
    for each in there:
        if each.name not in named and each.modified_ns < before_ns:
            yield replace(each, kind="spare") if is_spare(paths, each.name) else each


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
            kind = "container" if status.st_size else "spare"
            yield Orphan(kind, name, status.st_size, status.st_mtime_ns)


def _qpools(view: IndexView) -> set[int]:
    """The messages there are."""
    (found,) = view.copies.columns_where(("m_qpool",), lambda column: column("m_qpool") != 0)
    return set(found.tolist()) - {0}


def _named(view: IndexView) -> tuple[set[str], int]:
    """The containers that messages name, and how many large messages could not be read."""
    large = int(RecordFlag.CONTAINER)
    refs = [message.item_ref for message in view.messages_where(
        lambda column: (column("m_flags") & large != 0) & (column("m_qpool") != 0))
        if message.flags & large]
    named = {ref for ref in refs if ref.startswith("~/data/")}
    return named, len(refs) - len(set(refs) & named)


def _unknown(files: OfflineIndex, paths: SpoolPaths, qpools: set[int]) -> Iterator[Orphan]:
    """Records of messages that the running manager does not have: it was told not to read them, or
    they ended between the two looks."""
    if not qpools:
        return
    with IndexView.attach(paths) as view:
        later = _qpools(view)
        if view.counters()["last_lsn"] != files.lsn:
            again = read_files(paths, clock.wall_ns())
            with IndexView.of(again.tables, paths) as offline:
                qpools &= _qpools(offline)
    unknown = np.array(sorted(qpools - later), dtype=np.uint64)
    with IndexView.of(files.tables, paths) as offline:
        for message in offline.messages_where(lambda column: np.isin(column("m_qpool"), unknown)):
            yield Orphan("unread", f"{message.file}QP:{message.record} QPoolId {message.qpool}",
                         message.size, message.created_ns)


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(NAME, "Find containers and pool records that no message refers to.", """
        omscan
        omscan --remove --yes
        omscan --older 0 --json
        """)
    found.add_argument("--remove", action="store_true",
                       help="remove orphan containers, and pool records of a stopped instance")
    found.add_argument("--older", type=int, default=3600, metavar="SECONDS",
                       help="only what was written at least this long ago (3600)")
    found.add_argument("--yes", action="store_true", help="do not ask")
    add_reason(found)
    add_json(found)
    return found
