"""omqconv: puts the messages of an old-style `queues/` directory on the queues of this instance.

For each NAME.qua / NAME.qub (omq.format.old_queue) every message is logged, read from its container
and put. A message on several old queues becomes one message on several queues. What cannot be
converted is logged with its reason and stays where it is: nothing in the old directory is changed
or removed, except that a flag file NAME.R6 appears when a queue is through. It lists what was put
and what could not be, so a second run puts nothing, and names what is left. `omqdump`, option O,
puts a message that omqconv could not.

Messages are put BATCH_MESSAGES at a time, but for those with a delay or several queues: a million
takes minutes, not hours.

In the middle of a crash: cli.queue.conversion_log keeps what was put, and which messages were about
to be. Those have ids made of their item references; the journal says which of them were born. When
the journal does not reach back so far they are left and told, never put a second time. The same
where a put fails: what was born of its batch is put, and only the rest is tried by itself.

Errors: InputUnreadable, ManagerUnavailable, and those of a put for the first message that shows
that no put works at all (NoAuthority, SpoolFull). Exit code 1 when a message was left,
in this run or an earlier one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from omq.base.clock import iso_time, wall_ns
from omq.base.errors import Exit, OmqError
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.cli.common import existing, tool_parser
from omq.cli.operate.change import connect
from omq.cli.operate.old_queues import FLAG, Old, flag_lines, flagged, names, read
from omq.cli.queue.conversion import Putting, line, outgoing, settle, tell
from omq.cli.queue.conversion_log import ConversionLog
from omq.ipc.client.connection import Client, Outgoing
from omq.ipc.client.operator import Operator
from omq.storage.files import write_new_file
from omq.storage.spool import open_spool

NAME: Final = "omqconv"
BATCH_MESSAGES: Final = 500
BATCH_BYTES: Final = 1 << 20


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    location = existing(options)
    folder = (options.queues or location.paths.root / "queues").absolute()
    listed = names(folder)
    done = {name: flagged(folder, name) for name in listed}
    for name in listed:
        if done[name] is not None:
            tell(f'Queue "{name}" is already upgraded.')
    failed = sum([_tell_left(folder, name) for name in listed if done[name] is not None])
    todo = [name for name in listed if done[name] is None]
    if not todo:
        return Exit.NO if failed else Exit.OK
    olds = [read(folder, name) for name in todo]
    put = {ref: queues for known in done.values() for ref, queues in (known or {}).items()}
    with connect(location, NAME) as connection, \
            ConversionLog(folder, open_spool(location.paths.root).uuid) as log:
        count = sum(len(old.messages) for old in olds)
        lsn = Operator(connection, f"{NAME} {folder}").note((), count, reason=options.reason)
        log.begin(lsn)
        _resolve(location.paths, log)
        log.put |= put
        left = _convert(connection, SpoolPaths(options.data or folder.parent), folder, olds, log)
        if all((folder / (name + FLAG)).exists() for name in listed):
            log.remove()
    return Exit.NO if left or failed else Exit.OK


def _tell_left(folder: Path, name: str) -> int:
    """Name the messages that an earlier run could not convert; how many there are."""
    count = 0
    for record in flag_lines(folder / (name + FLAG)):
        if "left" in record:
            count += 1
            tell(f'Message "{escape(str(record["left"]), 64)}" of queue "{name}" was not upgraded: '
                 f"{escape(str(record.get('why', '')), 500)}")
    if count:
        tell(f"  omqdump's O opens each, p puts it; then take its line out of {name}{FLAG}")
    return count


def _resolve(paths: SpoolPaths, log: ConversionLog) -> None:
    """The messages that a run was about to put when it was cut."""
    for ref in settle(paths, log):
        tell(f'Message "{escape(ref)}" was upgraded by a run that was cut')


def _convert(connection: Client, source: SpoolPaths, folder: Path, olds: list[Old],
             log: ConversionLog) -> int:
    """All queues; how many messages were left."""
    queues: dict[str, list[str]] = {}
    for old in olds:
        for message in old.messages:
            queues.setdefault(message.item_ref, []).append(old.name)
    left = 0
    tell("Starting to upgrade messages on queues to new format.")
    for old in olds:
        tell(f'Starting to upgrade queue "{old.name}"')
        for problem in old.problems:
            tell(f"  {problem}")
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
        tell("Finished Queue.")
    return left


def _queue(connection: Client, source: SpoolPaths, old: Old, queues: dict[str, list[str]],
           log: ConversionLog) -> tuple[list[str], int]:
    lines, failed = list[str](), 0
    batch, size = list[Outgoing](), 0
    put = Putting(connection, log, old.name, lines)
    for message in old.messages:
        ref, on = escape(message.item_ref), queues[message.item_ref]
        known = log.put.get(message.item_ref, [])
        if old.name in known:
            first = known[0] == old.name  # its flag file names it
            tell(f'Message "{ref}" was upgraded {"before" if first else "with another queue"}')
            lines += [line(message.item_ref, known)] if first else []
            continue
        try:
            made = outgoing(source, message, on)
        except (OmqError, FileNotFoundError) as error:
            failed += put.left(message.item_ref, error)
            continue
        alone = made.at is not None or len(on) > 1
        if batch and (alone or len(batch) == BATCH_MESSAGES or size + len(made.body) > BATCH_BYTES):
            failed += put.together(batch)
            batch, size = [], 0
        if alone:
            failed += put.together([made])
        else:
            batch, size = [*batch, made], size + len(made.body)
    failed += put.together(batch)
    return lines, failed


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
    found.add_argument("--reason", metavar="TEXT", default="", help="the reason, recorded in the "
                                                                    "journal")
    return found
