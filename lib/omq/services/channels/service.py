"""What a service of channels is: it says which Mlists a message has, who brings one to its peer,
and what becomes of the message when all have ended. Everything around it is the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omq.base.errors import OmqError
from omq.services.channels.mlist import Mlist
from omq.services.channels.worker import Worker
from omq.services.readers.service import Disposition, Message, Service


@dataclass(frozen=True, slots=True)
class Group:
    """The recipients of a message at one peer, and the channel that reaches it."""

    channel: str
    peer: str
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with a message: its groups; results that need no peer; what a worker
    needs to know beside the recipients (of what JSON has)."""

    groups: tuple[Group, ...]
    results: tuple[Any, ...]
    head: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """Why an Mlist was not tried, and for how long; `down`: its peer was not reached lately."""

    seconds: float
    reason: str
    down: bool = False


class ChannelService(Service):
    """Base of a service whose work is done by channel processes."""

    def plan(self, message: Message) -> Plan | Disposition:
        """What is to be done; or at once what becomes of the message."""
        raise NotImplementedError

    def worker(self, channel: str) -> Worker:
        """Made in each process of a channel."""
        raise NotImplementedError

    def untried(self, mlist: Mlist, wait: Wait) -> Sequence[Any]:
        """Results for an Mlist that is not tried now."""
        raise NotImplementedError

    def ended(self, message: Message, results: Sequence[Any], wait: Wait | None) -> Disposition:
        """Every Mlist has ended. `wait`: the longest of those that were not tried, or whose peer
        was not reached; None where all were tried."""
        raise NotImplementedError

    def instead(self, disposition: Disposition, message: Message, error: OmqError
                ) -> Disposition | None:
        """The manager refused what was decided. Another way to keep what was done; None: the same
        is tried again, and meanwhile the message stays with this process."""
