"""omq standby put-again: what a former primary alone has and had not finished (`lost` of omq
standby aside) is put on the primary, under its old id, in the old order.

Each message is put by itself with its id, and only where a queue of its has dedupe_s: that takes
an id once, so the command may be killed and repeated within that time. What is refused is named,
and the rest goes on. The command is journaled first. A delay and a time to live go on.

Exit code 0: all of it; 1: some were refused; 65: what is lost cannot be told in full.

Errors: BadRequest: not a former primary of this instance; those of omq standby aside and of a
connection.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from omq.base.errors import (
    REFUSALS,
    BadRequest,
    BodyUnavailable,
    DuplicateKey,
    Exit,
    KeysFull,
    NoDeduplication,
    OmqError,
)
from omq.base.fault import point
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.cli.common import print_json
from omq.cli.operate.change import connect, outgoing
from omq.cli.operate.change_plan import counted
from omq.core.index.rows import EntryRow
from omq.core.look.look import Source, look
from omq.core.look.stored import StoredMessages
from omq.core.standby.aside import LOST, aside
from omq.format import message as message_format
from omq.format.index import EntryState
from omq.ipc.client.connection import Client
from omq.ipc.client.operator import Operator
from omq.ipc.wire.outgoing import Outgoing
from omq.services.daemon.options import Location
from omq.storage import spool
from omq.storage.instance_file import Role

NAME: Final = "omq"
_OF_ONE: Final = (*REFUSALS, KeysFull, NoDeduplication)
"""Errors of one message, after which the next one is put."""


def put_again(location: Location, source: Path, since: int, reason: str, *, as_json: bool) -> int:
    """Do it; the exit code."""
    info = spool.open_spool(source, any_role=True)
    here = spool.open_spool(location.paths.root, any_role=True)
    if info.uuid != here.uuid or info.paths.root.samefile(here.paths.root):
        raise BadRequest(reason=f"{source} is not a former primary of the instance in "
                         f"{here.paths.root}")
    if info.instance.role is not Role.FORMER:
        raise BadRequest(reason=f"{source} is a {info.instance.role.value}; 'omq standby demote' "
                         "there makes it a former primary")
    found = aside(info.paths, since)
    lost = {line.qpool for line in found.lines if line.state == LOST}
    refused = 0
    with connect(location, NAME) as connection:
        if lost:
            Operator(connection, f"{NAME} standby put-again --from {source} --since {since}").note(
                (), len(lost), reason=reason)
        remembers = cache(partial(_remembers, connection))
        for identity, queues, message in _messages(info.paths, info.uuid, lost):
            state, why = "put", ""
            try:
                if isinstance(message, OmqError):
                    raise message
                if not any(map(remembers, queues)):
                    raise NoDeduplication(queue=", ".join(queues))
                connection.put(queues, outgoing=message)
                point("put_again.after_put")
            except DuplicateKey:  # of a queue with duplicates = refused
                state = "there"
            except OmqError as error:
                if not isinstance(error, _OF_ONE) and error is not message:
                    raise
                state, why, refused = "refused", str(error), refused + 1
            _say(state, identity, queues, why, as_json=as_json)
    if as_json:
        print_json({"since": since, "lost": len(lost), "refused": refused,
                    "complete": found.complete, "why": found.why})
    else:
        sys.stdout.write(f"{counted(len(lost))} that only {escape(str(source))} had, {refused} "
                         "refused\n")
        if not found.complete:
            sys.stdout.write(f"this is not all: {found.why}\n")
    if not found.complete:
        return Exit.DATA
    return Exit.NO if refused else Exit.OK


def _remembers(connection: Client, queue: str) -> bool:
    """Whether a queue takes an id once."""
    return float(connection.queues.show(queue).keys.get("dedupe_s") or 0) > 0


_Found = tuple[str, tuple[str, ...], Outgoing | OmqError]


def _messages(paths: SpoolPaths, uuid: bytes, wanted: set[int]) -> Iterator[_Found]:
    """Id, queues and content of these, in the order in which they were put."""
    if not wanted:
        return
    stored = StoredMessages(paths)
    with look(paths, Source.FILES) as seen:
        names = seen.view.queue_names()
        places: dict[int, list[EntryRow]] = {}
        for row in seen.view.entries():
            if row.message.qpool in wanted:
                places.setdefault(row.message.qpool, []).append(row)
    try:
        for qpool in sorted(wanted):
            rows = places.get(qpool, [])
            identity = message_format.derived_id(uuid, qpool).hex()
            queues = tuple(sorted({row.queue for row in rows}))
            try:
                if not rows:
                    raise BodyUnavailable(qpool_id=qpool, where=str(paths.root),
                                          reason="it is on no queue there")
                yield identity, queues, _made(stored, rows[0], names, identity)
            except OmqError as error:
                yield identity, queues, error
    finally:
        stored.close()


def _made(stored: StoredMessages, row: EntryRow, names: list[str], identity: str) -> Outgoing:
    found = stored.read(row.message)
    made = outgoing(found, stored.body(row.message, found), row.priority, names,
                    expiry_ns=row.message.expiry_ns)
    own = found.descriptor.message_id
    due = row.until_ns - time.time_ns() if row.state is EntryState.DEFERRED else 0
    return replace(made, message_id=own.rstrip(b"\0") if any(own) else identity,
                   delay_s=max(0, due) / 1e9)


def _say(state: str, identity: str, queues: tuple[str, ...], why: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"state": state, "id": identity, "queues": list(queues), "why": why})
    else:
        sys.stdout.write(f"{state:<8} {identity} {escape(', '.join(queues))}"
                         f"{': ' + escape(why, 500) if why else ''}\n")
