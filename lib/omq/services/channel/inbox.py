"""What a channel has brought and what is not put yet: whole batches, one that comes in, fast ones.

Errors: NotAParcel, OutOfStep: the link is to end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from omq.base import fault
from omq.services.channel.parcel import NotAParcel, Parcel, opened
from omq.services.channel.protocol import Receiving


@dataclass(slots=True)
class Work:
    """What is to be put: a whole batch, with the delivery that says so, or (batch 0) fast ones."""

    batch: int = 0
    parcels: list[Parcel] = field(default_factory=list)
    size: int = 0
    delivery: Any = None
    mark: str = ""


class Inbox:
    """Of one link. `work`: in order; the first may be under way."""

    def __init__(self, last: int) -> None:
        self.receiving = Receiving(last)
        self.work: deque[Work] = deque()
        self._coming = Work()

    @property
    def size(self) -> int:
        """Bytes of the batch that comes in."""
        return self._coming.size

    def take(self, delivery: Any, data: bytes, count_max: int) -> None:
        """A transfer."""
        parcels = opened(data, count_max)
        spot, whole = parcels[0].spot, False
        if not spot.batch:
            self._take_fast(delivery, parcels, len(data))
            return
        if spot.count > count_max:
            raise NotAParcel(f"a batch of {spot.count}: over channel_batch_messages_max")
        for parcel in parcels:
            whole = self.receiving.arrived(spot.batch, parcel.spot.sequence, spot.count)
        self._coming.parcels += parcels
        self._coming.size += len(data)
        if not whole:
            delivery.settle()
            fault.point("channel.half_batch")
            return
        self._coming.batch, self._coming.delivery = spot.batch, delivery
        self._coming.mark = spot.mark
        self.work.append(self._coming)
        self._coming = Work()

    def _take_fast(self, delivery: Any, parcels: list[Parcel], size: int) -> None:
        if not delivery.settled:
            raise NotAParcel("it belongs to no batch, and is not settled")
        delivery.settle()
        if len(self.work) < 2 or self.work[-1].batch:
            self.work.append(Work())
        self.work[-1].parcels += parcels
        self.work[-1].size += size
