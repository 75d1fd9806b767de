"""Readers that look at what comes to their queue, to choose of it by themselves (ADR 0052).

A selector is tested in the process that asks, so the manager cannot know which arrival is wanted:
it tells a looker of all that became READY since it looked last, as entries, and hands out nothing.
Those that the looker chooses it takes by Key.CURSOR, and gets them if they are still there.

A looker begins by a look that is refused (LookBehind): from then on arrivals are noted for it,
and it looks at the whole queue itself. Nothing can come in between unseen. The same refusal says
that more came than is kept for it (PENDING_MAX), and after a restart of the manager.

While get is inhibited nobody hears of any, for nothing of the queue can be handed out; when it is
allowed again all lookers are behind, and look at what is there then.

Invariants: 1. a looker costs a line of its list for each arrival, and nothing is done by its
selector; 2. nothing here is durable; 3. a queue with lookers is in `core.watched`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from omq.base.errors import LookBehind
from omq.core.engine.state import Core
from omq.core.engine.waiting import Waiter
from omq.format.index import EntryState

PENDING_MAX: Final = 10_000
"""Arrivals that are kept for one looker; who falls further behind looks at the whole queue."""
_READY: Final = int(EntryState.READY)


@dataclass(slots=True)
class _Looker:
    """What came since it looked last: (entry, its sequence) each."""

    pending: list[tuple[int, int]] = field(default_factory=list)
    behind: bool = False
    waiter: Waiter | None = None


class Arrivals:
    """See the module. The lookers of each queue by their client."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.queues: dict[int, dict[int, _Looker]] = {}

    def begin(self, client: int, queue: int) -> None:
        """Before each look. LookBehind: it is to look at the whole queue."""
        lookers = self.queues.setdefault(queue, {})
        self._core.watched.setdefault(queue, [])
        looker = lookers.get(client)
        if looker is None or looker.behind:
            lookers[client] = _Looker()
            raise LookBehind

    def add(self, waiter: Waiter) -> None:
        """It waits for arrivals; `begin` was called."""
        self.queues[waiter.queue][waiter.party.client].waiter = waiter

    def drop(self, waiter: Waiter) -> None:
        """It does not wait any more, and goes on being a looker."""
        waiter.waiting = False
        looker = self.queues.get(waiter.queue, {}).get(waiter.party.client)
        if looker is not None:
            looker.waiter = None

    def forget(self, client: int, queue: int) -> None:
        """It looks no more. The caller says whether the queue is still watched."""
        lookers = self.queues.get(queue)
        if lookers is not None and lookers.pop(client, None) is not None and not lookers:
            del self.queues[queue]

    def tell(self, queue: int, arrived: list[int]) -> list[tuple[Waiter, list[int]]]:
        """Note what came, and answer those who wait for it. Get is allowed."""
        out: list[tuple[Waiter, list[int]]] = []
        if queue in self._core.inhibited:
            self._core.inhibited.remove(queue)
            for looker in self.queues.get(queue, {}).values():
                looker.pending, looker.behind = [], True
        sequences = self._core.t.e_sequence
        came = [(entry, sequences[entry]) for entry in arrived]
        for looker in self.queues.get(queue, {}).values():
            if len(looker.pending) + len(came) > PENDING_MAX:
                looker.pending, looker.behind = [], True
            elif not looker.behind:
                looker.pending += came
            waiter = looker.waiter
            if waiter is None or not waiter.waiting:
                continue
            entries = self._there(looker, queue, waiter.want)
            if entries or looker.behind:  # behind: its next look is refused
                self.drop(waiter)
                out.append((waiter, entries))
        return out

    def _there(self, looker: _Looker, queue: int, want: int) -> list[int]:
        """The first of what came that is still READY there."""
        t, entries = self._core.t, list[int]()
        taken = 0
        for entry, sequence in looker.pending:
            if len(entries) == want:
                break
            taken += 1
            if (t.e_sequence[entry] == sequence and t.e_state[entry] == _READY
                    and t.e_queue[entry] == queue):
                entries.append(entry)
        del looker.pending[:taken]
        return entries
