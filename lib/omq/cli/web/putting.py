"""Puts of the REST interface: requests for the same queue that wait at the same time go to the
queue manager together and share a sync.

Invariants: 1. the messages of one request are put all, or none is; 2. a refusal of one request
affects no other; 3. a request that the queue manager did not answer gets an error of its absence
(503), never a refusal: the program asks again with the same unique_key.

Crash argument: each way is one request to the queue manager that is all or nothing (a batch that
fits, a unit of work), and is answered when it is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from omq.aio.lines import Job
from omq.aio.waiter import Outcome, Outcomes, Waiter, same_for_all
from omq.base import limits
from omq.base.errors import REFUSALS, ManagerHung, ManagerUnavailable, OmqError, TimedOut
from omq.ipc.client.connection import Client
from omq.ipc.wire.outgoing import Outgoing, by_itself

HEAD_BYTES: Final = 768
"""More than a message takes in a request besides its body and its properties."""
ALONE_BYTES: Final = 4096
"""A body of this size gains nothing by company; below it none goes into a container."""
_IN_DOUBT: Final = (ManagerHung, ManagerUnavailable, TimedOut)


class Puts:
    """One request, with those that go with it. `goal`: the queues that hold what is put, or the
    name of one of another instance; the waiter gets a list of ids."""

    def __init__(self, goal: str | tuple[str, ...], messages: Sequence[Outgoing], waiter: Waiter
                 ) -> None:
        queues = (goal,) if isinstance(goal, str) else goal
        self.goal: Final = queues
        self.parts: list[tuple[Sequence[Outgoing], int, Waiter]] = [
            (messages, sum(map(size_of, messages)), waiter)]
        self.count = len(messages)
        self.together: Final = len(queues) == 1 and not any(
            len(each.body) > ALONE_BYTES or by_itself(queues[0], each) for each in messages)

    def take_in(self, other: Job) -> bool:
        if (not isinstance(other, Puts) or other.goal != self.goal
                or not (self.together and other.together)
                or self.count + other.count > limits.BATCH_MAX):
            return False
        self.parts += other.parts
        self.count += other.count
        return True

    def fail(self, error: BaseException) -> None:
        same_for_all([waiter for _, _, waiter in self.parts], error)

    def carry_out(self, connection: Client) -> None:
        for some in self._requests(connection.room):
            self._put(connection, some)

    def _requests(self, room: int) -> Iterator[list[tuple[Sequence[Outgoing], int, Waiter]]]:
        some: list[tuple[Sequence[Outgoing], int, Waiter]] = []
        total = 0
        for part in self.parts:
            if some and total + part[1] > room:
                yield some
                some, total = [], 0
            some.append(part)
            total += part[1]
        yield some

    def _put(self, connection: Client, some: Sequence[tuple[Sequence[Outgoing], int, Waiter]]
             ) -> None:
        waiters = [waiter for _, _, waiter in some]
        messages = [each for part, _, _ in some for each in part]
        fits = self.together and sum(size for _, size, _ in some) <= connection.room
        try:
            ids = self._all(connection, messages, fits=fits)
        except _IN_DOUBT as error:
            same_for_all(waiters, error)
        except OmqError as error:
            if len(some) == 1 or not isinstance(error, REFUSALS):
                same_for_all(waiters, error)
                return
            for part in some:  # one of them was refused, so none happened
                self._put(connection, [part])
        except Exception as error:  # the coroutines', whatever it is
            same_for_all(waiters, error)
        else:
            left = iter(ids)
            Outcomes((waiter, Outcome([next(left) for _ in part]))
                     for part, _, waiter in some).tell()

    def _all(self, connection: Client, messages: Sequence[Outgoing], *, fits: bool) -> list[str]:
        if len(messages) == 1:
            return [connection.put(self.goal, outgoing=messages[0])]
        if fits:
            return connection.put_many(self.goal[0], list(messages))
        with connection.unit() as unit:
            for each in messages:
                unit.put(self.goal, outgoing=each)
        return list(unit.ids)


def size_of(message: Outgoing) -> int:
    """No less than a message takes in a request."""
    return HEAD_BYTES + len(message.body) + sum(
        8 + 4 * (len(name) + len(str(value))) for name, value in message.properties.items())
