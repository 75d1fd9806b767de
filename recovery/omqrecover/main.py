"""omqrecover: the command.

    scan     what is there, what is damaged        plan     what would be done about it
    apply    do it                                 rebuild  a new pool from the archived journal
    extract  bodies out of a dead spool           identity  a new instance.json, from the files
    restore  a spool from an object store (omq ship), as it was at a point of time
    archive  archive files for omq-spark from there

scan, plan and extract write nothing in the spool and share its locks; the others take them.
Exit code of scan, plan: 0 clean, 1 repairable, 65 loss.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from omq.base import clock
from omq.base.amounts import duration
from omq.base.errors import Exit, FileNotWritten, OmqError
from omq.base.paths import SpoolPaths, existing_spool
from omq.cli.common import add_json, print_json, say, tool_parser
from omq.core.judge.finding import worst
from omq.storage import durable, spool
from omq.storage.files import write_new_file
from omq.storage.instance_file import Role
from omq.storage.spool import SpoolInfo, create_spool, open_spool, refuse_others
from omqtools.omqrecover import identity, restore
from omqtools.omqrecover.apply import apply
from omqtools.omqrecover.archive import list_archived
from omqtools.omqrecover.conditions import parse, time_ns
from omqtools.omqrecover.extract import extract
from omqtools.omqrecover.plan import Plan, load_plan
from omqtools.omqrecover.rebuild import Bounds, rebuild
from omqtools.omqrecover.render import (
    EXITS,
    finding_lines,
    finding_record,
    json_records,
    text_lines,
    verdict_record,
)
from omqtools.omqrecover.survey import Survey, survey

NAME = "omqrecover"
PROGRESS_PERIOD_S = 2.0
"""How often long work says where it is."""


class Progress:
    """Lines on stderr, not more often than every PROGRESS_PERIOD_S."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PROGRESS_PERIOD_S

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_PERIOD_S
            say(NAME, text)


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    code: int = options.run(options)
    return code


def _scan(options: argparse.Namespace) -> int:
    made, role = _survey(options)
    if options.json:
        for record in json_records(made):
            print_json(record)
    else:
        for line in text_lines(made, role):
            print(line)
    return EXITS[worst(made.found)]


def _plan(options: argparse.Namespace) -> int:
    made, role = _survey(options)
    plan = Plan.of(made, clock.wall_ns())
    if options.json:
        for each in made.found:
            print_json(finding_record(each))
        print_json(verdict_record(made.found))
    else:
        for line in finding_lines(made.found, role):
            print(line)
    if options.save is not None:
        target: Path = options.save.absolute()
        try:
            write_new_file(target, [plan.encode()]).close()
        except OmqError as error:
            raise FileNotWritten(path=target, reason=str(error)) from error
        say(NAME, f"plan saved; carry it out with: omqrecover apply {made.paths.root} {target}")
    return EXITS[worst(made.found)]


def _survey(options: argparse.Namespace) -> tuple[Survey, Role]:
    info = open_spool(options.spool.absolute())
    with _shared(info.paths):
        identity.check(info)
        made = survey(info.paths, info.uuid, Progress(), bodies=not options.no_bodies)
        return made, info.instance.role


def _apply(options: argparse.Namespace) -> int:
    plan = load_plan(options.plan)
    info = open_spool(options.spool.absolute())
    with _exclusive(info.paths):
        identity.check(info)
        refuse_others(info.paths, info.instance)
        done = apply(info.paths, info.uuid, plan, Progress(), accept_loss=options.accept_loss)
    if done.already:
        print(f"this plan was carried out before; its originals are in {done.folder}")
        return Exit.OK
    for what, count in sorted(done.counts.items()):
        print(f"{count:>8}  {what}")
    for line in done.refused:
        say(NAME, f"not done: {line}")
    print(f"originals: {done.folder}; scan again, then start the instance")
    return Exit.DATA if done.refused else Exit.OK


def _rebuild(options: argparse.Namespace) -> int:
    wanted = Bounds(options.from_archive.absolute(), options.until_lsn, options.until_time)
    info = _spool_or_new(options.spool.absolute(), wanted)
    began, worked = time.monotonic(), time.process_time()
    with _exclusive(info.paths):
        mark = rebuild(info.paths, info.uuid, restore.settings_of(info.paths), wanted, Progress(),
                       accept_loss=options.accept_loss)
    seconds, cpu = time.monotonic() - began, time.process_time() - worked
    print(f"rebuilt {mark.messages} messages from {mark.frames} frames, LSN {mark.from_lsn} to "
          f"{mark.lsn}, in {duration(seconds)} ({duration(cpu)} of a processor)")
    for first, last in mark.missing:
        print(f"LSN {first} to {last} were missing")
    print(f"the old pool is in quarantine/{mark.quarantined}; scan, then start the instance")
    return Exit.OK


def _identity(options: argparse.Namespace) -> int:
    paths = existing_spool(options.spool.absolute())
    with _exclusive(paths):
        made, kept = identity.restore(paths.root, options.uuid,
                                      Role(options.role) if options.role else None)
    if kept:
        print(f"what was there is in quarantine/{kept}")
    what = "" if made.alone else f", a {made.role.value} of term {made.term}"
    print(f"{paths.uuid} names the instance {made.uuid.hex()}{what}; scan, then start the instance")
    return Exit.OK


def _spool_or_new(root: Path, wanted: Bounds) -> SpoolInfo:
    """The spool; one with the archive's identity where there is none."""
    if durable.status(root / "instance.json") is not None:
        return open_spool(root, writer=True)
    found = {h.uuid for f in list_archived([wanted.archive]) if (h := f.follows) is not None}
    if len(found) != 1:
        return open_spool(root, writer=True)  # says that there is none
    say(NAME, f"{root} is a new spool for the instance {next(iter(found)).hex()}")
    return create_spool(root, next(iter(found)))


def _extract(options: argparse.Namespace) -> int:
    conditions = [parse(text) for text in options.where]
    info = open_spool(options.spool.absolute())
    with _shared(info.paths):
        made = survey(info.paths, info.uuid, Progress(), bodies=False)
        result = extract(made, conditions, options.to.absolute())
    for line in result.failed:
        say(NAME, line)
    print(f"{result.messages} messages written to {options.to}, {len(result.failed)} without body")
    return Exit.DATA if result.failed else Exit.OK if result.messages else Exit.NO


@contextmanager
def _shared(paths: SpoolPaths) -> Iterator[None]:
    """Nobody may write while we look, nor remove history. SpoolLocked names who does."""
    with ExitStack() as held:
        for path in (paths.manager_lock, paths.pool_lock, paths.archive_lock):
            file = spool.lock_shared(path)
            if file is not None:
                held.callback(file.close)
        yield


@contextmanager
def _exclusive(paths: SpoolPaths) -> Iterator[None]:
    """Nobody may use the spool while we change it."""
    durable.make_directory(paths.run)
    with ExitStack() as held:
        held.callback(spool.lock(paths.manager_lock, NAME).close)
        if durable.status(paths.msgpool) is not None:
            held.callback(spool.lock(paths.pool_lock, NAME).close)
        held.callback(spool.lock(paths.archive_lock, NAME).close)
        yield


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        NAME, "Look into, repair or rebuild a spool that does not run.",
        """
        omqrecover scan /var/lib/omq
        omqrecover plan /var/lib/omq --save repair.plan
        omqrecover apply /var/lib/omq repair.plan
        omqrecover rebuild /var/lib/omq --from-archive /backup/archive
        omqrecover rebuild /var/lib/omq --until-time 2026-11-21T08:00
        omqrecover identity /var/lib/omq
        omqrecover extract /var/lib/omq --where queue=ORDERS --to /tmp/out
        omqrecover restore /tmp/then --from s3://bucket/omq --at 2026-11-21T08:00
        omqrecover restore /var/lib/omq --from s3://bucket/omq --take-place
        omqrecover archive /srv/archive --from s3://bucket/omq
        """, location=False)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _looking(commands.add_parser("scan", help="what is there, what is damaged; changes nothing"),
             _scan)
    plan = commands.add_parser("plan", help="what would be done about it; changes nothing")
    _looking(plan, _plan)
    plan.add_argument("--save", type=Path, metavar="FILE", help="write the plan for apply")
    change = commands.add_parser("apply", help="carry a saved plan out; may be killed and repeated")
    change.add_argument("spool", type=Path, metavar="SPOOL")
    change.add_argument("plan", type=Path, metavar="PLAN")
    _accepting(change, _apply)
    media = commands.add_parser("rebuild", help="a new pool from the archived journal")
    media.add_argument("spool", type=Path, metavar="SPOOL")
    media.add_argument("--from-archive", type=Path, metavar="DIR", required=True)
    point = media.add_mutually_exclusive_group()
    point.add_argument("--until-lsn", type=int, metavar="N", help="up to the last group commit at "
                                                                  "or before this LSN")
    point.add_argument("--until-time", type=_time, metavar="T",
                       help="the same by time, like 2026-11-21T08:00")
    _accepting(media, _rebuild)
    named = commands.add_parser("identity", help="rebuild instance.json from the other files")
    named.add_argument("spool", type=Path, metavar="SPOOL")
    named.add_argument("--uuid", type=_uuid, metavar="HEX",
                       help="the instance, where the files do not agree (32 hexadecimal digits)")
    named.add_argument("--role", choices=[each.value for each in Role],
                       help="what this spool is, where the instance had standbys; two that serve "
                       "would give the same message ids")
    named.set_defaults(run=_identity)
    restore.add_parser(commands, _time, Progress)
    restore.add_archive_parser(commands, Progress)
    take = commands.add_parser("extract", help="write bodies and properties to a directory")
    take.add_argument("spool", type=Path, metavar="SPOOL")
    take.add_argument("--where", action="append", default=[], metavar="CONDITION",
                      help="like queue=ORDERS or 'priority>=5'; all must hold")
    take.add_argument("--to", type=Path, metavar="DIR", required=True)
    take.set_defaults(run=_extract)
    return parser


def _looking(parser: argparse.ArgumentParser, run: object) -> None:
    parser.add_argument("spool", type=Path, metavar="SPOOL")
    parser.add_argument("--no-bodies", action="store_true",
                        help="do not read bodies, store and containers (faster)")
    add_json(parser)
    parser.set_defaults(run=run)


def _accepting(parser: argparse.ArgumentParser, run: object) -> None:
    parser.add_argument("--accept-loss", action="store_true",
                        help="go on although something that was acknowledged is lost")
    parser.set_defaults(run=run)


def _uuid(text: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]{32}", text) is None:
        raise argparse.ArgumentTypeError("a uuid is 32 hexadecimal digits")
    return text


def _time(text: str) -> int:
    try:
        return time_ns(text)
    except OmqError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
