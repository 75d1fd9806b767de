"""Where what comes over a channel goes here: asked once a batch for each address in it.

What a name stands for is asked anew when that was `channel_names_ms` ago, so a queue that was
defined, altered or pointed elsewhere counts for the batches that come that much later; a batch is
not put on queues that have gone (QueueGone), whatever was known of them.

Errors: none of its own; what a queue manager answers is the reason of a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from omq.base.errors import OmqError, UnknownQueue
from omq.base.settings import Settings
from omq.format.definition import Kind
from omq.ipc.client.connection import Client
from omq.ipc.client.remote_header import REMOTE_MANAGER, REMOTE_QUEUE, REPLY_MANAGER, REPLY_QUEUE
from omq.services.channel.names import RECORDS, own_name
from omq.services.channel.parcel import Address, is_name


@dataclass(slots=True)
class Terms:
    """How messages of a channel are put. `allows`: whether its user may put on these queues;
    `refused`: queues that did not take theirs, and why; `dead`: the reasons of dead letters, for
    the log."""

    settings: Settings
    allows: Callable[[tuple[str, ...]], bool]
    refused: dict[str, str] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Destination:
    """To one address. `why`: it is none; `refused`: it is one that is closed; `properties`: what
    those that go there say besides."""

    queue: str = ""
    why: str = ""
    refused: str = ""
    properties: dict[str, str] = field(default_factory=dict)


class Destinations:
    """See the module; of one batch."""

    def __init__(self, native: Client, terms: Terms) -> None:
        self.native, self.terms = native, terms
        self._own = own_name(terms.settings)
        self._found: dict[Address, Destination] = {}
        self._back: dict[Address, tuple[str, dict[str, str]]] = {}
        native.forget(terms.settings.channel_names_ms / 1000)

    def of(self, to: Address) -> Destination:
        found = self._found.get(to)
        if found is None:
            found = self._found[to] = self._way(to)
        return found

    def _way(self, to: Address) -> Destination:
        native, terms = self.native, self.terms
        properties: dict[str, str] = {}
        if to.manager in ("", self._own):
            if to.queue == RECORDS or not is_name(to.queue):
                return Destination(why="it is for no queue")
            queue = to.queue
            try:
                holding = native.resolved(queue)
            except OmqError as error:
                return Destination(why=str(error))
            if RECORDS in holding:  # by another name
                return Destination(why="it is for no queue")
        else:
            queue = transmission(native, to.manager, terms.settings)
            if not queue:
                return Destination(why=f"no queue manager {to.manager} is known")
            holding = (queue,)
            properties = {REMOTE_MANAGER: to.manager, REMOTE_QUEUE: to.queue}
        refused = next((terms.refused[name] for name in (queue, *holding)
                        if name in terms.refused), "")
        if not refused and not terms.allows(holding):
            refused = f"no right to put on {queue}"
        return Destination(queue, "", refused, properties)

    def back(self, reply: Address) -> tuple[str, dict[str, str]]:
        """`reply_to` of a message whose reply goes there, and what it says besides: the first queue
        on this way."""
        found = self._back.get(reply)
        if found is None:
            found = self._back[reply] = self._way_back(reply)
        return found

    def _way_back(self, reply: Address) -> tuple[str, dict[str, str]]:
        if not reply.queue or not is_name(reply.queue):
            return "", {}
        if reply.manager == self._own:
            return (reply.queue if self._there(reply.queue) else ""), {}
        return transmission(self.native, reply.manager, self.terms.settings), {
            REPLY_MANAGER: reply.manager, REPLY_QUEUE: reply.queue}

    def _there(self, queue: str) -> bool:
        try:
            self.native.queue_number(queue)
        except OmqError:
            return False
        return True


def transmission(native: Client, manager: str, settings: Settings) -> str:
    """The transmission queue to a queue manager; "": there is none."""
    for name in (manager, settings.default_transmission):
        if name and is_name(name):
            try:
                if native.queues.show(name).kind == Kind.TRANSMISSION.value:
                    return name
            except UnknownQueue:
                continue
    return ""
