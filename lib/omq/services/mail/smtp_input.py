"""What has come from a client and is not worked on yet: command lines, or pieces of a text.

Memory: one read of the socket and COMMAND_BYTES_MAX; of a line that is longer nothing is kept.
"""

from __future__ import annotations

from typing import Final

COMMAND_BYTES_MAX: Final = 2048
"""RFC 5321 asks for 512, its extensions for more; addresses have 320 each."""


class Input:
    """Of one session."""

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0  # what precedes it in the buffer is done
        self._overlong = False  # inside a command line that is too long

    def __bool__(self) -> bool:
        return self._at < len(self._buffer)

    def add(self, data: bytes) -> None:
        """This came, after the rest."""
        self._buffer = self.take() + data

    def take(self) -> bytes:
        """All of it, which is gone from here then."""
        rest = self._buffer[self._at :] if self._at else self._buffer
        self._buffer, self._at = b"", 0
        return rest

    def take_up_to(self, most: int) -> bytes:
        """The first of it; no more than this is copied."""
        data = self._buffer[self._at : self._at + most]
        self._at += len(data)
        if not self:
            self.take()  # an idle session keeps nothing of it
        return data

    def line(self) -> bytes | None:
        """The next command line with its end; None: not here yet. One that is too long comes
        empty, when its end has come."""
        end = self._buffer.find(b"\n", self._at) + 1
        if not end:
            if len(self._buffer) - self._at > COMMAND_BYTES_MAX:
                self.take()
                self._overlong = True
            return None
        overlong = self._overlong or end - self._at > COMMAND_BYTES_MAX
        line = b"" if overlong else self._buffer[self._at : end]
        self._at, self._overlong = end, False
        return line
