"""Names on channels: of this instance, of the units in doubt, of properties of messages on the way.

A message on a transmission queue says where it goes (`omq.remote.*`), where replies go
(`omq.reply.*`), where it came from first (`omq.from.*`) and how many channels it has crossed.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Final

from omq.base import names
from omq.base.settings import Settings

RECORDS: Final = names.CHANNELS
"""The queue of the records; who may put there may be the other side of a channel."""
HOPS: Final = "omq.hops"
FROM_MANAGER: Final = "omq.from.manager"
FROM_QUEUE: Final = "omq.from.queue"
DEAD: Final = "omq.dead."
_UNIT: Final = re.compile(
    r"channel ([A-Z0-9_.]{1,16}) ([0-9a-f]{32}) ([0-9]{1,18})(?: ([0-9a-f]{16}))?")
MARKS: Final = re.compile(r"[0-9a-f]{16}")
NOBODY: Final = "0" * 32
"""The spool of a peer that is not omq."""


def own_name(settings: Settings) -> str:
    """What others call this instance."""
    if settings.manager_name:
        return settings.manager_name
    label = socket.gethostname().partition(".")[0].upper()
    return re.sub(r"[^A-Z0-9_.]", "_", label)[:16] or "OMQ"


@dataclass(frozen=True, slots=True)
class Reset:
    """An order of people: the number of the last batch that is there is `batch` from now on, and
    what it was is forgotten. `token`, 16 hexadecimal digits by chance, tells it from others: it is
    carried out once, however often it is sent."""

    batch: int
    token: str

    def __str__(self) -> str:
        return f"{self.batch} {self.token}"


RESET: Final = re.compile(r"([0-9]{1,17}) ([0-9a-f]{16})")


def reset_said(text: str) -> Reset | None:
    """What a text says; None: it is none."""
    found = RESET.fullmatch(text)
    return None if found is None else Reset(int(found[1]), found[2])


@dataclass(frozen=True, slots=True)
class BatchName:
    """The name of a unit in doubt: whose batch it is, for which spool it was made, and its mark (16
    hexadecimal digits by chance): a copy of our spool has the same numbers, and other marks."""

    channel: str
    spool: str
    number: int
    mark: str = ""

    def __str__(self) -> str:
        return f"channel {self.channel} {self.spool} {self.number} {self.mark}".rstrip()


def batch_name(name: str) -> BatchName | None:
    """What the name of a unit says; None: it is not a channel's."""
    found = _UNIT.fullmatch(name)
    return None if found is None else BatchName(
        found[1], found[2], int(found[3]), found[4] or "")
