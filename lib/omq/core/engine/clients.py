"""The rows of clients in the index, and the frames of readers that come and go.

A row is its client's from `came` to `gone`; who has which row is for the wire to say (ipc.server).
"""

from __future__ import annotations

from omq.base.errors import SpoolFull
from omq.core.engine.state import Core, Party
from omq.format.index import Counter, ReaderFlag
from omq.format.journal import FrameType


class Clients:
    """See the module."""

    def __init__(self, core: Core) -> None:
        self._core, self._t = core, core.t

    def came(self, party: Party, name: str, started: int) -> None:
        """A client has its row from now on. `started`: of its process, in clock ticks."""
        t, row, now = self._t, party.slot, self._core.now_ns
        t.r_pid[row], t.r_uid[row], t.r_client[row] = party.pid, party.uid, party.client
        t.r_started[row] = started
        t.r_registered[row] = t.r_request[row] = now
        t.r_response[row] = t.r_processed[row] = t.r_queue[row] = t.r_timeout[row] = 0
        t.r_flags[row] = ReaderFlag.IN_USE
        t.set_reader_name(row, name)
        t.set_reader_selector(row, "")

    def gone(self, party: Party, name: str, queue: int) -> None:
        """Its row is free. `queue`: that it read, 0 for none."""
        if queue:
            self._note(party, name, queue, FrameType.READER_DOWN)
        self._t.r_flags[party.slot] = 0

    def count(self, clients: int, rows_high: int) -> None:
        """How many there are, and up to which row."""
        counters = self._t.counters
        counters[Counter.CLIENTS] = clients
        counters[Counter.READERS_HIGH] = rows_high

    def reads(self, party: Party, name: str, queue: int, *, auxiliary: bool) -> None:
        """It is a reader of this queue now."""
        t, row = self._t, party.slot
        kind = ReaderFlag.AUXILIARY if auxiliary else ReaderFlag(0)
        t.r_queue[row], t.r_flags[row] = queue, ReaderFlag.IN_USE | ReaderFlag.READS | kind
        self._note(party, name, queue, FrameType.READER_UP)

    def reads_no_more(self, party: Party, name: str, queue: int) -> None:
        """It is not a reader any more; `queue`: that it read, 0 for none."""
        if queue:
            self._note(party, name, queue, FrameType.READER_DOWN)
        t, row = self._t, party.slot
        t.r_flags[row], t.r_queue[row] = ReaderFlag.IN_USE, 0
        t.set_reader_selector(row, "")

    def selects(self, party: Party, where: str) -> None:
        """What it chooses by; empty: it takes whatever is next. It is shown, and means nothing to
        the manager: a reader tests its selector itself (ADR 0052)."""
        self._t.set_reader_selector(party.slot, where)

    def asked(self, party: Party) -> None:
        """It sent a request."""
        self._t.r_request[party.slot] = self._core.now_ns

    def answered(self, party: Party) -> None:
        """It gets an answer."""
        self._t.r_response[party.slot] = self._core.now_ns

    def _note(self, party: Party, name: str, queue: int, kind: FrameType) -> None:
        block = self._core.block
        try:
            block.reserve(1, len(name))
        except SpoolFull:  # history lacks a line; a reader must be able to come and go all the same
            return
        block.frame(kind, 0, queue, 0, client=party.client, pid=party.pid, uid=party.uid,
                    payload=name.encode())
