"""A line between a primary and a standby, with pieces on it, in both directions. It is one of

* two descriptors, one to read and one to write. Of the standby they are the output and the input of
  a command, which reaches the primary: `ssh east omq standby send`. Who may run that command as the
  spool's owner may have its messages; the line itself protects nothing;
* a socket with TLS: services.standby.dialling, services.standby.listener.

Errors: StreamBroken: the other side has closed it, or takes nothing for too long.
"""

from __future__ import annotations

import os
import select
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from omq.base.amounts import duration
from omq.base.errors import StreamBroken
from omq.format.standby import Piece
from omq.services.standby.stream import Outgoing, PieceReader

READ_BYTES: Final = 1 << 20
PIPE_BYTES: Final = 1 << 16
"""A pipe has no more, and memory for more would be taken and given back with each read."""
TOGETHER_BYTES: Final = 1 << 16
END_S: Final = 5.0  # for a command to end by itself when its line was closed


class StreamEnds(Protocol):
    """What a line lies on. `reading`, `writing`: descriptors to wait for; read and write do not
    wait (BlockingIOError)."""

    reading: int
    writing: int

    def read(self) -> bytes: ...

    def write(self, data: memoryview) -> int: ...

    def buffered(self) -> bool: ...


class Pipes:
    """Two descriptors, which stay their owner's."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading, self.writing = reading, writing
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    def read(self) -> bytes:
        """Some of what is there; empty: it was closed. BlockingIOError, OSError."""
        return os.read(self.reading, PIPE_BYTES)

    def write(self, data: memoryview) -> int:
        """How much was taken. BlockingIOError, OSError."""
        return os.write(self.writing, data)

    def buffered(self) -> bool:
        """Is there something that a look at the descriptor does not show?"""
        return False


class Secured:
    """A socket with TLS, which stays its owner's."""

    def __init__(self, line: ssl.SSLSocket) -> None:
        self._line = line
        line.setblocking(False)  # noqa: FBT003  (by position alone)
        self.reading = self.writing = line.fileno()

    def read(self) -> bytes:
        """As Pipes.read."""
        parts, room = [], READ_BYTES
        try:
            while room > 0 and (part := self._line.recv(room)):
                parts.append(part)
                room -= len(part)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            if not parts:
                raise BlockingIOError from error
        return b"".join(parts)

    def write(self, data: memoryview) -> int:
        """As Pipes.write."""
        try:
            return self._line.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def buffered(self) -> bool:
        """A record is decrypted as a whole, so the rest of it is here already."""
        return self._line.pending() > 0


class Line:
    """See the module. `silence_s`: so long the other side may take nothing; `other_ready`: at the
    last wait the other descriptor had something."""

    def __init__(self, ends: StreamEnds, peer: str, silence_s: float) -> None:
        self.peer, self.silence_s = peer, silence_s
        self.other_ready = True  # nobody has looked yet
        self._ends = ends
        self._in, self._out = PieceReader(peer), Outgoing()
        self._waits: dict[int | None, select.poll] = {}

    def send(self, piece: Piece) -> None:
        """All of it; waits for room as long as the other side may be silent."""
        head, payload = self._out.encode(piece)
        together = len(payload) <= TOGETHER_BYTES  # the other side wakes once
        for part in (b"".join((head, payload)),) if together else (head, payload):
            view = memoryview(part)
            while len(view):
                try:
                    view = view[self._ends.write(view) :]
                except BlockingIOError:
                    if not _room(self._ends.writing, self.silence_s):
                        raise self._broken("it takes nothing for "
                                           f"{duration(self.silence_s)}") from None
                except OSError as error:
                    raise self._broken(error.strerror or "it is closed") from error

    def receive(self, timeout_s: float, other: int | None = None) -> Iterator[Piece]:
        """The pieces that are there, when something is or the time is over. `other`: a descriptor
        that ends the wait, too."""
        if self._ends.buffered():
            self.other_ready = True  # it may be: nobody looks now
        else:
            found = [each for each, _ in self._wait(other).poll(timeout_s * 1000)]
            self.other_ready = other in found
            if self._ends.reading not in found:
                return
        try:
            data = self._ends.read()
        except BlockingIOError:
            return
        except OSError as error:
            raise self._broken(error.strerror or "it is closed") from error
        if not data:
            raise self._broken("it has closed the line")
        yield from self._in.feed(data)

    def _wait(self, other: int | None) -> select.poll:
        """For something to read here, or from the other descriptor. Made once for each: it has
        their numbers alone."""
        wait = self._waits.get(other)
        if wait is None:
            wait = self._waits[other] = select.poll()  # select takes fewer descriptors
            for each in (self._ends.reading, other):
                if each is not None:
                    wait.register(each, select.POLLIN)
        return wait

    def _broken(self, reason: str) -> StreamBroken:
        return StreamBroken(peer=self.peer, reason=reason)


def _room(descriptor: int, timeout_s: float) -> bool:
    """Can something be written?"""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(timeout_s * 1000))


class Connection(Protocol):
    """A way to the primary. `close`: it is given back, whatever state it is in."""

    line: Line

    def close(self) -> None: ...


class Command:
    """A command whose input and output are the line."""

    def __init__(self, words: Sequence[str], silence_s: float) -> None:
        try:
            self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise StreamBroken(peer=" ".join(words), reason=error.strerror or str(error)) from error
        assert self._child.stdin is not None and self._child.stdout is not None
        self.line = Line(Pipes(self._child.stdout.fileno(), self._child.stdin.fileno()),
                         " ".join(words), silence_s)

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
