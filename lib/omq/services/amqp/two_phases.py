"""The commit of a transaction: by the connection of the reader that holds what it took.

What it took over one link, or over none, ends with what it puts in one unit of work, which is one
sync. Over several links it is several units, of as many native connections: each is prepared, which
makes it in doubt over every crash; then each is committed. The first one has what is put. It is
committed first and backed out last, so it says what was decided: as long as it is in doubt nothing
was, and the transaction is backed out; when it is not there, the rest is committed.

    amqp BEGAN NUMBER PART     the name of a unit in doubt: of which run of the server, the
                                      transaction's number, and the part, 0 for the first

Crash argument: a server that dies before the first commit has told nobody of anything; `resolve`
finds the first part in doubt at the next start and backs out, that part last. One that dies behind
it leaves parts without a first one, which are committed. A part whose answer was lost may be
prepared or not, now or later: all stay in doubt, with the first one, until `resolve`. In between
others may see one queue as it is before the commit and another as after it: AMQP asks for no more.

Errors: those of a unit of work; UnitNotPrepared where a transaction over several links has what is
not persistent or has a delay.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from omq.base.errors import (
    ManagerHung,
    ManagerUnavailable,
    OmqError,
    TimedOut,
    UnitResolved,
    UnitUnknown,
)
from omq.ipc.client.connection import Client
from omq.ipc.client.ending_together import New
from omq.ipc.client.in_doubt import UnitInDoubt
from omq.ipc.client.message import Message
from omq.ipc.client.reader import Reader
from omq.services.amqp.transactions import Transaction

if TYPE_CHECKING:
    from omq.services.amqp.host import Host
    from omq.services.amqp.transacted_deliveries import Enrolling

PREFIX: Final = "amqp"
LOST: Final = (ManagerHung, ManagerUnavailable, TimedOut)
"""An answer did not come: nobody knows what was done."""
_ENDED: Final = (UnitResolved, UnitUnknown)
_began: Final = f"{os.getpid()}.{time.time_ns()}"
_numbers: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one link has of a transaction."""

    link: Enrolling
    messages: Sequence[Message]
    new: Sequence[New]

    def end(self, native: Client, reader: Reader, name: str = "") -> str:
        """In the thread of the link."""
        return native.end_together(reader, self.messages, self.new, name)


async def commit(host: Host, transaction: Transaction) -> None:
    """All of it, or an error and nothing."""
    new: list[New] = [(each.message, each.file) for each in transaction.new]
    parts: list[_Part] = []
    for link, some in transaction.links().items():
        held = [each.given.native for each in some if each.say is None and each.given.native]
        if held:
            parts.append(_Part(link, held, [] if parts else new))
    if len(parts) > 1:
        await _in_two_phases(host, parts)
    elif parts:
        await parts[0].link.call(parts[0].end)
    elif new:
        await host.run(lambda native: native.end_together(None, (), new))


async def _in_two_phases(host: Host, parts: Sequence[_Part]) -> None:
    number = next(_numbers)
    prepared: list[str] = []
    try:
        for at, part in enumerate(parts):
            prepares = partial(part.end, name=f"{PREFIX} {_began} {number} {at}")
            prepared.append(await part.link.call(prepares))
    except LOST:
        raise  # this part may yet be prepared: with the first one gone it would be committed
    except OmqError:
        await host.run(lambda native: _end(native, reversed(prepared), commits=False))
        raise
    await host.run(lambda native: _end(native, prepared, commits=True))


def _end(native: Client, units: Iterable[str], *, commits: bool) -> None:
    """An operator may have been quicker with any of them."""
    for unit in units:
        with suppress(*_ENDED):
            (native.commit_unit if commits else native.back_out_unit)(unit)


def resolve(native: Client) -> int:
    """At the start: end what a server has left in doubt; how many units. Those of other users are
    none of ours, whatever their names."""
    left: dict[tuple[str, str], dict[int, UnitInDoubt]] = {}
    for unit in native.units_in_doubt():
        words = unit.name.split(" ")
        mine = unit.uid in (None, os.geteuid())
        if mine and len(words) == 4 and words[0] == PREFIX and words[3].isdecimal():
            left.setdefault((words[1], words[2]), {})[int(words[3])] = unit
    for parts in left.values():
        # the first one decides; it is backed out last
        _end(native, [parts[at].unit for at in sorted(parts, reverse=True)], commits=0 not in parts)
    return sum(map(len, left.values()))
