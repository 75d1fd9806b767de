"""What a reader's selector chooses of its queue (core.select, ADR 0052).

The selector is tested here, in the process that asks. What lies on the queue is browsed once, in
the order of hand-out; from then on the manager tells what arrives (Operation.LOOK), and only that
is tested. What is chosen the reader takes under its cursor, or somebody else was quicker. Operators
read the index; who may only `get` gets rows and fetches payloads (ipc.client.rows_from_manager).

Errors: BadSelector, NoAuthority; those of a browse.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from omq.base.errors import LookBehind
from omq.core.index.rows import ENTRY_COLUMNS, MESSAGE_COLUMNS, RawEntry
from omq.format.index import EntryState
from omq.format.wire import GIVEN, REPLY
from omq.ipc.client.browse_selector import chooser
from omq.ipc.client.browsed import Browsed
from omq.ipc.client.rows_from_manager import rows_of

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire
    from omq.ipc.client.message import Message
    from omq.ipc.client.rows_from_manager import Rows

_READY: Final = int(EntryState.READY)
_STATE: Final = ENTRY_COLUMNS.index("e_state")
_QPOOL: Final = MESSAGE_COLUMNS.index("m_qpool")


class Takes(Protocol):
    """What it needs of the reader."""

    @property
    def queue(self) -> str: ...

    def _take_under(self, row: Browsed) -> list[Message]: ...

    def _look(self, wait_s: float, want: int = ...) -> int: ...


class Selected:
    """See the module. Of one reader and one selector."""

    def __init__(self, reader: Takes, wire: Wire, where: str) -> None:
        self.where = where
        self._reader, self._wire, self._queue = reader, wire, reader.queue
        self._fresh = True  # what the manager noted for another selector does not count
        self._chosen = chooser(where)
        self._view: Rows | None = None
        self._names: list[str] = []
        self._rows: Iterator[RawEntry] = iter(())

    def take(self, n: int, timeout_s: float | None) -> list[Message]:
        """Messages that are chosen: as many as are found at once, up to `n`; empty when the time is
        over, and on `wake` and `interrupt`."""
        reader, link = self._reader, self._wire.link
        found: list[Message] = []
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        last = False  # somebody has woken it
        while not link.interrupted:
            row = self._next()
            if row is not None:
                found += reader._take_under(row)  # or somebody was quicker
                if len(found) == n:
                    break
                continue
            if found or last:
                break
            left_s = -1.0 if ends is None else max(0.0, ends - time.monotonic())
            last = link.woken
            over = last or left_s == 0
            if not self._look(0.0 if over else left_s) and over:
                break
        return found

    def _look(self, wait_s: float) -> bool:
        """Wait for arrivals. Whether there is something to test."""
        fresh, self._fresh = self._fresh, False
        try:
            if not fresh:
                count = self._reader._look(wait_s)
                self._arrived(count)
                return count > 0
            self._reader._look(0.0, 1)
        except LookBehind:
            pass  # it does not know what came
        self.close()
        self._view = view = rows_of(self._wire)
        self._names = view.queue_names()
        self._rows = view.raw_entries(self._queue) if view.hands_out(self._queue) else iter(())
        return True

    def _arrived(self, count: int) -> None:
        """Arrivals, the rows of the reply; all before them was looked at."""
        view, reply = self._view, self._wire.link.reply
        assert view is not None, "the first look is refused, and begins with the whole queue"
        named = [GIVEN.unpack_from(reply, REPLY.size + i * GIVEN.size) for i in range(count)]
        qpools = {row[GIVEN.names.index("qpool")] for row in named}
        self._rows = (raw for raw in view.raw_numbered([row[0] for row in named])
                      if raw[3][_QPOOL] in qpools)

    def _next(self) -> Browsed | None:
        """The next one that is chosen, of those that can be handed out; None: look again."""
        view = self._view
        for raw in self._rows:
            assert view is not None
            if raw[1][_STATE] == _READY:
                row = Browsed(self._wire, view, self._names, raw)
                if row.queue == self._queue and self._chosen(row):
                    return row
        return None

    def close(self) -> None:
        """Let go of the index."""
        if self._view is not None:
            self._view.close()
            self._view, self._rows = None, iter(())
