"""The transfer that is coming in on a link, until it is whole.

A body that goes in pieces (sections) and is not small is written into a file without a name, by a
thread, as it comes: what is in memory of it is what that thread writes, and what the engine keeps
meanwhile, whose window closes. The file goes into a container when its message is put, or away.

Invariants: 1. what is held in memory and in files is counted (room); 2. nothing is read while
`busy`; 3. a file is closed by who has it: this, until `end`.

Errors: Untranslatable.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp import sections, translation
from omq.services.amqp.link_memory import LinkMemory
from omq.services.amqp.translation import Terms
from omq.services.amqp.untranslatable import Untranslatable

PIECES_BYTES: Final = 256 * 1024
"""A message of which so much is here goes on in pieces."""
_WRITE_BYTES: Final = 512 * 1024


@dataclass(slots=True)
class Arrived:
    """A message that is whole here; its body may lie in a file. `size` in memory, `filed` there."""

    message: Outgoing
    file: BinaryIO | None
    size: int
    filed: int

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


class Arrival:
    """Of one transfer. `again` is called when it takes more, in the event loop."""

    def __init__(self, room: LinkMemory, most: int, folder: Path,
                 again: Callable[[], None]) -> None:
        self._room, self._most, self._folder, self._again = room, most, folder, again
        self._parts = bytearray()  # as a whole, or those of the body that are to be written
        self._size = 0
        self._head = b""
        self._kind = ""
        self._rest: sections.Rest | None = None
        self._file: BinaryIO | None = None
        self._filed = 0
        self.error: Untranslatable | None = None  # of what came: it is rejected
        self._closed = False
        self.busy = self.discards = self.too_long = False

    @property
    def size(self) -> int:
        """Bytes that came."""
        return self._size

    def take(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self.discards:
            return
        if self._size > self._most + translation.HEAD_BYTES_MAX:
            # The rest is read before the link ends: unread it would keep its session's room.
            self.too_long = True
            self.give_up()
        else:
            self._keep(chunk)
            if self._room.full:
                self.give_up()

    def _keep(self, chunk: bytes) -> None:
        if self._rest is not None:
            try:
                chunk = self._rest.take(chunk)
            except Untranslatable as error:
                self.error = error
                self.give_up()
                return
        self._room.hold(len(chunk))
        self._parts += chunk
        if self._rest is None and len(self._parts) > PIECES_BYTES:
            self._begin_pieces()
        if self._rest is not None and len(self._parts) >= _WRITE_BYTES:
            self._write()

    def _begin_pieces(self) -> None:
        place = sections.body_place(self._parts)
        if place is None or self._size - place.begins > place.size:
            return
        self._head, self._kind = bytes(self._parts[: place.at]), place.kind
        body, self._parts = bytes(self._parts[place.begins :]), bytearray()
        self._room.release(len(body) + place.begins - len(self._head))
        self._rest = sections.Rest(place)
        self._keep(body)

    def _write(self) -> None:
        """In a thread: a disk that is slow holds up this link alone."""
        data, self._parts, self.busy = bytes(self._parts), bytearray(), True
        self._filed += len(data)
        self._room.file(len(data))
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, self._written, data).add_done_callback(
            lambda done: self._wrote(len(data), done.exception()))

    def _written(self, data: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 (closed by close)
        self._file.write(data)

    def _wrote(self, size: int, error: BaseException | None) -> None:
        self.busy = False
        self._room.release(size)
        if self._closed and self._file is not None:
            self._file.close()
            return
        if error is not None:  # no room on the disk: it may be sent again
            self.give_up()
        self._again()

    def flushed(self) -> bool:
        """All of it has come: whether nothing is left to be written. If not, `again` is called."""
        if self._rest is not None and self._parts and not self.discards:
            self._write()
        return not self.busy

    def give_up(self) -> None:
        """What is to come is read and thrown away."""
        self.discards = True
        self.close()

    def close(self) -> None:
        """Away with it."""
        self._closed = True
        self._room.release(len(self._parts))
        self._room.unfile(self._filed)
        self._parts, self._filed = bytearray(), 0
        if self._file is not None and not self.busy:
            self._file.close()

    def end(self, terms: Terms) -> Arrived:
        """The message; what it holds is the caller's to give back. Untranslatable."""
        try:
            if self.error is not None:
                raise self.error
            if self._rest is None:
                message = translation.decoded(bytes(self._parts), terms)
            else:
                foot = self._rest.end()
                message = translation.decoded(self._head, terms, self._kind, foot)
        except Untranslatable:
            self._room.release(len(self._head))
            self.close()
            raise
        size = len(self._parts) + len(self._head)
        return Arrived(message, self._file, size, self._filed)
