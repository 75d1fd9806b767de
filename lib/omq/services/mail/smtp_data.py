"""The text of a message while it comes: bounded memory, dots undone, the end found.

`Memory` is one count for all sessions (`smtp_memory_bytes_max`). A text takes its share before it
is kept; where none is left, or the text itself is too much, what is held is let go at once and the
rest is read and thrown away to its end, which is then answered with a refusal. So what a client
sends, in whatever lines, costs at most what the count says and one piece of the socket.

A text in memory costs twice its length for a moment: the pieces, and the whole that is put. Both
are counted.

Rules: 1. "CR LF . CR LF" alone ends a text (RFC 5321 4.1.1.4), "." and CRLF at its very start an
empty one; no other mixture of CR, LF and dots does. 2. A dot at the start of a line behind CRLF is
taken away (4.5.2), no other byte changes. 3. The work is linear in the bytes, whatever they are.

No errors: `refusal` is the reply for a text that cannot be taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

END: Final = b"\r\n.\r\n"
COPIES: Final = 2
"""The pieces of a text and the whole made from them."""
_KEPT: Final = len(END) - 1
_SHARE_BYTES: Final = 64 * 1024
"""Memory is taken in such steps, so that the count is not asked for every few bytes."""

TOO_LARGE: Final = "552 5.3.4 the message is too large"
LONG_LINE: Final = "500 5.5.2 a line is too long"
NO_MEMORY: Final = "452 4.3.1 insufficient system memory, try again later"


@dataclass(slots=True)
class Memory:
    """Bytes of texts that all sessions of a server may hold."""

    limit: int
    used: int = 0

    def take(self, size: int, beyond: int = 0) -> bool:
        """Whether `size` more bytes may be held; they are counted then. `beyond`: for whom room is
        kept that others do not have."""
        if self.used + size > self.limit + beyond:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        """These are held no longer."""
        self.used -= size
        assert self.used >= 0, "memory given back twice"


class Text:
    """One text after a `head` of ours. Feed it until `ended`, then `take` or `drop` it; `drop` may
    come at any time."""

    def __init__(self, memory: Memory, size_max: int, line_max: int, head: bytes = b"") -> None:
        self.refusal = ""
        self.ended = False
        self.received = 0
        self._memory = memory
        self._size_max = size_max + len(head)
        self._line_max = line_max
        self._pieces = bytearray(head)
        self._taken = 0
        self._cr = b""
        self._held = b"\r\n"  # what may begin an end; at first a line end that is not sent
        self._skip = len(self._held)
        self._line = 0  # bytes of the line that is under way

    def feed(self, data: bytes) -> bytes:
        """Take these bytes; returns those after the end of the text."""
        self.received += len(data)
        whole = self._held + data
        end = whole.find(END)
        if end >= 0:
            self.ended = True
            self._keep(whole[: end + 2])
            return whole[end + len(END) :]
        cut = _cut(whole)
        self._held = whole[cut:]
        self._keep(whole[:cut])
        return b""

    def feed_plain(self, data: bytes, *, last: bool) -> None:
        """Take these bytes as they are, without dots and end: a length says where it ends."""
        self.received += len(data)
        whole = self._cr + data
        self._cr = b"\r" if whole.endswith(b"\r") and not last else b""  # lines end in whole CRLFs
        self._store(whole[: len(whole) - len(self._cr)])
        self.ended = last

    def take(self) -> bytes:
        """Head and text; their memory stays counted until `drop`."""
        assert self.ended and not self.refusal
        found = bytes(self._pieces)
        self._pieces = bytearray()
        return found

    def drop(self) -> None:
        """Hold nothing any more."""
        self._pieces = bytearray()
        self._memory.give(self._taken)
        self._taken = 0

    def _keep(self, piece: bytes) -> None:
        if self.refusal or not piece:
            return
        text = piece.replace(b"\r\n.", b"\r\n")
        if self._skip:
            skipped = min(self._skip, len(text))
            text, self._skip = text[skipped:], self._skip - skipped
        self._store(text)

    def _store(self, text: bytes) -> None:
        if self.refusal or not text:
            return
        if self._too_long(text):
            self._refuse(LONG_LINE)
        elif len(self._pieces) + len(text) > self._size_max:
            self._refuse(TOO_LARGE)
        elif not self._room(len(self._pieces) + len(text)):
            self._refuse(NO_MEMORY)
        else:
            self._pieces += text

    def _room(self, size: int) -> bool:
        need = COPIES * size - self._taken
        if need <= 0:
            return True
        share = max(need, min(_SHARE_BYTES, COPIES * self._size_max - self._taken))
        if not self._memory.take(share):
            share = need  # the last of it
            if not self._memory.take(share):
                return False
        self._taken += share
        return True

    def _refuse(self, reply: str) -> None:
        self.refusal = reply
        self.drop()

    def _too_long(self, text: bytes) -> bool:
        """Whether a line is longer than allowed; jumps from line end to line end."""
        at, limit = -self._line, self._line_max + 2
        while len(text) - at > limit:
            end = text.rfind(b"\r\n", max(0, at), at + limit)
            if end < 0 or end + 2 <= at:
                return True
            at = end + 2
        last = text.rfind(b"\r\n", max(0, at))
        self._line = len(text) - (last + 2 if last >= 0 else at)
        return False


def _cut(whole: bytes) -> int:
    """How much of it is text for certain: no end and no dot to undo lies across the cut."""
    cut = max(0, len(whole) - _KEPT)
    for back in (2, 1):
        if whole[max(0, cut - back) : cut - back + 3] == b"\r\n.":
            return max(0, cut - back)
    return cut - 1 if whole[cut - 1 : cut] == b"\r" else cut  # lines are counted by whole CRLFs
