"""What a service of channels is: it says which Mlists a message has, who brings one to its peer,
and what happens to the message when all have ended. Everything around it is the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from omq.base.errors import OmqError
from omq.services.delivery.mlist import Mlist, Wait
from omq.services.delivery.rules import PeerLimit
from omq.services.delivery.worker import Worker
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
    needs to know besides the recipients (of what JSON has)."""

    groups: tuple[Group, ...]
    results: tuple[Any, ...]
    head: dict[str, Any]


class ChannelService(Service):
    """Base of a service whose work is done by channel processes."""

    def plan(self, message: Message) -> Plan | Disposition:
        """What is to be done; or at once what happens to the message."""
        raise NotImplementedError

    def limit_of(self, peer: str) -> PeerLimit | None:
        """What this peer may have; None: as others."""
        del peer
        return None

    def worker(self, channel: str) -> Worker:
        """Made in each process of a channel."""
        raise NotImplementedError

    def untried(self, mlist: Mlist, wait: Wait) -> Sequence[Any]:
        """Results for an Mlist that is not tried now."""
        raise NotImplementedError

    def ended(self, message: Message, results: Sequence[Any], wait: Wait | None
              ) -> Plan | Disposition:
        """Every Mlist has ended. `wait`: the longest of those that were not tried, or whose peer
        was not reached; None where all were tried. Another plan: what came out leads to more work,
        of which the same is asked when it has ended."""
        raise NotImplementedError

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what several processes have reported: its events are one write."""
        with self.context.log.together():
            yield

    def needs_text(self, channel: str) -> bool:
        """Whether the work of a channel is done on the text, not on the recipients alone."""
        del channel
        return True

    def instead(self, disposition: Disposition, message: Message, error: OmqError
                ) -> Disposition | None:
        """The manager refused what was decided. Another way to keep what was done; None: the same
        is tried again, and meanwhile the message stays with this process."""
