"""A reader's note: the messages that its program is processing, and how it settled them before a
request tells the manager. It lies in the reader's channel; the manager reads it when the
reader has died, and looks at it when the reader is silent (ADR 0035).

At a kill -9: a row counts once `count` covers it, which is one store after the row; `current` is
one store. So a note is always what the program had said up to some instruction. Compiled, these are
still calls of the interpreter's memoryview, which no compiler reorders. Without a channel (the
manager is away) nothing is noted; it is noted in the next channel.
"""

from __future__ import annotations

from omq.base import shim as cython
from omq.format.wire import (
    IN_WORK,
    NOTE,
    NOTE_MAGIC,
    NOTE_ROWS,
    NOTE_TEXT_AT,
    NOTE_TEXT_BYTES,
    SETTLE,
)

_MAGIC, _CURRENT, _LISTED, _TOKEN = (NOTE.offset(name) // 8
                                     for name in ("magic", "current", "listed", "token"))
_COUNT, _TEXT = NOTE.offset("count") // 4, NOTE.offset("text") // 4
_ROWS_AT, _ROW, _ROWS_MAX = NOTE.size, SETTLE.size, NOTE_ROWS
_TEXT_AT, _TEXT_MAX = NOTE_TEXT_AT, NOTE_TEXT_BYTES


class Note:
    """See the module. Of one reader; it goes from channel to channel."""

    def __init__(self) -> None:
        self._area: memoryview | None = None
        self._longs = self._ints = memoryview(b"")
        self._rows = self._text = 0

    def attach(self, area: memoryview, token: int) -> None:
        """The note of a new channel, empty. `token`: the name half of the client's."""
        head = area[: NOTE.size]
        self._area, self._longs, self._ints = area, head.cast("Q"), head.cast("I")
        head.release()
        self._rows = self._text = 0
        self._longs[_TOKEN] = token
        self._longs[_MAGIC] = NOTE_MAGIC

    def detach(self) -> None:
        """Before the channel goes."""
        if self._area is not None:
            self._longs.release()
            self._ints.release()
            self._area.release()
            self._area = None

    def current(self, lease: cython.ulonglong) -> None:
        """The message of this lease is being processed now (0: none)."""
        if self._area is not None:
            self._longs[_CURRENT] = lease

    def listed(self, lease: cython.ulonglong) -> None:
        """The program got a list; this is its highest lease. 0: it works on them one by one."""
        if self._area is not None:
            self._longs[_LISTED] = lease

    def settled(self, row: bytes, text: bytes = b"") -> cython.bint:
        """A settlement, as the request will say it; its reason is at `text` so far. False: the note
        is full, so the request must go now."""
        area = self._area
        if area is None:
            return True
        rows: cython.Py_ssize_t = self._rows
        at: cython.Py_ssize_t = self._text
        begin: cython.Py_ssize_t = _ROWS_AT + rows * _ROW
        if rows >= _ROWS_MAX or at + len(text) > _TEXT_MAX:
            return False
        area[begin : begin + _ROW] = row
        if text:
            begin = _TEXT_AT + at
            area[begin : begin + len(text)] = text
            self._text = at + len(text)
            self._ints[_TEXT] = self._text
        self._rows = rows + 1
        self._ints[_COUNT] = self._rows
        return True

    def also_in_work(self, entry: int, qpool: int, lease: int) -> bool:
        """One more besides the current one. False: the note is full."""
        return self.settled(SETTLE.pack(IN_WORK, 0, 0, entry, qpool, lease, 0, 0, 0))

    def clear(self) -> None:
        """A request has carried the settlements."""
        self._rows = self._text = 0
        if self._area is not None:
            self._ints[_COUNT] = 0
            self._ints[_TEXT] = 0
