"""Which groups wait until the standbys have answered the one before (ipc.server.held_replies).

Whoever asks in a group gets no answer before the standbys have it, so there is little to gain from
being the next group at once: while the manager syncs it, an answer to the one before lies there
unread, and each small group costs a piece, a sync and an answer of its own. So requests wait for an
answer that comes soon, and are one group then. Nobody hears it later by that than the answer comes.

An answer that takes longer than WORTH_NS (a network, a disk that is slower than the one here) is
not worth it: then groups go on, and it is tried again after a pause that grows.

Invariants: 1. whatever else the manager is asked, and its next deadline, ends a wait; 2. answers
are carried out at once, before the requests that have waited for them.

Errors: none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from omq.base import clock
from omq.format.wire import Operation

if TYPE_CHECKING:
    from omq.ipc.server.held_replies import HeldReplies

WORTH_NS: Final = 1_000_000
PAUSE_MAX: Final = 1024
"""Groups without another try, at most."""
_SYNCED: Final = int(Operation.SYNCED)


class AnswerPace:
    """See the module."""

    def __init__(self, held: HeldReplies, monotonic_ns: Callable[[], int] = clock.monotonic_ns
                 ) -> None:
        self._held, self._now = held, monotonic_ns
        self._began = 0
        self._vain = self._pause = 0

    def waits(self) -> bool:
        """Should the requests that are there wait? `ended` follows."""
        if not self._held.unanswered:
            return False
        if self._pause:
            self._pause -= 1
            return False
        self._began = self._now()
        return True

    def ended(self) -> None:
        """The wait is over."""
        if self._now() - self._began <= WORTH_NS:
            self._vain = 0
        else:
            self._vain += 1
            self._pause = min(1 << self._vain, PAUSE_MAX)


def answers(batch: list[bytes]) -> list[bytes]:
    """Those of standbys among these requests."""
    return [raw for raw in batch if raw[:1] == b"%c" % _SYNCED]
