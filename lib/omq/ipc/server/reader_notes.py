"""The manager's side of readers' notes (ADR 0035): when to look at one, and those of dead managers.

A reader whose program settles a message soon after its last request (ipc.client.reader.PROMPT_S)
only notes it, since the next request is near; later than that it asks at once. So the manager looks
at a note once, LOOK_NS after each time that it answered, and carries out what it finds: a
settlement waits no longer, and a reader that is silent costs nothing.

What a look carried out is remembered until the reader's next settlements, which say it once more.

After kill -9 of a manager its channels are there still, and readers that do not know yet go on to
note in them. The next manager keeps those attached until the grace time of its limbo is over. Whose
note it is says the owner of the segment, which the dead manager set, next to the user of the token
in the journal: nobody can speak for another user's reader.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import cast

import sysv_ipc

from omq.base.errors import SpoolFull
from omq.core.engine import reader_notes
from omq.core.engine.engine import Engine
from omq.core.engine.reader_notes import OldNote, ReaderNote
from omq.core.engine.settle import Verdict
from omq.fast.look_line import LookLine
from omq.format.poolctrl import Answered
from omq.format.wire import NOTE_BYTES
from omq.ipc.server.sessions import Session


class Looks(LookLine):
    """When to look at whose note; in the order of time."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def after(self, session: Session) -> None:
        """It was answered in this group."""
        self.answered(session, self._engine.mono_ns)

    def look(self) -> None:
        """At those whose time has come, in a group."""
        now = self._engine.mono_ns
        while self.line and self.line[0][0] <= now:
            session = cast(Session, self.line.popleft()[1])
            if session.look_ns > now:  # it was answered once more since
                self.line.append((session.look_ns, session))
                continue
            session.look_ns = 0
            if not session.gone and session.party.active:
                self._carry_out(session)

    @staticmethod
    def without(session: Session, verdicts: list[Verdict]) -> list[Verdict]:
        """Those of a request that no look has carried out before it."""
        if not session.noted:
            return verdicts
        known, session.noted = session.noted, set()
        return [verdict for verdict in verdicts if (verdict.qpool, verdict.lease) not in known]

    def _carry_out(self, session: Session) -> None:
        found = reader_notes.read(session.note)
        if found is not None and found.verdicts:
            try:
                self._engine.settle(session.party, found.verdicts, 0)
            except SpoolFull:  # with the next request
                return
            session.noted.update((v.qpool, v.lease) for v in found.verdicts)


@dataclass(slots=True)
class LeftNote:
    """The note in a channel that a dead manager made, attached until `close`."""

    segment: sysv_ipc.SharedMemory
    view: memoryview

    def is_final(self) -> bool:
        """Its reader is attached while it lives, has something in hand and no other manager."""
        return bool(self.segment.number_attached <= 1)

    def read(self) -> ReaderNote | None:
        return reader_notes.read(self.view)

    def close(self) -> None:
        self.view.release()
        with contextlib.suppress(sysv_ipc.Error):
            self.segment.detach()


def left_note(segment: sysv_ipc.SharedMemory) -> LeftNote | None:
    """The note in a segment that is about to be removed, if it is one with a note."""
    if segment.size <= NOTE_BYTES:
        return None
    whole = memoryview(segment)
    view = whole[len(whole) - NOTE_BYTES :].toreadonly()
    whole.release()
    note = LeftNote(segment, view)
    if note.read() is None:
        view.release()
        return None
    return note


def notes_of(left: list[LeftNote], clients: dict[int, Answered]) -> dict[int, OldNote]:
    """By token, of clients that the journal knows as that user's; the others are closed."""
    out: dict[int, OldNote] = {}
    for note in left:
        found = note.read()
        known = clients.get(found.token) if found is not None else None
        if found is None or known is None or known.uid != note.segment.uid or found.token in out:
            note.close()
        else:
            out[found.token] = note
    return out
