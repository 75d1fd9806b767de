"""What programs take over the REST interface: gets that wait, and deliveries that are not settled.

A program names a delivery, not a connection, so omq-web keeps the message for it, at the desk of
its queue (queue_desk.py). Invariants: 1. a delivery is settled by its caller alone, once; 2. one
that is not settled or touched in web_hold_s is a failed attempt of its message, as with a lease;
those in hand when this process ends in order go back untouched; 3. at most web_polls_max gets and
requests wait, web_deliveries_max deliveries are in hand, web_holders_max queues are read, those for
replies included; one user has his share of each; 4. a desk of which somebody waits for something,
or has something in hand, is not closed.

Errors: ConsoleBusy, DeliveryUnknown, and those of a reader. For the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from omq.base.errors import ConsoleBusy, DeliveryUnknown, OmqError
from omq.base.settings import Settings
from omq.cli.web.budget import Budget
from omq.cli.web.delivered_message import Taken
from omq.cli.web.queue_desk import Desk
from omq.cli.web.settlements import Held, Order, Settled, fail, refused, saying
from omq.ipc.client.connection import Client

WAIT_MAX_S: Final = 20.0
COUNT_MAX: Final = 1000
IDLE_S: Final = 5.0
"""A desk at which nobody waits and of which nothing is in hand is closed after it."""
_JOIN_S: Final = 5.0


class Deliveries:
    """See the module."""

    def __init__(self, settings: Settings, connect: Callable[[], Client], budget: Budget) -> None:
        self._settings, self._connect, self._budget = settings, connect, budget
        self._of: dict[str, Desk] = {}  # by queue, or what else it is for
        self._uses: dict[Desk, Counter[str]] = {}  # of each user: what waits, deliveries
        self._idle: dict[Desk, float] = {}  # since when
        self._polls, self._in_hand = Counter[str](), Counter[str]()
        self._held: dict[str, Held] = {}  # by delivery, in the order in which their time is over
        self._settled = Settled(settings.web_deliveries_max, settings.web_hold_s)
        self._ends: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._of)

    @property
    def figures(self) -> tuple[int, int, int]:
        """Deliveries, gets that wait, deliveries in hand."""
        return len(self._of), self._polls.total(), len(self._held)

    async def get(self, user: str, owner: str, queue: str, count: int, wait_s: float
                  ) -> list[Taken]:
        """Up to so many messages; each is in hand from now on, `owner`'s. Cancelled: what came goes
        back."""
        with self.waiting(queue, user, lambda _: queue) as desk:
            try:
                async with asyncio.timeout(wait_s or None):
                    found = await desk.get(user, self.room(user, count), now=not wait_s)
            except TimeoutError:
                found = []
        for each in found:
            self.hold(desk, each, user, owner)
        return found

    @contextmanager
    def waiting(self, name: str, user: str, opened: Callable[[Client], str]) -> Iterator[Desk]:
        """The desk of this name, of which somebody waits for something meanwhile. ConsoleBusy."""
        settings = self._settings
        self._room(self._polls.total(), settings.web_polls_max, "web_polls_max")
        self._room(self._polls[user], settings.web_user_polls_max, "web_user_polls_max")
        desk = self._desk(name, user, opened)
        self._polls[user] += 1
        self._use(desk, user)
        try:
            yield desk
        finally:
            _less(self._polls, user)
            self._unuse(desk, user)

    def hold(self, desk: Desk, taken: Taken, user: str, owner: str) -> None:
        """It is in hand, from now on."""
        self._held[taken.name] = Held(desk, taken, owner, self._until())
        self._in_hand[user] += 1
        self._use(desk, user)

    def room(self, user: str, count: int) -> int:
        """How many a get may take besides what is in hand. ConsoleBusy."""
        settings = self._settings
        left = min(settings.web_deliveries_max - len(self._held),
                   settings.web_user_deliveries_max - self._in_hand[user])
        if left <= 0:
            raise ConsoleBusy(what="deliveries are not settled yet (web_deliveries_max, "
                              "web_user_deliveries_max)", seconds=1)
        return min(count, left)

    def forget(self, taken: Taken) -> None:
        """The answer that had it has been written, or never will be."""
        taken.record = {}
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

    def read_on(self, held: Held) -> None:
        """Some more of its body has left: its time begins anew."""
        if self._held.get(held.taken.name) is held:
            del self._held[held.taken.name]
            held.until = self._until()
            self._held[held.taken.name] = held

    async def settle(self, owner: str, orders: Sequence[Order | OmqError]
                     ) -> list[OmqError | None]:
        """All of them, with one sync for each queue; the error of each, or None. What is an error
        already stays one."""
        told: list[OmqError | None] = [None] * len(orders)
        by: dict[Desk, list[tuple[int, Order, Held]]] = {}
        for at, order in enumerate(orders):
            if isinstance(order, OmqError):
                told[at] = order
                continue
            try:
                held = self.find(owner, order.delivery)
            except DeliveryUnknown as error:
                told[at] = None if self._settled.knows(owner, order) else error
                continue
            self._drop(held)  # nobody else settles it meanwhile
            by.setdefault(held.desk, []).append((at, order, held))
        for desk, some in by.items():
            self._use(desk, owner)
            try:
                found = await desk.say(saying([(order, held) for _, order, held in some]))
            except OmqError as error:  # of the desk: what it holds goes back
                found = [error] * len(some)
            finally:
                self._unuse(desk, owner)
            for (at, order, held), refusal in zip(some, found, strict=True):
                told[at] = refusal
                if (order.touches and refusal is None) or refused(refusal):
                    self.hold(desk, held.taken, held.taken.user, held.owner)
                elif refusal is None:
                    self._settled.note(owner, order)
        return told

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
            self._aside(fail(desk, some, self._settings.web_hold_s))
        for desk, since in tuple(self._idle.items()):
            if now - since >= IDLE_S or desk.ended:
                self._close(desk)
        self._settled.sweep(now)

    def send_away(self) -> None:
        """Gets that wait are answered: nothing came. omq-web stops."""
        for desk in self._of.values():
            desk.send_away()

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

    def _desk(self, name: str, user: str, opened: Callable[[Client], str]) -> Desk:
        """That of a name, made if there is room for one more. ConsoleBusy."""
        desk = self._of.get(name)
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
            desk = self._of[name] = Desk(self._connect, opened, self._budget)
            self._uses[desk] = Counter()
        return desk

    def _room(self, there: int, most: int, key: str) -> None:
        if there >= most:
            raise ConsoleBusy(what=f"{there} are there already ({key})", seconds=1)

    def _close(self, desk: Desk) -> None:
        self._idle.pop(desk, None)
        self._uses.pop(desk, None)
        for name in [each for each, other in self._of.items() if other is desk]:
            del self._of[name]
        desk.close()

    def _until(self) -> float:
        return time.monotonic() + self._settings.web_hold_s

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
