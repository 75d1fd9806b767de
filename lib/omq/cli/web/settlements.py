"""Settlements of deliveries, and those of a moment ago with their answers.

An answer to a settlement can be lost. A program that settles the same delivery in the same way once
more gets the same answer, as long as it is remembered: web_hold_s, and web_deliveries_max of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from omq.base.amounts import duration
from omq.base.errors import DeliveryUnknown, LeaseLost, OmqError, ReaderClosed
from omq.cli.web.delivered_message import Taken
from omq.cli.web.queue_desk import Desk
from omq.ipc.client.message import Message
from omq.ipc.client.reader import Reader


@dataclass(frozen=True, slots=True)
class Order:
    """What to do with a delivery. `touches`: it stays in hand. `to`: a name that it is moved to,
    until rights on it have been asked for. `replies`: something is put for whoever asked. `mark`:
    the same for the same words."""

    delivery: str
    carry_out: Callable[[Message], Any]
    touches: bool = False
    to: str = ""
    replies: bool = False
    mark: int = 0

    def moved(self, goal: str | tuple[str, ...]) -> Order:
        """To what the name stands for."""
        return Order(self.delivery, lambda message: message.move(goal), mark=self.mark)


@dataclass(slots=True, eq=False)
class Held:
    """A delivery. `owner`: who alone can settle it, a user or one of his tokens."""

    desk: Desk
    taken: Taken
    owner: str
    until: float


class Settled:
    """Deliveries that were settled, by whom and how. For the event loop."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._of: dict[str, tuple[str, int, float]] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._of)

    def note(self, owner: str, order: Order) -> None:
        """It has happened."""
        while len(self._of) >= self._most:
            del self._of[next(iter(self._of))]
        self._of[order.delivery] = (owner, order.mark, time.monotonic() + self._seconds)

    def knows(self, owner: str, order: Order) -> bool:
        """Whether he said just that of it."""
        found = self._of.get(order.delivery)
        return found is not None and found[:2] == (owner, order.mark)

    def sweep(self, now: float) -> None:
        """What is too long ago."""
        while self._of:
            delivery = next(iter(self._of))
            if self._of[delivery][2] > now:
                break
            del self._of[delivery]


def refused(error: OmqError | None) -> bool:
    """Nothing happened to the message, and the caller may say something else of it."""
    return error is not None and not isinstance(error, LeaseLost | ReaderClosed | DeliveryUnknown)


def saying(some: Sequence[tuple[Order, Held]]) -> Callable[[Reader], list[OmqError | None]]:
    """For the desk's thread: all of them, and the error of each or None."""

    def say(_reader: Reader) -> list[OmqError | None]:
        found: list[OmqError | None] = []
        for order, held in some:
            try:
                order.carry_out(held.taken.message)
                found.append(None)
            except OmqError as error:
                found.append(error)
        return found

    return say


async def fail(desk: Desk, some: Sequence[Taken], hold_s: float) -> None:
    """Their time is over."""

    def say(_reader: Reader) -> None:
        for each in some:
            with suppress(LeaseLost):
                each.message.fail(f"not settled within {duration(hold_s)} (web_hold_s)")

    with suppress(OmqError):  # the desk has ended: the queue manager has them back
        await desk.say(say)
