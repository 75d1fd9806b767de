"""How the work on messages ends: each is settled once, or stays with this process.

What was done is never handed to another reader: a settlement that the manager refuses (a queue is
full, inhibited, the message too long for it) takes the service's other way, and where that is
refused too it stays here and is tried again after `reader_refused_retry_s`. At a stop what is owed
goes back with its message, and is done again: a peer may then get it twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from omq.base import clock, event_log, events
from omq.base.errors import REFUSALS, LeaseLost, OmqError
from omq.base.fault import point
from omq.services.daemon.daemon import last_trace
from omq.services.delivery.deferred import Aside, Where
from omq.services.delivery.mlist import Cause, Mlist, Wait
from omq.services.delivery.service import Plan
from omq.services.readers.runner import settle
from omq.services.readers.service import Defer, Disposition, Fail

if TYPE_CHECKING:
    from omq.ipc.client.message import Message
    from omq.services.delivery.holds import Holds
    from omq.services.delivery.scheduler import Scheduler
    from omq.services.delivery.service import ChannelService

_REASON_CHARACTERS: Final = 500


@dataclass(eq=False, slots=True)
class Work:
    """A message in hand: how many of its Mlists have not ended, and what became of the others."""

    message: Message
    plan: Plan
    left: int
    results: list[Any] = field(default_factory=list)
    wait: Wait | None = None
    waits_for: Where | None = None  # the peer of that wait
    failed: str = ""
    called: bool = False  # it was called back: there is room for it

    @classmethod
    def of(cls, message: Message, plan: Plan, *, called: bool) -> Work:
        """Before any of its Mlists has ended, and the plan itself."""
        return cls(message, plan, len(plan.groups) + 1, list(plan.results), called=called)

    def waits(self, wait: Wait, mlist: Mlist) -> None:
        """One of its Mlists is to be tried then; the longest wait counts."""
        if self.wait is None or wait.seconds > self.wait.seconds:
            self.wait, self.waits_for = wait, (mlist.channel, mlist.peer)

    @property
    def cause(self) -> tuple[Where, Cause] | None:
        """Who is waited for if it is deferred, and why."""
        if self.wait is not None and self.waits_for is not None:
            return self.waits_for, self.wait.cause
        for group in self.plan.groups:
            return (group.channel, group.peer), Cause.REFUSED
        return None


class Settling:
    """Of one dispatcher. `in_hand`: messages that are not settled; `due`: when `retry` has
    something to do, monotonic."""

    def __init__(self, service: ChannelService, aside: Aside,
                 more: Callable[[Work], None]) -> None:
        self.in_hand = 0
        self.due = math.inf
        self._more = more
        self._service, self._aside = service, aside
        self._owed: list[tuple[Message, Disposition]] = []
        self._held: tuple[frozenset[str], str] = frozenset(), ""

    @property
    def refused_s(self) -> float:
        """How long what was refused waits."""
        return float(self._service.context.settings.reader_refused_retry_s)

    def not_now(self, mlist: Mlist, wait: Wait) -> None:
        """An Mlist is not tried."""
        work: Work = mlist.work
        work.results += self._service.untried(mlist, wait)
        work.waits(wait, mlist)
        self.one_ended(work)

    def hold(self, scheduler: Scheduler, holds: Holds) -> None:
        """What an operator holds waits no longer here."""
        held = holds.state
        if held == self._held:
            return
        if held[1] and held[1] != self._held[1]:
            self._service.context.log.event(events.HOLDS_UNKNOWN, event_log.ERROR,
                                            file=str(holds.path), reason=held[1])
        self._held = held
        for channel in list(scheduler.channels.values()):
            for peer in list(channel.peers):
                if wait := holds.of(channel.name, peer):
                    for mlist in scheduler.take_back(channel.name, peer):
                        self.not_now(mlist, wait)

    def one_ended(self, work: Work) -> None:
        """An Mlist of the message has ended; with the last one the message is settled."""
        work.left -= 1
        if work.left:
            return
        if work.failed:
            self.settle(work.message, Fail(work.failed))
            return
        try:
            found = self._service.ended(work.message, work.results, work.wait)
            if isinstance(found, Plan):
                self._more(Work.of(work.message, found, called=work.called))
                return
        except Exception as error:
            self.tell_failed(work.message, error)
            found = Defer(self.refused_s, words(error))
        point("reader.before_done")
        self.settle(work.message, found, work.cause)
        point("reader.after_done")

    def settle(self, message: Message, disposition: Disposition,
               cause: tuple[Where, Cause] | None = None) -> None:
        """This becomes of the message; for this cause, if it is deferred."""
        try:
            settle(message, disposition)
            self.in_hand -= 1
            if isinstance(disposition, Defer) and cause is not None:
                due_ns = clock.wall_ns() + int(disposition.seconds * clock.NS_PER_S)
                self._aside.put(message.qpool_id, *cause, disposition.reason, due_ns)
            return
        except LeaseLost as error:  # another reader has it by now: nothing is ours to decide
            self._tell_refused(message, error)
            self.in_hand -= 1
            return
        except REFUSALS as error:
            self._tell_refused(message, error)
            other = self._service.instead(disposition, message, error)
        try:
            if other is not None:
                settle(message, other)
                self.in_hand -= 1
                return
        except REFUSALS as error:
            self._tell_refused(message, error)
        self._owed.append((message, disposition))
        self.due = min(self.due, time.monotonic() + self.refused_s)

    def retry(self, now: float) -> None:
        """Settle what is owed, when it is time."""
        if now >= self.due:
            self.due = math.inf
            owed, self._owed = self._owed, []
            for message, disposition in owed:
                self.settle(message, disposition)

    def tell_failed(self, message: Message, error: Exception) -> None:
        """An error of a message that nobody foresaw."""
        event = events.FAILED if isinstance(error, OmqError) else events.BUG
        self._service.context.log.event(
            event, event_log.ERROR, queue=message.queue, qpool_id=message.qpool_id,
            attempts=message.attempts, traceback=last_trace())

    def _tell_refused(self, message: Message, error: OmqError) -> None:
        self._service.context.log.event(
            events.DISPOSITION_REFUSED, event_log.WARNING, queue=message.queue,
            qpool_id=message.qpool_id, reason=str(error))


def words(error: Exception) -> str:
    """An error as a reason."""
    return f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
