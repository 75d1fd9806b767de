"""A request of a requester: what it had before is settled, one message put, together, as
core.engine.requester_put. All of it is plain, as omq.fast.done and omq.fast.put have it."""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.engine.state import IDEL, Core
from omq.fast.client_state import ClientState
from omq.fast.done import Dones
from omq.fast.frames import Frames
from omq.fast.party import Party
from omq.fast.put import Puts
from omq.fast.request import Request
from omq.format.message import derived_id, id_hash
from omq.format.wire import SETTLE, PutFlag

_ROW, _IDEL = SETTLE.size, IDEL
_FLAGS = int(PutFlag.PERSISTENT | PutFlag.GROUPED)


class Asks:
    """See the module."""

    def __init__(self, core: Core, frames: Frames, puts: Puts, dones: Dones) -> None:
        self._core, self._frames, self._puts, self._dones = core, frames, puts, dones

    def ask(self, r: Request, session: ClientState, area: Any, party: Party,
            batch_max: cython.Py_ssize_t) -> cython.bint:
        """An ASK, without the wait; the QPoolId of what was put is the answer. `area`: its
        bytes."""
        count: cython.Py_ssize_t = r.count
        at: cython.Py_ssize_t = count * _ROW
        ends: cython.bint = False
        if (session.queue == _IDEL or count >= batch_max or r.flags & ~_FLAGS
                or (count and not self._dones.all_of(area[:at], count, party))
                or not self._puts.single(r, session, area, at, party, 1 + count)):
            return False
        session.sequence = r.sequence
        self._puts.place_single(r, area, at, party)
        # from here on nothing can fail
        self._frames.open(party)
        if count:
            self._dones.finish(count, r.sequence, ends, party)
        self._puts.put_single(r, party, 0)
        self._frames.close()
        return True

    def key(self, qpool: cython.ulonglong) -> int:
        """The hash of the correlation id that a reply to this message has."""
        return id_hash(derived_id(self._core.uuid, qpool))
