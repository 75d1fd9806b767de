"""A message in a reader's hands: its body, its properties, and the ways to end the work on it.

The payload is read and checked against the submitter's CRC on first use: what was put is what is
read, or BodyDamaged says where. A large body lies in a container file with a CRC of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omq.base.checksum import crc32c
from omq.base.clock import NS_PER_S as NS
from omq.base.errors import BodyDamaged, BodyUnavailable
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.location import number_of
from omq.format.message import Descriptor
from omq.format.wire import GivenFlag, Settlement
from omq.ipc.bodies import check_container
from omq.ipc.outgoing import Outgoing
from omq.storage import containers

if TYPE_CHECKING:
    from omq.ipc.reader import Reader

_CONTAINER = int(GivenFlag.CONTAINER)


class Extent:
    """Payloads that lie back to back in one file: read with one call when the first is wanted."""

    __slots__ = ("_data", "_reader", "_word", "end", "start")

    def __init__(self, reader: Reader, word: int, start: int, end: int) -> None:
        self._reader = reader
        self._word = word
        self.start = start
        self.end = end
        self._data: bytes | None = None

    def piece(self, offset: int, length: int) -> bytes | None:
        """One payload; None when the extent cannot be read (moved meanwhile: ask one by one)."""
        data = self._data
        if data is None:
            try:
                data = self._reader.bodies.files.read(self._word, self.start, self.end - self.start)
            except BodyUnavailable:
                data = b""
            self._data = data
        at = offset - self.start
        return data[at : at + length] if data else None


@dataclass(frozen=True, slots=True)
class Copied:
    """A payload that came with the hand-out."""

    data: bytes

    def piece(self, offset: int, length: int) -> bytes | None:
        """All of it."""
        del offset, length
        return self.data


class Message:
    """A message in hand. The body is read and checked against the submitter's CRC on first use."""

    __slots__ = ("_bounds", "_crc", "_extent", "_flags", "_length", "_offset", "_raw",
                 "_reader", "_word", "attempts", "defers", "entry", "lease", "priority",
                 "put_time_ns", "qpool_id", "size")

    def __init__(self, reader: Reader, row: tuple[int, ...], extent: Extent | Copied | None
                 ) -> None:
        (self.entry, _, self.priority, self._flags, self.qpool_id, self.lease, self._word,
         self._offset, self._length, self._crc, self.size, self.put_time_ns, self.attempts,
         self.defers, _) = row
        self._reader = reader
        self._extent = extent
        self._raw: bytes | None = None
        self._bounds = (0, 0)

    @property
    def queue(self) -> str:
        return self._reader.queue

    @property
    def redelivered(self) -> bool:
        """It was handed out before, and that reader did not finish with it."""
        return bool(self._flags & GivenFlag.REDELIVERED) or self.defers > 0

    @property
    def persistent(self) -> bool:
        return bool(self._flags & GivenFlag.PERSISTENT)

    def _load(self) -> bytes:
        """The payload, read and checked once."""
        raw = self._raw
        if raw is None:
            if self._extent is not None:
                raw = self._extent.piece(self._offset, self._length)
            if raw is None:
                raw = self._reader.bodies.payload(self._word, self._offset, self._length,
                                                  self.qpool_id)
            self._check(raw)
            self._raw = raw
        return raw

    def _check(self, raw: bytes) -> None:
        got = crc32c(raw)
        found = message_format.bounds(raw)
        if got != self._crc or isinstance(found, Finding):
            where = f"file {number_of(self._word)} offset {self._offset}"
            raise BodyDamaged(qpool_id=self.qpool_id, where=where, expected=self._crc, got=got)
        self._bounds = found

    def _descriptor(self) -> Descriptor:
        payload = message_format.decode(self._load())
        if isinstance(payload, Finding):
            raise BodyDamaged(qpool_id=self.qpool_id, where="its descriptor", expected=self._crc,
                              got=0)
        return payload.descriptor

    @property
    def body(self) -> bytes:
        """The bytes that were put. BodyUnavailable, BodyDamaged."""
        raw = self._load()
        content = raw[self._bounds[1] :]
        if self._flags & _CONTAINER:
            reference = content.decode("ascii", "replace")
            content = self._reader.bodies.container(reference, self.size, self.qpool_id)
            check_container(content, self._descriptor().body_crc, self.qpool_id, reference)
        return content

    @property
    def properties(self) -> dict[str, str]:
        raw = self._load()
        found = message_format.decode_properties(raw[self._bounds[0] : self._bounds[1]])
        if isinstance(found, Finding):
            raise BodyDamaged(qpool_id=self.qpool_id, where="its properties", expected=self._crc,
                              got=0)
        return found

    @property
    def message_id(self) -> str:
        """48 hex digits; the submitter's own if it gave one."""
        given = self._descriptor().message_id
        return given.hex() if any(given) else self._reader.id_prefix + f"{self.qpool_id:016x}"

    @property
    def correlation_id(self) -> bytes:
        return self._descriptor().correlation_id.rstrip(b"\0")

    @property
    def path(self) -> Path | None:
        """The container file of a large body, which only the spool's owner and root may open; None
        when the body travels with the message."""
        if not self._flags & GivenFlag.CONTAINER:
            return None
        reference = self._load()[self._bounds[1] :].decode("ascii", "replace")
        return self._reader.paths.root / containers.relative_path(reference)

    # dispositions

    def done(self) -> None:
        """Finished: the message leaves this queue."""
        self._reader.record(Settlement.DONE, self)

    def defer(self, seconds: float, reason: str = "") -> None:
        """Hand it out again after `seconds`; no failed attempt is counted."""
        self._reader.record(Settlement.DEFER, self, max(0, int(seconds * NS)), reason)

    def fail(self, reason: str = "") -> None:
        """A failed attempt: deferred, and POISON at the queue's limit."""
        self._reader.record(Settlement.FAIL, self, 0, reason)

    def release(self) -> None:
        """Give it back untouched, to its old place; no attempt is counted."""
        self._reader.record(Settlement.RELEASE, self)

    def move(self, queues: str | Sequence[str], new: Sequence[Outgoing] = ()) -> None:
        """Off this queue, onto `queues` (none = finished), and put `new`: all or nothing, now."""
        listed = (queues,) if isinstance(queues, str) else tuple(queues)
        self._reader.move(self, listed, tuple(new))
