"""omq-archive: make archive files of retired journal files, and remove what is too old.

One run does what there is to do and ends: a timer starts it each hour. It may run with the
daemons and may be killed at any point; the next run goes on. Two runs exclude each other by a lock.

`--hold NAME` is for media recovery: a copy of the spool (or of msgpool/) is brought up to date by
the journal since then, so nothing from the checkpoint's file on goes until `--release NAME`.

Exit codes: 0; 1 when there is no such hold; 65 when an archive file does not give its journal file
back (that one stays, the others are done); 75 when another run holds the lock.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from omq.base import clock, event_log, events
from omq.base.config import load_settings
from omq.base.errors import Damaged, Exit, InputUnreadable
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.cli.common import add_json, locate, print_json, tool_parser
from omq.format.archive import BODIES_MAGIC, ArchiveHeader
from omq.format.findings import Finding
from omq.storage import archiver, disk_usage, durable, history, holds
from omq.storage.archive import BODIES_SUFFIX, FRAMES_SUFFIX, archive_name
from omq.storage.archive_file import ArchiveFile, open_archive, rebuild
from omq.storage.files import open_file, write_new_file
from omq.storage.journal import numbers_in
from omq.storage.spool import SpoolInfo, lock, open_spool

NAME = "omq-archive"
LOCK_WAIT_S = 60.0
"""For pool.writer, which holds the lock for a few removals."""


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = locate(options)
    if options.list or options.rebuild is not None:
        info = open_spool(location.paths.root)
        return _list(info, json=options.json) if options.list else _rebuild(info, options)
    info = open_spool(location.paths.root, writer=True)
    if options.hold or options.release or options.holds:
        return _holds(info, options)
    settings = load_settings(location.conf_dir)
    holder = lock(info.paths.archive / "lock", NAME)
    log = EventLog(NAME, info.paths.event_log, stderr=not options.quiet)
    try:
        return run(info, settings, log, now_ns=clock.wall_ns(), dry=options.dry_run)
    finally:
        holder.close()
        log.close()


def run(info: SpoolInfo, settings: Settings, log: EventLog, *, now_ns: int, dry: bool) -> int:
    """Let history go, then convert, and let go again; the exit code. While the disk is short
    nothing is converted: that needs room, and takes the lock from pool.writer, which makes some."""
    paths = info.paths
    named = archiver.named_by_pool(paths, info.uuid)
    needed = set() if named is None else named
    code = Exit.OK
    bodies = settings.archive_bodies_days > 0 or named is None
    if named is not None:
        _let_go(paths, settings, log, needed, now_ns=now_ns, dry=dry)
    for number in archiver.pending(paths):
        if dry:
            sys.stdout.write(f"archive {number:010d}.jnl\n")
            continue
        if disk_usage.free(paths, settings).short:
            break
        try:
            with history.changing(paths, NAME, LOCK_WAIT_S):
                done = archiver.convert(paths, settings, info.uuid, number, keep=number in needed,
                                        bodies=bodies)
        except FileNotFoundError:
            continue  # another hand was faster
        except Damaged as error:
            log.event(events.FAILED, event_log.ERROR, at="archive", reason=str(error))
            code = Exit.DATA
            continue
        for finding in done.findings:
            log.event(events.ARCHIVE_DAMAGED, event_log.ERROR, reason=str(finding))
        if not done.kept:
            log.event(events.JOURNAL_ARCHIVED, file=archive_name(number), frames=done.frames,
                      journal_bytes=done.journal_bytes, bytes=done.archive_bytes)
    if named is None:
        log.event(events.ARCHIVE_DAMAGED, event_log.ERROR, reason="a record of the message pool "
                  "cannot be read, or a pool file is not what the last checkpoint left: any body "
                  "may be needed, nothing is removed; see omqcheck")
        return Exit.DATA
    _let_go(paths, settings, log, needed, now_ns=now_ns, dry=dry)
    return code


def _let_go(paths: SpoolPaths, settings: Settings, log: EventLog, needed: set[int], *, now_ns: int,
            dry: bool) -> None:
    """Remove what is to go (storage.history). SpoolLocked."""
    with history.changing(paths, NAME, LOCK_WAIT_S):
        bounds = history.Bounds.of(paths, settings, disk_usage.free(paths, settings).history_wanted)
        for going in history.plan(paths, bounds, now_ns, lambda number: number not in needed):
            if dry:
                suffix = BODIES_SUFFIX if going.bodies_only else FRAMES_SUFFIX
                sys.stdout.write(f"remove {archive_name(going.number, suffix)}\n")
                continue
            history.remove(paths, going)
            history.tell(log, going, short=bounds.short > 0)


def _holds(info: SpoolInfo, options: argparse.Namespace) -> int:
    """Make or release one, then list them; 1 when there is none of that name."""
    paths, code = info.paths, Exit.OK
    with history.changing(paths, NAME, LOCK_WAIT_S):
        if options.hold:
            first = history.needed_of_base(paths) if options.first is None else options.first
            holds.make(paths, holds.Hold(options.hold, first, f"made by {NAME} --hold",
                                         lives=False)).close()
        if options.release and not holds.release(paths, options.release):
            code = Exit.NO
        found = holds.holds(paths)
    for each in found:
        if options.json:
            print_json({"hold": each.name, "from": each.first, "who": each.who,
                        "lives": each.lives})
        else:
            sys.stdout.write(f"{each.name}  from {archive_name(each.first)} on: {each.who}\n")
    return code


def _list(info: SpoolInfo, *, json: bool) -> int:
    for number in numbers_in(info.paths.archive, FRAMES_SUFFIX):
        header = history.read_head(info.paths, number)
        bodies = durable.status(info.paths.archive / archive_name(number, BODIES_SUFFIX))
        record: dict[str, object] = {"file": archive_name(number), "bodies": bodies is not None}
        if isinstance(header, ArchiveHeader):
            record |= {"first_lsn": header.first_lsn, "last_lsn": header.last_lsn,
                       "frames": header.frames, "journal_bytes": header.journal_bytes,
                       "from": clock.iso_time(header.time_min),
                       "to": clock.iso_time(header.time_max)}
        elif header is not None:
            record["damage"] = str(header)
        if json:
            print_json(record)
        else:
            said = "  ".join(f"{value}" for key, value in record.items() if key != "bodies")
            sys.stdout.write(said + ("" if bodies else "  without bodies") + "\n")
    return Exit.OK


def _rebuild(info: SpoolInfo, options: argparse.Namespace) -> int:
    """The journal file out of its archive."""
    with contextlib.ExitStack() as files:
        oma = _open(info, options.rebuild, FRAMES_SUFFIX, files)
        assert oma is not None
        found = rebuild(oma, _open(info, options.rebuild, BODIES_SUFFIX, files))
    if isinstance(found, Finding):
        raise Damaged(file=archive_name(options.rebuild), offset=found.offset, reason=found.reason)
    write_new_file(options.to, [found]).close()
    return Exit.OK


def _open(info: SpoolInfo, number: int, suffix: str, files: contextlib.ExitStack
          ) -> ArchiveFile | None:
    path = info.paths.archive / archive_name(number, suffix)
    try:
        file = open_file(path)
    except FileNotFoundError as error:
        if suffix == BODIES_SUFFIX:
            return None
        raise InputUnreadable(file=path, reason="there is no such archive file") from error
    files.callback(file.close)
    magic = {"magic": BODIES_MAGIC} if suffix == BODIES_SUFFIX else {}
    found = open_archive(file, path.name, **magic)
    if isinstance(found, Finding):
        raise Damaged(file=path, offset=found.offset, reason=found.reason)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        NAME,
        "Make archive files of retired journal files; remove old ones as omq.conf [archive] says.",
        """
        omq-archive
        omq-archive --dry-run
        omq-archive --list --json
        omq-archive --rebuild 42 --to /var/tmp/0000000042.jnl
        omq-archive --hold monday
        omq-archive --release monday
        """,
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--quiet", action="store_true", help="events only to logs/events.log")
    parser.add_argument("--list", action="store_true", help="list the archive files")
    parser.add_argument("--hold", metavar="NAME", help="keep history from now on, for a copy of "
                        "the spool that is made now, until --release NAME; lists the holds")
    parser.add_argument("--from", dest="first", metavar="NUMBER", type=int,
                        help="with --hold: from this file number on; 0: everything")
    parser.add_argument("--release", metavar="NAME", help="end a hold")
    parser.add_argument("--holds", action="store_true", help="list the holds")
    parser.add_argument("--rebuild", metavar="NUMBER", type=int, help="restore a journal file")
    parser.add_argument("--to", metavar="FILE", type=Path, default=Path("rebuilt.jnl"),
                        help="where --rebuild writes it (default: %(default)s)")
    add_json(parser)
    return parser
