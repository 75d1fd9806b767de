"""omqcheck: audit of index, Message Pool and journal; what is damaged, and which of them is wrong.

Exit code 0: they agree and nothing is damaged; 1: something is wrong, the first of it is printed
(--all: everything); 75: nothing is, but checkpoints were written so fast that whether each file is
what it should be could not be asked (the summary names which). Without a segment pool and journal
alone are checked. --bodies reads every payload and container against its CRC. Nothing is written
and the manager is not asked, so it can run at any time; a busy manager only makes it take its copy
again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from omq.base import clock
from omq.base.config import client_settings
from omq.base.errors import Exit, ManagerUnavailable, OmqError, TimedOut
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.progress import Reading
from omq.core.check.audit import Divergence, Side, audit
from omq.core.check.invariants import check_index, snapshot
from omq.core.index.copies import IndexCopies
from omq.core.index.tables import Tables
from omq.core.index.view import IndexView
from omq.core.judge.cases import Verdict
from omq.core.judge.finding import Found
from omq.core.load.offline_index import OfflineIndex, read_files
from omq.core.look.stored import StoredMessages
from omq.format.index import Counter, IndexFlag, IndexLayout
from omq.storage.segment import AttachedIndex

NAME: Final = "omqcheck"
_PAUSE_S: Final = 0.002  # a group is over when the disk has answered


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    location = existing(options)
    paths = location.paths
    problems: list[dict[str, Any]] = []
    copy = _copy(paths, options.segment, client_settings(location.conf_dir).connect_timeout_s)
    reading = Reading(NAME)
    files = read_files(paths, clock.wall_ns(), reading)
    reading.end()
    problems += [_damage(each) for each in files.judged if each.row.verdict is not Verdict.NORMAL]
    for finding in files.cut:
        say(NAME, f"{finding}: as a cut checkpoint leaves it. The other slot counts, and the next "
            "checkpoint writes this one again")
    if copy is None:
        say(NAME, "no segment: pool and journal alone are checked")
    elif copy.torn:
        say(NAME, "the manager is in the middle of a group of changes, which no client was "
            "promised: pool and journal alone are checked")
    elif copy.not_read:
        say(NAME, "the manager has not read the messages of the pool at its start, as configured "
            "(qm_dont_read_messages_at_start): its index is not compared with the pool")
        problems += _itself(copy)
    else:
        by_itself = list(_itself(copy))
        tables = Tables(copy.buffer, copy.layout)
        with IndexView.of(tables, paths) as view:
            problems += [record(each) for each in audit(paths, view, files)]
        tables.release()
        problems += by_itself
    if options.bodies:
        problems += _bodies(paths, files)
    return _tell(paths.root, problems, files, everything=options.all, as_json=options.json)


def _tell(root: Path, problems: list[dict[str, Any]], files: OfflineIndex, *, everything: bool,
          as_json: bool) -> int:
    for problem in problems if everything else problems[:1]:
        if as_json:
            print_json(problem)
        else:
            sys.stdout.write(problem["text"] + "\n")
    count = sum(problem.get("count", 1) for problem in problems)
    if as_json:
        print_json({"kind": "summary", "lsn": files.lsn, "problems": count,
                    "uncompared": files.uncompared})
    elif problems:
        sys.stdout.write(f"{count} problems, up to LSN {files.lsn}\n")
        if any(problem["kind"] == "damage" for problem in problems):
            sys.stdout.write(f"what it means and what to do: stop the instance, then omqrecover "
                             f"scan {escape(str(root))}\n")
    else:
        sys.stdout.write(f"index, pool and journal agree, up to LSN {files.lsn}\n")
    if files.uncompared:
        say(NAME, "not compared with what the last checkpoint left: "
            f"{' and '.join(files.uncompared)}; checkpoints moved while they were read. "
            "Run it again, or when less is written")
    if problems:
        return Exit.NO
    return Exit.TEMPORARY if files.uncompared else Exit.OK


@dataclass(frozen=True, slots=True)
class Copy:
    """An index, copied. `torn`: its manager died or was stopped within a group. `not_read`: it was
    told not to read the messages of the pool at its start."""

    buffer: memoryview
    layout: IndexLayout
    torn: bool
    not_read: bool = False


def _copy(paths: SpoolPaths, segment: int | None, wait_s: int) -> Copy | None:
    """A copy of the index between two groups; None without a segment."""
    try:
        attached = AttachedIndex(paths, segment)
    except ManagerUnavailable:
        if segment is not None:
            raise
        return None
    try:
        header, size = attached.header, attached.header.size
        moves = attached.alive and clock.process_state(header.pid) not in clock.STOPPED
        deadline = time.monotonic() + wait_s
        copy = snapshot(attached.buffer, size) if moves else memoryview(
            bytes(attached.buffer[:size]))
        while copy is None:
            if time.monotonic() >= deadline:
                raise TimedOut(seconds=wait_s, what="a moment between two groups of the manager")
            time.sleep(_PAUSE_S)
            copy = snapshot(attached.buffer, size)
    finally:
        attached.close()
    version = IndexCopies(copy, header.layout()).counter(Counter.VERSION)
    return Copy(copy, header.layout(), bool(version % 2),
                bool(header.flags & IndexFlag.POOL_NOT_READ))


def _damage(each: Found) -> dict[str, Any]:
    """`count`: the messages whose bodies it is, or one place. What history knows of it omqrecover
    says: here the verdict is `unknown` where that may be everything."""
    finding = each.finding
    text = f"damage: {finding}: {each.case.value}; {each.seen.value}"
    return {"kind": "damage", "text": text, "file": finding.file, "offset": each.offset,
            "record": each.record, "reason": each.reason, "finding": each.case.name.lower(),
            "verdict": each.seen.value, "count": each.count}


def _itself(copy: Copy) -> Iterator[dict[str, Any]]:
    """What the index contradicts by itself (core.check.invariants)."""
    for broken in check_index(copy.buffer, copy.layout):
        yield {"kind": "index", "wrong": "index", "rule": broken.rule.name.lower(),
               "text": f"index is wrong: {broken}"}


def _bodies(paths: SpoolPaths, files: OfflineIndex) -> Iterator[dict[str, Any]]:
    stored = StoredMessages(paths)
    try:
        with IndexView.of(files.tables, paths) as view:
            for message in view.messages():
                try:
                    stored.body(message, stored.read(message))
                except OmqError as error:
                    yield {"kind": "body", "qpool_id": message.qpool, "text": f"body: {error}"}
    finally:
        stored.close()


def record(each: Divergence) -> dict[str, Any]:
    """The JSON object of a divergence: a contract, keys are only added."""
    return {"kind": "divergence", "qpool_id": each.qpool, "wrong": each.wrong.value,
            "why": each.why, "index": _side(each.index), "pool": _side(each.pool),
            "journal": None if each.journal is None else _side(each.journal),
            "last_lsn": each.last_lsn, "text": "\n".join(_lines(each))}


def _side(side: Side) -> dict[str, Any] | None:
    if not side.there:
        return None
    return {"lsn": side.lsn, "size": side.size, "queues": {
        name: dict(zip(("state", "priority", "sequence", "failed_attempts", "retries"), entry,
                       strict=True)) for name, entry in side.queues.items()}}


def _lines(each: Divergence) -> Iterator[str]:
    yield f"{each.wrong.value} is wrong about message {each.qpool}: {each.why}"
    sides = {"index": each.index, "pool": each.pool, "journal": each.journal}
    for name, side in sides.items():
        if side is None:
            yield f"    {name:<8} last frame LSN {each.last_lsn or 'none'}; its PUT is in no file"
        elif not side.there:
            yield f"    {name:<8} does not have it"
        else:
            queues = "; ".join(f"{queue} {entry[0]} priority {entry[1]} sequence {entry[2]} "
                               f"failed {entry[3]} deferred {entry[4]}"
                               for queue, entry in side.queues.items())
            yield f"    {name:<8} LSN {side.lsn}, {side.size} bytes: {queues}"


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(NAME, "Check that index, Message Pool and journal agree.", """
        omqcheck
        omqcheck --all --bodies
        omqcheck --json
        """)
    found.add_argument("--all", action="store_true", help="report every problem, not only the "
                                                          "first")
    found.add_argument("--bodies", action="store_true", help="read every message and check its CRC")
    found.add_argument("--segment", metavar="SHMID", type=int,
                       help="the id of a left-over segment (ipcs -m), when run/ is lost")
    add_json(found)
    return found
