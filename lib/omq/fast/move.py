"""A reply: one message finished and one put, together, as core.engine.moves. Both are plain, as
omq.fast.done and omq.fast.put have it; all other moves are the engine's."""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.engine.state import Core
from omq.fast.client_state import ClientState
from omq.fast.done import Dones
from omq.fast.frames import Frames
from omq.fast.party import Party
from omq.fast.put import Puts
from omq.fast.request import Request
from omq.format.journal import FRAME
from omq.format.wire import SETTLE

_SETTLE, _PAYLOAD = SETTLE.size, SETTLE.size + FRAME.size


class Moves:
    """See the module."""

    def __init__(self, core: Core, frames: Frames, puts: Puts, dones: Dones) -> None:
        self._core, self._frames, self._puts, self._dones = core, frames, puts, dones

    def reply(self, r: Request, session: ClientState, area: Any, party: Party) -> cython.bint:
        """A MOVE; the QPoolId of what was put is the answer. `area`: its bytes."""
        end: cython.Py_ssize_t = _PAYLOAD
        ends: cython.bint = False
        end += r.length
        if r.parts or r.count != 1 or end > len(area):
            return False
        payload = area[_PAYLOAD:end]
        if (not self._dones.one(area[:_SETTLE], party)
                or not self._puts.several(area[_SETTLE:_PAYLOAD], 1, payload, session, party,
                                          0, 0)
                or not self._frames.fits(2, r.length)):
            return False
        self._puts.place(1, party, payload)
        # from here on nothing can fail
        session.sequence = r.sequence
        self._frames.open(party)
        self._frames.unit = self._frames.first_lsn + self._frames.count
        self._dones.finish(1, r.sequence, ends, party)
        self._puts.put(1, party, payload, r.sequence)
        self._frames.unit = 0
        self._frames.close()
        return True
