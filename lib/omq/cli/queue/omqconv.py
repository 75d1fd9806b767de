"""omqconv: puts the messages of an old-style `queues/` directory on the queues of this instance.

For each NAME.qua / NAME.qub (omq.format.old_queue) every message is logged, read from its container
and put. A message on several old queues becomes one message on several queues. What cannot be
converted is logged with its reason and stays where it is: nothing in the old directory is changed
or removed, except that a flag file NAME.R6 appears when a queue is through. It lists what was put
and what could not be, so a second run puts nothing, and names what is left. `omqdump`, option O,
puts a message that omqconv could not.

In the middle of a crash: cli.queue.conversion_log keeps what was put, and which message was about
to be. That one has an id made of its item reference; the journal says whether it was born. When the
journal does not reach back so far it is left and told, never put a second time.

Errors: InputUnreadable, ManagerUnavailable, and those of a put for the first message that shows
that no put works at all (NoAuthority, SpoolFull). Exit code 1 when a message was left,
in this run or an earlier one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from omq.base.clock import iso_time, wall_ns
from omq.base.errors import Exit, InputUnreadable, NeedsRepair, NoAuthority, OmqError, SpoolFull
from omq.base.limits import BODY_BYTES_MAX, PRIORITY_LOW, PRIORITY_NORMAL, PRIORITY_URGENT
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.cli.common import existing, tool_parser
from omq.cli.operate.change import connect
from omq.cli.queue.conversion_log import NAME as CONVERSION_LOG
from omq.cli.queue.conversion_log import ConversionLog
from omq.core.history.born import was_born
from omq.core.index.view import IndexView
from omq.format.findings import Finding
from omq.format.message import id_hash
from omq.format.old_queue import OldMessage, decode_header, decode_record
from omq.ipc.client import Client, Outgoing
from omq.ipc.operator import Operator
from omq.storage import containers
from omq.storage.files import read_file, write_new_file
from omq.storage.spool import open_spool

NAME: Final = "omqconv"
FLAG: Final = ".R6"
_FILE_BYTES_MAX: Final = 64 << 20
_PRIORITIES: Final = {0: PRIORITY_NORMAL, 1: PRIORITY_LOW, 2: PRIORITY_URGENT}


@dataclass(slots=True)
class Old:
    """One old queue. `problems`: what of it cannot be read; `lost`: messages among that, 1 when
    neither of its files can be read."""

    name: str
    readable: bool = True
    lost: int = 0
    messages: list[OldMessage] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    location = existing(options)
    folder = (options.queues or location.paths.root / "queues").absolute()
    names = _names(folder)
    done = {name: _flagged(folder, name) for name in names}
    for name in names:
        if done[name] is not None:
            _log(f'Queue "{name}" is already upgraded.')
    failed = sum([_tell_left(folder, name) for name in names if done[name] is not None])
    todo = [name for name in names if done[name] is None]
    if not todo:
        return Exit.NO if failed else Exit.OK
    olds = [_read(folder, name) for name in todo]
    put = {ref: queues for listed in done.values() for ref, queues in (listed or {}).items()}
    with connect(location, NAME) as connection, \
            ConversionLog(folder, open_spool(location.paths.root).uuid) as log:
        count = sum(len(old.messages) for old in olds)
        lsn = Operator(connection, f"{NAME} {folder}").note((), count, reason=options.reason)
        log.begin(lsn)
        _resolve(location.paths, log)
        log.put |= put
        left = _convert(connection, SpoolPaths(options.data or folder.parent), folder, olds, log)
        if all((folder / (name + FLAG)).exists() for name in names):
            log.remove()
    return Exit.NO if left or failed else Exit.OK


def _tell_left(folder: Path, name: str) -> int:
    """Name the messages that an earlier run could not convert; how many there are."""
    count = 0
    for record in _flag_lines(folder / (name + FLAG)):
        if "left" in record:
            count += 1
            _log(f'Message "{escape(str(record["left"]), 64)}" of queue "{name}" was not upgraded: '
                 f"{escape(str(record.get('why', '')), 500)}")
    if count:
        _log(f"  omqdump's O opens each, p puts it; then take its line out of {name}{FLAG}")
    return count


def _flag_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a flag file. One that a crash cut is left out."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record


def _resolve(paths: SpoolPaths, log: ConversionLog) -> None:
    """The message that a run was about to put when it was cut."""
    if log.doubt is None:
        return
    ref = log.doubt[0]
    born = was_born(paths, id_hash(_identity(ref)), log.lsn)
    if born is None:
        raise NeedsRepair(
            path=escape(ref), reason="the journal does not reach back to the run that was cut, so "
            f"nobody knows whether it was put; say it in {CONVERSION_LOG}",
            command='a line {"done": ITEM_REF} or {"left": ITEM_REF} at its end')
    if born:
        log.was_put()
        _log(f'Message "{escape(ref)}" was upgraded by a run that was cut')
    else:
        log.was_left()


def _identity(ref: str) -> bytes:
    return b"OMQC" + blake2b(ref.encode(), digest_size=20).digest()


def _log(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _names(folder: Path) -> list[str]:
    try:
        found = {path.stem for path in folder.iterdir() if path.suffix in (".qua", ".qub")}
    except OSError as error:
        raise InputUnreadable(file=escape(str(folder)), reason=error.strerror) from error
    return sorted(found)


def _flagged(folder: Path, name: str) -> dict[str, list[str]] | None:
    """What a flag file says was put: item reference -> queues; None when there is none."""
    path = folder / (name + FLAG)
    if not path.exists():
        return None
    # A line cut by a crash is left out: the id of the message keeps it from being put twice.
    return {str(record["item_ref"]): [str(each) for each in record["queues"]]
            for record in _flag_lines(path) if isinstance(record.get("queues"), list)
            and "item_ref" in record}


def _read(folder: Path, name: str) -> Old:
    old = Old(name)
    copies = [_copy(folder / (name + suffix), old) for suffix in (".qua", ".qub")]
    if not any(data for data, _ in copies):
        old.readable, old.lost = False, 1
    for number in range(max(count for _, count in copies)):
        found = [decode_record(data, number) for data, count in copies if number < count]
        good = [each for each in found if not isinstance(each, Finding)]
        if not good:
            old.problems.append(f"record {number}: {found[0]}")
            old.lost += 1
        elif good[0] is not None:
            old.messages.append(good[0])
    return old


def _copy(path: Path, old: Old) -> tuple[bytes, int]:
    try:
        data = read_file(path, _FILE_BYTES_MAX)
    except (FileNotFoundError, OmqError) as error:
        old.problems.append(f"{path.name}: {escape(str(error))}")
        return b"", 0
    count = decode_header(data)
    if isinstance(count, Finding):
        old.problems.append(f"{path.name}: {count.reason}")
        return b"", 0
    return data, count


def _convert(connection: Client, source: SpoolPaths, folder: Path, olds: list[Old],
             log: ConversionLog) -> int:
    """All queues; how many messages were left."""
    queues: dict[str, list[str]] = {}
    for old in olds:
        for message in old.messages:
            queues.setdefault(message.item_ref, []).append(old.name)
    left = 0
    _log("Starting to upgrade messages on queues to new format.")
    for old in olds:
        _log(f'Starting to upgrade queue "{old.name}"')
        for problem in old.problems:
            _log(f"  {problem}")
        lines, failed = _queue(connection, source, old, queues, log)
        left += failed + old.lost
        if not old.readable:
            continue
        lines += [json.dumps({"left": "a record", "why": problem}) for problem in old.problems
                  if problem.startswith("record ")]
        put = sum('"item_ref"' in line for line in lines)
        head = f"{old.name} upgraded at {iso_time(wall_ns())}: {put} messages, {failed} left"
        text = "\n".join([head, *lines, ""])
        write_new_file(folder / (old.name + FLAG), [text.encode()]).close()
        _log("Finished Queue.")
    return left


def _queue(connection: Client, source: SpoolPaths, old: Old, queues: dict[str, list[str]],
           log: ConversionLog) -> tuple[list[str], int]:
    lines, failed = [], 0
    for message in old.messages:
        ref = escape(message.item_ref)
        known = log.put.get(message.item_ref, [])
        if old.name in known:
            first = known[0] == old.name  # its flag file names it
            _log(f'Message "{ref}" was upgraded {"before" if first else "with another queue"}')
            lines += [_line(message.item_ref, known)] if first else []
            continue
        _log(f'Upgrading message "{ref}"')
        log.will_put(message.item_ref, queues[message.item_ref])
        try:
            _put(connection, source, message, queues[message.item_ref])
        except (NoAuthority, SpoolFull):
            raise
        except (OmqError, FileNotFoundError) as error:
            failed += 1
            log.was_left()
            _log(f"Message not upgraded, it stays where it is: {escape(str(error), 500)}")
            lines.append(json.dumps({"left": message.item_ref, "why": str(error)[:500]}))
            continue
        log.was_put()
        lines.append(_line(message.item_ref, queues[message.item_ref]))
        _log("Message upgraded correctly")
    return lines, failed


def _line(ref: str, queues: list[str]) -> str:
    return json.dumps({"item_ref": ref, "queues": queues})


def _put(connection: Client, source: SpoolPaths, message: OldMessage, queues: list[str]
         ) -> None:
    identity = _identity(message.item_ref)
    with IndexView.attach(connection.paths) as view:
        if view.with_key(id_hash(identity)):
            return  # it waits already: put by a run whose files are lost
    file = containers.open_item(source, message.item_ref)
    try:
        body = file.read(BODY_BYTES_MAX, 0)
    finally:
        file.close()
    connection.put(queues, outgoing=Outgoing(
        body=body, queues=tuple(queues), message_id=identity,
        priority=_PRIORITIES.get(message.priority, PRIORITY_NORMAL),
        properties={"omqconv.item_ref": message.item_ref,
                    "omqconv.submitted": str(message.submitted)},
        at=datetime.fromtimestamp(message.deferred, UTC) if message.deferred else None))


def parser() -> argparse.ArgumentParser:
    """Its options."""
    found = tool_parser(NAME, "Convert the messages of an old-style queues directory.", """
        omqconv
        omqconv --queues /old/queues --data /old --reason 'upgrade'
        """)
    found.add_argument("--queues", metavar="DIR", type=Path,
                       help="the directory with NAME.qua and NAME.qub (SPOOL/queues)")
    found.add_argument("--data", metavar="DIR", type=Path,
                       help="where the data/ of its item references lies (its parent)")
    found.add_argument("--reason", metavar="TEXT", default="", help="why; kept in the journal")
    return found
