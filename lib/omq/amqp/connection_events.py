"""What a connection tells: its events, in the order in which they happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from omq.amqp.delivery import Incoming, Outgoing, Run
from omq.amqp.links import Receiver, Sender
from omq.amqp.states import Condition

if TYPE_CHECKING:
    from omq.amqp.session import Session


class Kind(Enum):
    """What happened."""

    OPENED = auto()  # the peer has opened the connection
    BEGUN = auto()  # a session of the peer, or its answer to ours
    ENDED = auto()
    ATTACHED = auto()  # a link of the peer, or its answer to ours
    DETACHED = auto()  # `closed`: for good
    FLOWED = auto()  # credit has changed
    ARRIVED = auto()  # some of a delivery came, or it was aborted
    CAME = auto()  # `run`: whole deliveries, one after the other; their bytes are in it
    SAID = auto()  # deliveries of ours, `said`, have a new state, or are settled
    CLOSED = auto()  # the peer has closed the connection
    FAILED = auto()  # it is over: `condition` was told to the peer


@dataclass(slots=True)
class Event:
    """Something that happened, and to what."""

    kind: Kind
    session: Session | None = None
    link: Receiver | Sender | None = None
    delivery: Incoming | None = None
    run: Run | None = None
    said: Sequence[Outgoing] = ()
    closed: bool = False
    condition: Condition | None = None
