"""What is READY on a queue, in the order of hand-out: for readers that choose of it by themselves
and may not map the index (ADR 0062). Nothing is handed out.

A reader asks for what stands after a message by that one's priority and sequence, which no other
message has and a restart does not change: so it goes on wherever it was, whatever became of that
message. The next PIECE messages are found at once and kept for the reader: along the chains of the
queue, from its first message or the last one that was found, at the same cost at any depth. Where
that does not do (some that are READY are in a return lane or wait for others of their group, or
the message from which to go on is gone) numpy looks through the columns: a pass for so many.

Invariants: 1. `shows` alone says what a reader may see: what it could be handed; 2. a reader has
one piece at most, of the queue that it reads; 3. nothing here is durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from omq.base.arrays import Vector
from omq.core.engine.expiry import gone_by
from omq.core.engine.state import PRIORITIES, Core
from omq.format.index import EntryState, QueueFlag

PIECE: Final = 10_000
"""Messages of one pass: 120 KB for each reader that asks."""
_READY: Final = int(EntryState.READY)
_SEQUENCE_BITS: Final = 56
_SEQUENCE: Final = (1 << _SEQUENCE_BITS) - 1
Place = tuple[int, int]
"""Priority and sequence of a message."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """The next messages of a queue, by their keys. `last`: there were no more."""

    queue: int
    keys: Vector
    entries: Vector
    last: bool


class Backlog:
    """See the module."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._pieces: dict[int, _Piece] = {}  # by client

    def shows(self, queue: int, entry: int) -> bool:
        """Whether who reads this queue may see the message: READY there, written, not over, and
        get is not inhibited."""
        t = self._core.t
        return (not self.inhibited(queue) and 0 <= entry < t.entries.high
                and t.e_state[entry] == _READY and t.e_queue[entry] == queue
                and t.e_sequence[entry] < self._core.block.first_lsn  # else of this very group
                and not gone_by(self._core, entry))

    def inhibited(self, queue: int) -> bool:
        """Nothing of the queue is handed out."""
        return bool(self._core.t.q_flags[queue] & QueueFlag.SUSPENDED)

    def behind(self, client: int, queue: int, after: Place | None, want: int
               ) -> tuple[list[int], Place | None]:
        """Up to `want` entries after a place, None: from the first on; and the place behind which
        to go on, None: that was the end. There may be none although it goes on: no more than one
        piece is looked through."""
        key = -1 if after is None else _key(*after)
        piece = self._pieces.get(client)
        if piece is None or piece.queue != queue or after is None or (
                not piece.last and key >= int(piece.keys[-1])):
            piece = self._pieces[client] = (self._along(queue, key, piece)
                                            or self._piece(queue, key))
        sequences, found = self._core.t.e_sequence, list[int]()
        for at in range(int(np.searchsorted(piece.keys, key, side="right")), len(piece.keys)):
            entry, key = int(piece.entries[at]), int(piece.keys[at])
            if key & _SEQUENCE == sequences[entry] and self.shows(queue, entry):
                found.append(entry)
                if len(found) == want:
                    return found, _place(key)
        return found, None if piece.last else _place(key)

    def forget(self, client: int) -> None:
        """It reads no more."""
        self._pieces.pop(client, None)

    def _along(self, queue: int, key: int, before: _Piece | None) -> _Piece | None:
        """The next piece along the chains; None: not all that are READY are in them, or it
        cannot go on after the piece `before`."""
        core, t = self._core, self._core.t
        if core.lane_top(queue) is not None or core.groups.waiting[queue] or (
                queue in core.limited):
            return None
        chain = (queue + 1) * PRIORITIES - 1
        at = t.q_head[chain]
        if key >= 0:
            if before is None or before.queue != queue or key != int(before.keys[-1]):
                return None
            entry, (priority, sequence) = int(before.entries[-1]), _place(key)
            if (t.e_sequence[entry] != sequence or t.e_state[entry] != _READY
                    or t.e_queue[entry] != queue):
                return None
            chain, at = queue * PRIORITIES + priority, t.e_next[entry]
        entries, behind = list[int](), t.e_next
        while len(entries) < PIECE:
            if at:
                entries.append(at - 1)
                at = behind[at - 1]
            elif chain > queue * PRIORITIES:
                chain -= 1
                at = t.q_head[chain]
            else:
                break
        found = np.array(entries, dtype=np.uint32)
        return _Piece(queue, self._keys(found), found, len(entries) < PIECE)

    def _keys(self, entries: Vector) -> Vector:
        v = self._core.t.v
        return ((PRIORITIES - 1 - v["e_priority"][entries].astype(np.int64)) << _SEQUENCE_BITS
                | v["e_sequence"][entries].astype(np.int64))

    def _piece(self, queue: int, key: int) -> _Piece:
        v, high = self._core.t.v, self._core.t.entries.high
        found = np.flatnonzero((v["e_queue"][:high] == queue) & (v["e_state"][:high] == _READY))
        keys = self._keys(found)
        found, keys = found[keys > key], keys[keys > key]
        last = len(keys) <= PIECE
        if not last:
            nearest = np.argpartition(keys, PIECE)[:PIECE]
            found, keys = found[nearest], keys[nearest]
        order = np.argsort(keys)
        return _Piece(queue, keys[order], found[order].astype(np.uint32), last)


def _key(priority: int, sequence: int) -> int:
    """The place in the order of hand-out as one number."""
    return PRIORITIES - 1 - priority << _SEQUENCE_BITS | sequence


def _place(key: int) -> Place:
    return PRIORITIES - 1 - (key >> _SEQUENCE_BITS), key & _SEQUENCE
