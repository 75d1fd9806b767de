"""What a link of a channel asks for at its attach, and what it is answered (receiving side).

Errors: BadEntry: what it says of itself makes no sense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omq.base.settings import Settings
from omq.ipc.client import Client
from omq.services.channel import records
from omq.services.channel.greeting import (
    BATCH_BYTES,
    BATCH_MAX,
    BUNDLES,
    CHANNEL,
    LAST,
    MANAGER,
    MARK,
    PING,
    RESET,
    SPOOL,
)
from omq.services.channel.names import Reset, own_name, reset_said
from omq.services.channel.parcel import is_name
from omq.services.channel.records import Record


class BadEntry(Exception):
    """See the module."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`record`: as one that is new; `ping`: it only asks; `order`: what its record is to say."""

    record: Record
    ping: bool
    order: Reset | None

    def found(self, native: Client, most: int) -> tuple[Record, bool]:
        """What is known of it, and whether it was changed for it. RecordLost; those of a unit of
        work."""
        record = records.found(native, self.record, most, make=not self.ping)
        if self.order is None or self.ping or record.reset == self.order.token:
            return record, False
        return records.reset(native, self.record, self.order), True

    def answer(self, record: Record, settings: Settings, spool: str) -> dict[Any, Any]:
        """Properties of the attach."""
        done = {} if self.order is None or self.ping else {RESET: str(self.order)}
        return {LAST: record.batch, MARK: record.mark, MANAGER: own_name(settings),
                BATCH_MAX: settings.channel_batch_messages_max, BATCH_BYTES: _bytes(settings),
                BUNDLES: True, SPOOL: spool, **done}


def _bytes(settings: Settings) -> int:
    """Of the bodies of a batch. Half of what a unit of work holds here: its last message and all
    properties come on top."""
    return min(settings.channel_batch_bytes_max, settings.unit_bytes_max,
               settings.journal_file_bytes // 2) // 2


def entry(said: Mapping[Any, Any], user: str) -> Entry:
    """Of the properties of its attach. BadEntry."""
    name, spool, manager, told = (str(said.get(key, "")) for key in (
        CHANNEL, SPOOL, MANAGER, RESET))
    if not is_name(name) or not is_name(manager) or len(spool) != 32:
        raise BadEntry("a channel says its name, its spool and its manager")
    order = reset_said(told)
    if told and order is None:
        raise BadEntry(f"{RESET} is a number and a token")
    return Entry(Record(name, manager, spool, user), bool(said.get(PING)), order)
