"""The parts of a unit of work, of which each is a request: those that are kept until its end, which
is the last one (ipc.server.units).

A part that is plain, as omq.fast.done and omq.fast.put have it, is kept as bytes, and nothing else
happens: at its end all parts are judged together, as if one request had said them all, and carried
out. So a part may be refused when others are kept already, and nothing has to be taken back. What
the bytes say is looked at when they come, as far as the engine does then, and again at the end;
they are copies.

In the middle of a crash: what is kept is gone, and nobody was promised anything. All frames of a
unit are in one block, as those of a unit that one request says (core.engine.units).
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.core.engine.state import Core
from omq.fast.client_state import ClientState
from omq.fast.frames import Frames
from omq.fast.party import Party
from omq.fast.put import Puts
from omq.fast.request import Request
from omq.format.journal import FRAME
from omq.format.wire import SETTLE, Settlement

_SETTLE, _FRAME, _DONE = SETTLE.size, FRAME.size, int(Settlement.DONE)


class Parts:
    """See the module. `plane`: ipc.server.units, which has the limits and what is staged. After
    `whole`: the unit has `taken` messages and puts `count`, of which the first `kept` were staged,
    with `base` bytes of payloads; in its last request it ends at `end`."""

    def __init__(self, core: Core, frames: Frames, puts: Puts, plane: Any) -> None:
        self._core, self._frames, self._puts, self._plane = core, frames, puts, plane
        self.taken = self.count = self.kept = self.base = self.end = 0
        self._heads = self._bodies = 0  # where they begin in the request
        self._staged = False

    def whole(self, r: Request, session: ClientState, area: Any, party: Party) -> Any:
        """SETTLE rows, FRAMEs and payloads of the unit that this request ends; None: it is not
        plain, or this is not all of it. `area`: its bytes."""
        if not self._has_room(r, session, area):
            return None
        rows, heads = area[: self._heads], area[self._heads : self._bodies]
        bodies = area[self._bodies : self.end]
        staged = self._plane.of(session)
        self._staged = staged is not None
        if staged is not None:
            if not staged.is_plain:
                return None
            rows = b"".join((staged.rows, rows))
            heads = b"".join((staged.heads, heads))
            bodies = memoryview(b"".join((staged.bodies, bodies)))
            self.kept, self.base = len(staged.heads) // _FRAME, len(staged.bodies)
            self.taken, self.count = len(rows) // _SETTLE, len(heads) // _FRAME
        wanted: cython.longlong = r.want
        if r.argument != self.taken or wanted != self.count or party.active != self.taken:
            return None
        return rows, heads, bodies

    def fits(self, frames: cython.Py_ssize_t, payload_bytes: cython.Py_ssize_t) -> cython.bint:
        """As Frames.fits. What has several parts may be larger than all that a group collects, so
        `begin` makes room for it."""
        return self._staged or self._frames.fits(frames, payload_bytes)

    def begin(self, session: ClientState, sequence: cython.ulonglong, frames: cython.Py_ssize_t,
              payload_bytes: cython.Py_ssize_t) -> None:
        """What `fits` was asked of is carried out, or refused: it is over for the session. For
        several parts the block is written before, if they do not fit. SpoolFull, DiskError."""
        session.sequence = sequence
        if self._staged:
            self._plane.forget(session)
            self._core.block.reserve(frames, payload_bytes)

    def stage(self, r: Request, session: ClientState, area: Any) -> cython.bint:
        """A STAGE: keep it."""
        i: cython.Py_ssize_t
        if not self._has_room(r, session, area) or (r.length and not self.count):
            return False
        staged = self._plane.of(session)
        if staged is not None:
            if not staged.is_plain:
                return False
            self.base = len(staged.bodies)
        rows: bytes = bytes(area[: self._heads])
        for i in range(self.taken):
            if rows[_SETTLE * i] != _DONE:
                return False
        bodies, heads = bytes(area[self._bodies : self.end]), b""
        if self.count:
            heads = self._puts.kept(area[self._heads : self._bodies], self.count, bodies, session,
                                    self.base)
            if not heads:
                return False
        session.sequence = r.sequence
        self._plane.keep(session, rows, heads, bodies)
        return True

    def _has_room(self, r: Request, session: ClientState, area: Any) -> cython.bint:
        """Does what the request says lie in its area, and may the unit have so much more?"""
        self.taken, self.count, self.kept, self.base = r.parts, r.count, 0, 0
        self._heads = _SETTLE * self.taken
        self._bodies = self._heads + _FRAME * self.count
        self.end = self._bodies
        self.end += r.length
        return bool(self.end <= len(area) and self._plane.has_room(
            session, self.taken + self.count, (self.taken + self.count) * _FRAME + r.length))
