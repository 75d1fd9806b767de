"""How omqconv puts old messages: many at a time, each once.

Before a put the messages are in the conversion log; after it what became of them is. What fails
with its batch is tried by itself, once the journal has said what was born of that batch.

Errors: those of a put that show that no put works (NoAuthority, SpoolFull), or that nobody knows
what became of it (ManagerUnavailable, TimedOut): the next run asks the journal; NeedsRepair.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

import numpy as np

from omq.base.amounts import counted
from omq.base.errors import (
    ManagerUnavailable,
    NeedsRepair,
    NoAuthority,
    OmqError,
    SpoolFull,
    TimedOut,
)
from omq.base.limits import BODY_BYTES_MAX, PRIORITY_LOW, PRIORITY_NORMAL, PRIORITY_URGENT
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.cli.queue.conversion_log import NAME as CONVERSION_LOG
from omq.cli.queue.conversion_log import ConversionLog
from omq.core.history.born import born_of
from omq.core.index.view import IndexView
from omq.format.message import id_hash
from omq.format.old_queue import OldMessage
from omq.ipc.client.connection import Client, Outgoing
from omq.storage import containers

_REF: Final = "omqconv.item_ref"
_PRIORITIES: Final = {0: PRIORITY_NORMAL, 1: PRIORITY_LOW, 2: PRIORITY_URGENT}


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _identity(ref: str) -> bytes:
    return b"OMQC" + blake2b(ref.encode(), digest_size=20).digest()


def settle(paths: SpoolPaths, log: ConversionLog) -> list[str]:
    """Ask the journal which of those in doubt were put: these."""
    if not log.doubt:
        return []
    keys = {ref: id_hash(_identity(ref)) for ref in log.doubt}
    born = born_of(paths, keys.values(), log.lsn)
    if born is None:
        first, more = escape(next(iter(keys))), len(keys) - 1
        raise NeedsRepair(
            path=f"{first} and {counted(more, 'other')}" if more else first,
            reason="the journal does not reach back to the run that was cut, so "
            f"it is not known whether it was put; note it in {CONVERSION_LOG}",
            command='a line {"done": ITEM_REF} or {"left": ITEM_REF} at its end, for each')
    put = [ref for ref, key in keys.items() if key in born]
    for ref, key in keys.items():
        (log.was_put if key in born else log.was_left)(ref)
    return put


def outgoing(source: SpoolPaths, message: OldMessage, queues: list[str]) -> Outgoing:
    """Its body is read: OmqError, FileNotFoundError where that cannot be."""
    file = containers.open_item(source, message.item_ref)
    try:
        body = file.read(BODY_BYTES_MAX, 0)
    finally:
        file.close()
    return Outgoing(
        body=body, queues=tuple(queues), message_id=_identity(message.item_ref),
        priority=_PRIORITIES.get(message.priority, PRIORITY_NORMAL),
        properties={_REF: message.item_ref, "omqconv.submitted": str(message.submitted)},
        at=datetime.fromtimestamp(message.deferred, UTC) if message.deferred else None)


@dataclass(slots=True)
class Putting:
    """Puts the messages of one old queue; `lines`: of its flag file."""

    connection: Client
    log: ConversionLog
    name: str
    lines: list[str]

    def together(self, batch: list[Outgoing]) -> int:
        """All or one by one; how many could not be put."""
        if not batch:
            return 0
        self.log.will_put({_ref(each): list(each.queues) for each in batch})
        batch = self._new(batch)
        try:
            if len(batch) == 1:
                self.connection.put(batch[0].queues, outgoing=batch[0])
            elif batch:
                self.connection.put_many(self.name, batch)
        except (NoAuthority, SpoolFull, ManagerUnavailable, TimedOut):
            raise  # it is in doubt: the next run asks the journal
        except OmqError as error:
            return self._apart(batch, error)
        for each in batch:
            self._done(_ref(each))
        return 0

    def _new(self, batch: list[Outgoing]) -> list[Outgoing]:
        """Without those that wait already: put by a run whose files are lost."""
        keys = {id_hash(_identity(_ref(each))): each for each in batch}
        wanted = np.array(sorted(keys), dtype=np.uint64)
        with IndexView.attach(self.connection.paths) as view:
            (there,) = view.copies.columns_where(
                ("m_key",), lambda column: np.isin(column("m_key"), wanted)
                & (column("m_qpool") != 0))
        waiting = set(there.tolist())
        for key, each in keys.items():
            if key in waiting:
                self._done(_ref(each))
        return [each for key, each in keys.items() if key not in waiting]

    def _apart(self, batch: list[Outgoing], error: OmqError) -> int:
        """One of them cannot be put: what was put all the same is, the others are tried alone."""
        if len(batch) == 1:
            self.log.was_left(_ref(batch[0]))
            return self.left(_ref(batch[0]), error)
        put = set(settle(self.connection.paths, self.log))
        for ref in put:
            self._done(ref)
        return sum(self.together([each]) for each in batch if _ref(each) not in put)

    def _done(self, ref: str) -> None:
        if ref in self.log.doubt:
            self.log.was_put(ref)
        tell(f'Upgrading message "{escape(ref)}"')
        tell("Message upgraded correctly")
        self.lines.append(line(ref, self.log.put[ref]))

    def left(self, ref: str, error: Exception) -> int:
        """It stays where it is: 1."""
        tell(f'Upgrading message "{escape(ref)}"')
        tell(f"Message not upgraded, it stays where it is: {escape(str(error), 500)}")
        self.lines.append(json.dumps({"left": ref, "why": str(error)[:500]}))
        return 1


def _ref(made: Outgoing) -> str:
    return str(made.properties[_REF])


def line(ref: str, queues: list[str]) -> str:
    return json.dumps({"item_ref": ref, "queues": queues})
