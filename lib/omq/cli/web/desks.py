"""What programs take over the REST interface: gets that wait, and deliveries that are not settled.

A program names a delivery, not a connection, so omq-web keeps the message for it, at the desk of
its queue (desk.py). Invariants: 1. a delivery is settled by its caller alone, once; 2. what is not
settled or touched in web_hold_s is a failed attempt of its message, as with a lease; what is in
hand when this process ends in order goes back untouched; 3. at most web_polls_max gets wait,
web_deliveries_max deliveries are in hand, web_holders_max queues are read; one user has his share
of each.

Errors: ConsoleBusy, DeliveryUnknown, and those of a reader. For the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from omq.base.amounts import duration
from omq.base.errors import ConsoleBusy, DeliveryUnknown, LeaseLost, OmqError, ReaderClosed
from omq.base.settings import Settings
from omq.cli.web.budget import Budget
from omq.cli.web.desk import Desk, Taken
from omq.ipc.client import Client
from omq.ipc.message import Message
from omq.ipc.reader import Reader

WAIT_MAX_S: Final = 20.0
COUNT_MAX: Final = 1000
IDLE_S: Final = 5.0
"""A desk at which nobody waits and of which nothing is in hand is closed after it."""
_JOIN_S: Final = 5.0


@dataclass(slots=True, eq=False)
class Held:
    """A delivery."""

    desk: Desk
    taken: Taken
    owner: str
    until: float


@dataclass(frozen=True, slots=True)
class Order:
    """What is said of a delivery. `touches`: it stays in hand. `to`: a name that it is moved to,
    until rights on it have been asked for."""

    delivery: str
    carry_out: Callable[[Message], Any]
    touches: bool = False
    to: str = ""

    def moved(self, goal: str | tuple[str, ...]) -> Order:
        """To what the name stands for."""
        return Order(self.delivery, lambda message: message.move(goal))


class Desks:
    """See the module."""

    def __init__(self, settings: Settings, connect: Callable[[], Client], budget: Budget) -> None:
        self._settings, self._connect, self._budget = settings, connect, budget
        self._of: dict[str, Desk] = {}  # by queue
        self._uses: dict[Desk, Counter[str]] = {}  # of each user: gets that wait, deliveries
        self._idle: dict[Desk, float] = {}  # since when
        self._polls, self._in_hand = Counter[str](), Counter[str]()
        self._held: dict[str, Held] = {}  # by delivery, in the order in which their time is over
        self._ends: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._of)

    @property
    def figures(self) -> tuple[int, int, int]:
        """Desks, gets that wait, deliveries in hand."""
        return len(self._of), self._polls.total(), len(self._held)

    async def get(self, user: str, owner: str, queue: str, count: int, wait_s: float
                  ) -> list[Taken]:
        """Up to so many messages; each is in hand from now on. `owner`: who alone can settle them,
        a user or one of his tokens. Cancelled: what came goes back."""
        settings = self._settings
        self._room(self._polls.total(), settings.web_polls_max, "web_polls_max")
        self._room(self._polls[user], settings.web_user_polls_max, "web_user_polls_max")
        desk = self._desk(queue, user)
        self._polls[user] += 1
        self._use(desk, user)
        try:
            async with asyncio.timeout(wait_s or None):
                found = await desk.get(user, self._most(user, count), now=not wait_s)
        except TimeoutError:
            found = []
        finally:
            _less(self._polls, user)
            self._unuse(desk, user)
        until = time.monotonic() + settings.web_hold_s
        for each in found:
            self._held[each.name] = Held(desk, each, owner, until)
            self._in_hand[user] += 1
            self._use(desk, user)
        return found

    def _most(self, user: str, count: int) -> int:
        """How many a get may take beside what is in hand. ConsoleBusy."""
        settings = self._settings
        left = min(settings.web_deliveries_max - len(self._held),
                   settings.web_user_deliveries_max - self._in_hand[user])
        if left <= 0:
            raise ConsoleBusy(what="deliveries are not settled yet (web_deliveries_max, "
                              "web_user_deliveries_max)", seconds=1)
        return min(count, left)

    def forget(self, taken: Taken) -> None:
        """The answer that had it has been written, or never will be."""
        if taken.cost:
            self._budget.give(taken.user, taken.cost)
            taken.cost = 0

    def give_back(self, taken: Sequence[Taken]) -> None:
        """Their answer reached nobody."""
        for each in taken:
            if (held := self._held.get(each.name)) is not None:
                self._drop(held)
                held.desk.put_back([each])

    def find(self, owner: str, delivery: str) -> Held:
        """DeliveryUnknown."""
        held = self._held.get(delivery)
        if held is None or held.owner != owner:
            raise DeliveryUnknown(delivery=delivery[:64])
        return held

    async def settle(self, owner: str, orders: Sequence[Order]) -> list[OmqError | None]:
        """All of them, with one sync for each queue; the error of each, or None."""
        told: list[OmqError | None] = [None] * len(orders)
        by: dict[Desk, list[tuple[int, Order, Held]]] = {}
        for at, order in enumerate(orders):
            try:
                held = self.find(owner, order.delivery)
            except DeliveryUnknown as error:
                told[at] = error
                continue
            self._drop(held)  # nobody else settles it meanwhile
            by.setdefault(held.desk, []).append((at, order, held))
        for desk, some in by.items():
            try:
                found = await desk.say(_all(some))
            except OmqError as error:  # of the desk: what it holds goes back
                found = [error] * len(some)
            for (at, order, held), refusal in zip(some, found, strict=True):
                told[at] = refusal
                if (order.touches and refusal is None) or _refused(refusal):
                    self._keep(held)
        return told

    def _keep(self, held: Held) -> None:
        """It is in hand as before, from now on."""
        held.until = time.monotonic() + self._settings.web_hold_s
        self._held[held.taken.name] = held
        self._in_hand[held.taken.user] += 1
        self._use(held.desk, held.taken.user)

    def sweep(self, now: float) -> None:
        """Deliveries and desks whose time is over. Never waits."""
        late: dict[Desk, list[Taken]] = {}
        while self._held:
            held = next(iter(self._held.values()))
            if held.until > now and not held.desk.ended:
                break
            self._drop(held)
            if not held.desk.ended:
                late.setdefault(held.desk, []).append(held.taken)
        for desk, some in late.items():
            self._aside(_fail(desk, some, self._settings.web_hold_s))
        for desk, since in tuple(self._idle.items()):
            if now - since >= IDLE_S or desk.ended:
                self._close(desk)

    async def close(self) -> None:
        """All of them; what is in hand goes back untouched."""
        desks = list(self._of.values())
        for desk in desks:
            desk.close()
        self._held.clear()
        loop = asyncio.get_running_loop()
        ends = time.monotonic() + _JOIN_S
        for desk in desks:
            await loop.run_in_executor(None, desk.join, max(0.0, ends - time.monotonic()))

    def _desk(self, queue: str, user: str) -> Desk:
        """That of a queue, made if there is room for one more. ConsoleBusy."""
        desk = self._of.get(queue)
        if desk is not None and desk.ended:
            self._close(desk)
            desk = None
        settings = self._settings
        if desk is None or not self._uses[desk][user]:
            mine = sum(uses[user] > 0 for uses in self._uses.values())
            self._room(mine, settings.web_user_holders_max, "web_user_holders_max")
        if desk is None:
            if len(self._of) >= settings.web_holders_max and self._idle:
                self._close(next(iter(self._idle)))
            self._room(len(self._of), settings.web_holders_max, "web_holders_max")
            desk = self._of[queue] = Desk(self._connect, lambda _: queue, self._budget)
            self._uses[desk] = Counter()
        return desk

    def _room(self, there: int, most: int, key: str) -> None:
        if there >= most:
            raise ConsoleBusy(what=f"{there} are there already ({key})", seconds=1)

    def _close(self, desk: Desk) -> None:
        self._idle.pop(desk, None)
        self._uses.pop(desk, None)
        for queue in [each for each, other in self._of.items() if other is desk]:
            del self._of[queue]
        desk.close()

    def _use(self, desk: Desk, user: str) -> None:
        if (uses := self._uses.get(desk)) is not None:
            uses[user] += 1
            self._idle.pop(desk, None)

    def _unuse(self, desk: Desk, user: str) -> None:
        if (uses := self._uses.get(desk)) is not None:
            _less(uses, user)
            if not uses:
                self._idle[desk] = time.monotonic()

    def _drop(self, held: Held) -> None:
        del self._held[held.taken.name]
        _less(self._in_hand, held.taken.user)
        self._unuse(held.desk, held.taken.user)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)


def _less(counter: Counter[str], user: str) -> None:
    counter[user] -= 1
    if not counter[user]:
        del counter[user]


def _refused(error: OmqError | None) -> bool:
    """Nothing happened to the message, and the caller may say something else of it."""
    return error is not None and not isinstance(error, LeaseLost | ReaderClosed | DeliveryUnknown)


def _all(some: Iterable[tuple[int, Order, Held]]) -> Callable[[Reader], list[OmqError | None]]:
    listed = list(some)

    def say(_reader: Reader) -> list[OmqError | None]:
        found: list[OmqError | None] = []
        for _, order, held in listed:
            try:
                order.carry_out(held.taken.message)
                found.append(None)
            except OmqError as error:
                found.append(error)
        return found

    return say


async def _fail(desk: Desk, some: Sequence[Taken], hold_s: float) -> None:
    def say(_reader: Reader) -> None:
        for each in some:
            with suppress(LeaseLost):
                each.message.fail(f"not settled within {duration(hold_s)} (web_hold_s)")

    with suppress(OmqError):  # the desk has ended: the queue manager has them back
        await desk.say(say)
