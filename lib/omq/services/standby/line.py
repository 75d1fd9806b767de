"""A line between a primary and a standby: two descriptors, one to read and one to write, with
pieces on them. Of the standby they are the output and the input of a command, which reaches the
primary: `ssh east omq standby send`. Who may run that command as the spool's owner may have its
messages; the line itself protects nothing.

Errors: StreamBroken: the other side has closed it, or says nothing for too long.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from typing import Final

from omq.base.amounts import duration
from omq.base.errors import StreamBroken
from omq.format.standby import Piece
from omq.services.standby.stream import Outgoing, PieceReader

READ_BYTES: Final = 1 << 20
END_S: Final = 5.0  # for a command to end by itself when its line was closed


class Line:
    """See the module. `silence_s`: longer the other side never says nothing."""

    def __init__(self, reading: int, writing: int, peer: str, silence_s: float) -> None:
        self.peer = peer
        self._reading, self._writing, self._silence_s = reading, writing, silence_s
        self._in, self._out = PieceReader(peer), Outgoing()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    def send(self, piece: Piece) -> None:
        """All of it; waits for room as long as the other side may be silent."""
        for part in self._out.encode(piece):
            view = memoryview(part)
            while len(view):
                try:
                    view = view[os.write(self._writing, view) :]
                except BlockingIOError:
                    if not select.select([], [self._writing], [], self._silence_s)[1]:
                        raise self._broken("it takes nothing for "
                                           f"{duration(self._silence_s)}") from None
                except OSError as error:
                    raise self._broken(error.strerror or "it is closed") from error

    def receive(self, timeout_s: float, also: int = -1) -> Iterator[Piece]:
        """The pieces that are there, when something is or the time is over."""
        watched = [self._reading] if also < 0 else [self._reading, also]
        ready, _, _ = select.select(watched, [], [], timeout_s)
        if self._reading not in ready:
            return
        try:
            data = os.read(self._reading, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise self._broken(error.strerror or "it is closed") from error
        if not data:
            raise self._broken("it has closed the line")
        yield from self._in.feed(data)

    def _broken(self, reason: str) -> StreamBroken:
        return StreamBroken(peer=self.peer, reason=reason)


class Command:
    """A command whose input and output are the line."""

    def __init__(self, words: Sequence[str], silence_s: float) -> None:
        try:
            self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise StreamBroken(peer=" ".join(words), reason=error.strerror or str(error)) from error
        assert self._child.stdin is not None and self._child.stdout is not None
        self.line = Line(self._child.stdout.fileno(), self._child.stdin.fileno(), " ".join(words),
                         silence_s)

    def close(self) -> None:
        """It ends when its line is closed, or is ended."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.close()
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
