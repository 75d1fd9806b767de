"""What the scheduler has given back to its queue, deferred, by peer and cause; and which of it is
to be called back because its peer has room again.

The causes (mlist.Cause): SHARE, it is beyond its peer's share of the messages in hand; HELD, an
operator holds the peer or the channel; DOWN, the peer was not reached; REFUSED, the peer refused it
for now. Of the first three it is the scheduler that knows when their reason is gone, so it calls
them back then (`ToolCalls.recall`), whatever time they were deferred to: that is only the latest.
What was refused for now has its own time, and is here to be shown.

Invariants: 1. a message is here once, or not at all; what came back, by whatever way, is not; 2. at
most `known_max` are known: what is beyond that comes back when it is due (`qmgr_put_off_s_max`);
3. of a peer that has less than half of its share in hand, and is neither held nor down, what was
put off is called, in the order in which it came, up to its share.

In the middle of a crash: all of this is forgotten, and the messages are deferred. The next
scheduler calls back what is due soon (dispatcher), and gets to know it so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from omq.services.delivery.mlist import Cause

ASKED_S: Final = 1.0
"""What was called back and has not come by then is not waited for: somebody else has it."""
WAITS: Final = "it waits for its turn"
_STALE_NS: Final = 60 * 1_000_000_000

Where = tuple[str, str]
"""Channel and peer."""


@dataclass(eq=False, slots=True)
class Group:
    """The messages of one peer that wait for one cause. `due`: QPoolId and the time, wall ns."""

    where: Where
    cause: Cause
    reason: str
    due: dict[int, int] = field(default_factory=dict)

    @property
    def next_ns(self) -> int:
        """When the first of them comes back by itself."""
        return next(iter(self.due.values()))


class Aside:
    """Of one dispatcher."""

    def __init__(self, known_max: int) -> None:
        self.known_max = known_max
        self.closed_until = float("-inf")  # monotonic: nothing can be called back before
        self._groups: dict[Where, dict[Cause, Group]] = {}
        self._group_of: dict[int, Group] = {}
        self._asked: dict[int, tuple[Where, float]] = {}
        self._asked_of: Counter[Where] = Counter()

    def __len__(self) -> int:
        return len(self._group_of)

    def groups(self) -> Iterator[Group]:
        """All that wait."""
        return (group for each in self._groups.values() for group in each.values())

    def of(self, where: Where) -> Iterable[Group]:
        """Those of a peer."""
        return self._groups.get(where, {}).values()

    def has_share(self, where: Where, now: float) -> bool:
        """Whether others wait for this peer to have room, and will be called: who comes now waits
        after them."""
        return now >= self.closed_until and Cause.SHARE in self._groups.get(where, {})

    def put(self, qpool: int, where: Where, cause: Cause, reason: str, due_ns: int) -> None:
        """It was deferred until then."""
        self._forget(qpool)
        if len(self._group_of) >= self.known_max:
            return
        causes = self._groups.setdefault(where, {})
        group = causes.get(cause)
        if group is None:
            group = causes[cause] = Group(where, cause, reason)
        group.reason = reason
        group.due[qpool] = due_ns
        self._group_of[qpool] = group

    def came(self, qpool: int) -> bool:
        """It is in hand again; whether it was called back."""
        self._forget(qpool)
        asked = self._asked.pop(qpool, None)
        if asked is not None:
            self._less(asked[0])
        return asked is not None

    def look(self, held: Callable[[Where], bool], down: Callable[[Where], bool], now: float,
             now_ns: int) -> None:
        """Whose cause is gone waits for room from now on; what was asked for and did not come, or
        should have come long ago, is forgotten."""
        for where, causes in list(self._groups.items()):
            for group in list(causes.values()):
                while group.due and group.next_ns < now_ns - _STALE_NS:
                    self._forget(next(iter(group.due)))
                gone = {Cause.HELD: held, Cause.DOWN: down}.get(group.cause)
                if group.due and gone is not None and not gone(where):
                    for qpool, due_ns in list(group.due.items()):
                        self.put(qpool, where, Cause.SHARE, WAITS, due_ns)
        for qpool, (where, since) in list(self._asked.items()):
            if now - since < ASKED_S:
                break  # in the order in which they were asked for
            del self._asked[qpool]
            self._less(where)

    def waiting(self) -> list[Where]:
        """The peers whose room is waited for."""
        return [where for where, causes in self._groups.items() if Cause.SHARE in causes]

    def call(self, where: Where, in_hand: int, share: int, room: int, now: float
             ) -> list[tuple[int, int]]:
        """Whom to call back, and when it was due: `in_hand` of the peer wait here, `share` may, and
        there is `room` in all."""
        group = self._groups.get(where, {}).get(Cause.SHARE)
        coming = in_hand + self._asked_of[where]
        if group is None or coming > share // 2:
            return []
        wanted = max(0, min(share - coming, room - len(self._asked)))
        called = list(islice(group.due.items(), wanted))
        for qpool, _ in called:
            self._forget(qpool)
            self._asked[qpool] = where, now
        if called:
            self._asked_of[where] += len(called)
        return called

    def again(self, qpool: int, where: Where, due_ns: int) -> None:
        """It could not be called back."""
        self.came(qpool)
        self.put(qpool, where, Cause.SHARE, WAITS, due_ns)

    def _less(self, where: Where) -> None:
        self._asked_of[where] -= 1
        if not self._asked_of[where]:
            del self._asked_of[where]

    def _forget(self, qpool: int) -> None:
        group = self._group_of.pop(qpool, None)
        if group is None:
            return
        del group.due[qpool]
        if not group.due:
            causes = self._groups[group.where]
            del causes[group.cause]
            if not causes:
                del self._groups[group.where]
