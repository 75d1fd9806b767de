"""A message in a reader's hands: its body, its properties, and the ways to end the work on it.

The payload is read and checked against the submitter's CRC on first use: what was put is what is
read, or BodyDamaged says where. A large body lies in a container file with a CRC of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omq.base.checksum import crc32c
from omq.base.errors import BodyDamaged
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.location import number_of
from omq.format.message import Payload
from omq.format.wire import GivenFlag, Settlement
from omq.ipc.outgoing import Outgoing
from omq.storage import containers

if TYPE_CHECKING:
    from omq.ipc.reader import Reader

NS = 1_000_000_000


class Message:
    """A message in hand. The body is read and checked against the submitter's CRC on first use."""

    __slots__ = ("_body", "_crc", "_entry", "_flags", "_length", "_offset", "_payload", "_raw",
                 "_reader", "_word", "attempts", "defers", "lease", "priority", "put_time_ns",
                 "qpool_id", "size")

    def __init__(self, reader: Reader, row: tuple[int, ...]) -> None:
        (self._entry, _, self.priority, self._flags, self.qpool_id, self.lease, self._word,
         self._offset, self._length, self._crc, self.size, self.put_time_ns, self.attempts,
         self.defers, _) = row
        self._reader = reader
        self._raw: bytes | None = None
        self._payload: Payload | None = None
        self._body: bytes | None = None

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

    def _load(self) -> tuple[bytes, Payload]:
        if self._payload is None or self._raw is None:
            raw = self._raw
            if raw is None:
                raw = self._reader.read_payload(self._word, self._offset, self._length,
                                                self.qpool_id)
            got = crc32c(raw)
            where = f"file {number_of(self._word)} offset {self._offset}"
            payload = message_format.decode(raw)
            if got != self._crc or isinstance(payload, Finding):
                raise BodyDamaged(qpool_id=self.qpool_id, where=where, expected=self._crc, got=got)
            self._raw, self._payload = raw, payload
        return self._raw, self._payload

    @property
    def body(self) -> bytes:
        """The bytes that were put. BodyUnavailable, BodyDamaged."""
        if self._body is None:
            raw, payload = self._load()
            content = raw[payload.body_at : payload.end]
            if self._flags & GivenFlag.CONTAINER:
                reference = content.decode("ascii", "replace")
                content = containers.read_item(self._reader.paths, reference, self.size,
                                               self.qpool_id)
                expected, got = payload.descriptor.body_crc, crc32c(content)
                if expected != got:
                    raise BodyDamaged(qpool_id=self.qpool_id, where=reference, expected=expected,
                                      got=got)
            self._body = content
        return self._body

    @property
    def properties(self) -> dict[str, str]:
        raw, payload = self._load()
        found = message_format.decode_properties(raw[payload.properties_at : payload.body_at])
        if isinstance(found, Finding):
            raise BodyDamaged(qpool_id=self.qpool_id, where="its properties", expected=self._crc,
                              got=0)
        return found

    @property
    def message_id(self) -> str:
        """48 hex digits; the submitter's own if it gave one."""
        return self._given_id(self._load()[1]) or self._reader.id_prefix + f"{self.qpool_id:016x}"

    @staticmethod
    def _given_id(payload: Payload) -> str:
        given = payload.descriptor.message_id
        return given.hex() if any(given) else ""

    @property
    def correlation_id(self) -> bytes:
        return self._load()[1].descriptor.correlation_id.rstrip(b"\0")

    @property
    def path(self) -> Path | None:
        """The container file of a large body, None when the body travels with the message."""
        if not self._flags & GivenFlag.CONTAINER:
            return None
        raw, payload = self._load()
        reference = raw[payload.body_at : payload.end].decode("ascii", "replace")
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

    @property
    def entry(self) -> int:
        return self._entry
