"""Calling back what the scheduler has put off, when its peer has room again.

A turn looks at the peers that something was reported of; once a second at all of them, since what
an operator releases and which peers are down is in files that others write. What the manager passes
over (an operator has deleted or holds it) takes nobody's place: the next ones are called at once.

The first turns call back what an earlier run of this service has put off: all that is due within
the longest time for which one does so. It is planned anew, and known from then on; a message that
its peer refused for now, and would have come soon, is tried a little earlier by that.

In the middle of a crash: see omq.services.delivery.deferred. Errors: what the manager refuses (the
disk is full) is asked for again after a second; a manager that does not know the question, being
older, is not asked again: what was put off comes when it is due. Others end the process, as those
of the reader do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from omq.base import clock, event_log, events
from omq.base.errors import REFUSALS, BadRequest, NoAuthority
from omq.base.limits import RECALL_MAX
from omq.services.delivery.deferred import Aside, Where
from omq.services.delivery.holds import HELD_S, Holds

if TYPE_CHECKING:
    from omq.services.delivery.mlist import Mlist
    from omq.services.delivery.peer_book import PeerBook
    from omq.services.readers.service import ServiceContext

LOOK_S: Final = 1.0
_ROUNDS_MAX: Final = 64
"""Of calls in a turn of messages that are gone: a million deleted ones hold up nobody."""


class Recalls(Protocol):
    """What is asked of the queue manager: omq.ipc.client.tool_calls."""

    def recall(self, queue: str, qpools: list[int]) -> list[int]: ...
    def recall_due(self, queue: str, within_s: float, before: int) -> tuple[int, int]: ...


class CallingBack:
    """Of one dispatcher."""

    def __init__(self, context: ServiceContext, aside: Aside, book: PeerBook, holds: Holds) -> None:
        self._context, self._aside, self._book, self._holds = context, aside, book, holds
        self._looked = float("-inf")
        self._moved: set[Where] = set()
        self._earlier = True
        self._before = 0
        self._not_before = float("-inf")

    @property
    def longest_s(self) -> float:
        """No message waits longer because the scheduler has put it off."""
        return max(HELD_S, float(self._context.settings.qmgr_put_off_s_max))

    @property
    def waits(self) -> bool:
        """Something may be called back in a while, though nothing is in hand."""
        return self._earlier or len(self._aside) > 0

    @property
    def goes_on(self) -> bool:
        """The next turn has something to call at once."""
        return bool(self._moved)

    def configure(self, context: ServiceContext) -> None:
        """A reload."""
        self._context = context
        self._aside.known_max = context.settings.qmgr_put_off_messages_max

    def moved(self, mlist: Mlist) -> None:
        """Its peer has one less to take."""
        self._moved.add((mlist.channel, mlist.peer))

    def turn(self, connection: Recalls, flush: Callable[[], None], free: int, now: float) -> None:
        """Call back what there are `free` places for. `flush` sends what was settled: who is called
        must have been put off before."""
        moved, self._moved = self._moved, set()
        if now < self._not_before:
            return
        if now >= self._looked + LOOK_S:
            self._looked = now
            away = self._book.left_alone()
            self._aside.look(lambda where: self._holds.of(*where) is not None,
                             lambda where: where[1] in away, now, clock.wall_ns())
            moved = set(self._aside.waiting())
        try:
            self._call(connection, flush, [
                each for each in moved if self._aside.has_share(each, now)], free, now)
            self._call_earlier(connection, free)
        except REFUSALS as error:
            self._context.log.event(events.DISPOSITION_REFUSED, event_log.WARNING,
                                    queue=self._context.conf.queue, qpool_id=0, reason=str(error))
            # A manager that is older than this service does not know the question.
            never = isinstance(error, BadRequest | NoAuthority)
            self._not_before = self._aside.closed_until = math.inf if never else now + LOOK_S

    def _call(self, connection: Recalls, flush: Callable[[], None], peers: list[Where], free: int,
              now: float) -> None:
        away = self._book.left_alone() if peers else frozenset()
        peers = [each for each in peers
                 if each[1] not in away and self._holds.of(*each) is None]
        for _ in range(_ROUNDS_MAX):
            called: dict[int, tuple[Where, int]] = {}
            for where in peers:
                left = free - len(called)
                called |= {qpool: (where, due_ns) for qpool, due_ns in self._aside.call(
                    where, self._book.waits_here(where), self._book.share(left), left, now)}
            passed = self._recalled(connection, flush, called) if called else ()
            for qpool in passed:  # an operator took it: its place is the next one's
                self._aside.came(qpool)
            peers = list(dict.fromkeys(called[qpool][0] for qpool in passed))
            if not peers:
                return
        self._moved.update(peers)

    def _recalled(self, connection: Recalls, flush: Callable[[], None],
                  called: Mapping[int, tuple[Where, int]]) -> list[int]:
        """Make these ready: by QPoolId whose it is, when it was due. Which were passed over."""
        flush()
        each, done, passed = iter(called), 0, list[int]()
        try:
            while some := list(islice(each, RECALL_MAX)):
                passed += connection.recall(self._context.conf.queue, some)
                done += len(some)
        except REFUSALS:
            for qpool, (where, due_ns) in islice(called.items(), done, None):
                self._aside.again(qpool, where, due_ns)
            raise
        return passed

    def _call_earlier(self, connection: Recalls, free: int) -> None:
        if not self._earlier or free <= 0:
            return
        count, self._before = connection.recall_due(
            self._context.conf.queue, self.longest_s, self._before)
        self._earlier = count == RECALL_MAX
