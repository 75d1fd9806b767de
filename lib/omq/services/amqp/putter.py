"""Puts what links have received: a few threads with a native connection each.

A batch of one link goes to its queues in order; messages that surely fit into one request go
together and share its sync: all of them happen, or none.

Invariants: 1. what is reported as put is on the disk (or was sent settled); 2. a batch stops at the
first message that its queue does not take now, so that order holds; 3. a batch of which nobody
knows what became of it is reported as in doubt, never as refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from omq.base.errors import (
    IndexFull,
    ManagerHung,
    ManagerUnavailable,
    OmqError,
    PutInhibited,
    QueueFull,
    ShuttingDown,
    SpoolFull,
    TimedOut,
)
from omq.ipc.client.connection import Client
from omq.ipc.client.ending_together import New
from omq.services.amqp.untranslatable import Untranslatable

TOGETHER_BYTES: Final = 4096
"""A larger body gains nothing by company; below it none goes into a container."""
HEAD_BYTES: Final = 768
"""More than a message takes in a request besides its body and its properties."""
_LATER: Final = (QueueFull, PutInhibited, SpoolFull, IndexFull)
_IN_DOUBT: Final = (ManagerHung, ManagerUnavailable, TimedOut)


class Fate(Enum):
    """What became of a message."""

    PUT = auto()
    LATER = auto()  # not now: the same again, and those after it
    REFUSED = auto()
    IN_DOUBT = auto()


@dataclass(frozen=True, slots=True)
class PutResult:
    """The fate of one, in the order of the batch; a batch may have fewer than it was given."""

    fate: Fate
    error: OmqError | Untranslatable | None = None


def of_each(told: Sequence[PutResult], counts: Iterable[int]) -> Iterator[list[PutResult]]:
    """The fates of batches with so many messages that were put together, batch by batch."""
    at = 0
    for count in counts:
        own = list(told[at : at + count])
        if not own and told[-1].fate is Fate.LATER:
            own = [told[-1]]  # its turn did not come, and it would not be taken either
        at += count
        yield own


def put_batch(native: Client, queues: tuple[str, ...], batch: Sequence[New]) -> list[PutResult]:
    """In a thread of the putters."""
    told: list[PutResult] = []
    at = 0
    while at < len(batch):
        count = _together(native, queues, batch, at)
        told += _put(native, queues, batch[at : at + count])
        if told[-1].fate in (Fate.LATER, Fate.IN_DOUBT):
            break
        at += count
    return told


def _together(native: Client, queues: tuple[str, ...], batch: Sequence[New], at: int) -> int:
    """How many from `at` on go by one request."""
    size = count = 0
    properties, beside = None, 0
    for each, file in batch[at:]:
        if each.properties is not properties:  # many share them
            properties = each.properties
            beside = HEAD_BYTES + sum(
                8 + 4 * (len(name) + len(text)) for name, text in properties.items())
        size += beside + len(each.body)
        alone = len(each.body) > TOGETHER_BYTES or each.delay_s or len(queues) > 1
        if alone or file is not None or size > native.room:
            break
        count += 1
    return max(1, count)


def _put(native: Client, queues: tuple[str, ...], some: Sequence[New]) -> list[PutResult]:
    message, file = some[0]
    try:
        if file is not None:
            file.seek(0)
            native.put_pieces((), file, replace(message, queues=queues))
        elif len(some) == 1:
            native.put((), outgoing=replace(message, queues=queues))
        else:
            native.put_many(queues[0], [each for each, _ in some])
    except OmqError as error:
        return refused(native, queues, some, error)
    return [PutResult(Fate.PUT)] * len(some)


def refused(native: Client, queues: tuple[str, ...], some: Sequence[New], error: OmqError
            ) -> list[PutResult]:
    """The fates of messages whose request has ended so."""
    if isinstance(error, ShuttingDown) or (len(some) == 1 and isinstance(error, _LATER)):
        return [PutResult(Fate.LATER, error)]
    if isinstance(error, _IN_DOUBT):
        return [PutResult(Fate.IN_DOUBT, error)] * len(some)
    if len(some) == 1:
        return [PutResult(Fate.REFUSED, error)]
    # One of them was refused, so none happened: each by itself.
    told: list[PutResult] = []
    for each in some:
        told += _put(native, queues, [each])
        if told[-1].fate in (Fate.LATER, Fate.IN_DOUBT):
            break
    return told
