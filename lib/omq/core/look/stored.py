"""A message as it is stored: descriptor, properties and body, read and checked, for tools.

Nobody is asked and nothing changes: the place comes from the index or from a pool record, the bytes
from journal, archive, store, volatile file or container. What is returned is what was put: the
payload's CRC and that of a container are checked.

Errors: BodyUnavailable, BodyDamaged, BadItemRef.
"""

from __future__ import annotations

from dataclasses import dataclass

from omq.base.checksum import crc32c
from omq.base.errors import BodyDamaged, BodyUnavailable, OmqError
from omq.base.paths import SpoolPaths
from omq.core.index.item_refs import place
from omq.core.index.rows import MessageRow
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.message import DESCRIPTOR, PART, Descriptor, Payload
from omq.format.pool import RecordFlag
from omq.storage import containers
from omq.storage.payloads import PayloadReader


@dataclass(frozen=True, slots=True)
class Stored:
    """See the module. `container`: the item reference of a large body, which `body` reads."""

    descriptor: Descriptor
    properties: dict[str, str]
    inline: bytes
    container: str


def _stored(row: MessageRow, raw: bytes, payload: Payload, got: int) -> Stored:
    found = message_format.decode_properties(raw[payload.properties_at : payload.body_at])
    if isinstance(found, Finding):
        raise BodyDamaged(qpool_id=row.qpool, where=f"its properties ({found.reason})",
                          expected=row.crc, got=got)
    content = raw[payload.body_at : payload.end]
    if row.flags & RecordFlag.CONTAINER:
        return Stored(payload.descriptor, found, b"", content.decode("ascii", "replace"))
    return Stored(payload.descriptor, found, content, "")


class StoredMessages:
    """Reads the messages of one spool; keeps files open until `close`."""

    def __init__(self, paths: SpoolPaths) -> None:
        self._paths = paths
        self._payloads = PayloadReader(paths, files_max=8)

    def read(self, row: MessageRow) -> Stored:
        """Everything but the content of a container."""
        raw = self._payloads.read(row.word, row.offset, row.length, row.qpool)
        got, payload = crc32c(raw), message_format.decode(raw)
        if isinstance(payload, Finding) or (row.crc and got != row.crc):
            raise BodyDamaged(qpool_id=row.qpool, where=place(row.word, row.offset),
                              expected=row.crc, got=got)
        return _stored(row, raw, payload, got)

    def at(self, word: int, offset: int) -> tuple[MessageRow, Stored]:
        """What lies at a place that no message on a queue names any more: its lengths are in its
        descriptor. The CRC of its payload is not known, that of a container is."""
        head = self._payloads.read(word, offset, DESCRIPTOR.size)
        magic, version, _, parts, _, properties, body_crc, body = DESCRIPTOR.unpack(head)[:8]
        if magic != message_format.MAGIC or version > message_format.VERSION:
            raise BodyUnavailable(qpool_id=0, where=place(word, offset),
                                  reason="no message begins there")
        before = DESCRIPTOR.size + parts * PART.size + properties
        ref = self._ref(word, offset + before) if body_crc else ""
        length = before + (len(ref) or body)
        flags = int(RecordFlag.PERSISTENT | (RecordFlag.CONTAINER if ref else RecordFlag(0)))
        row = MessageRow(number=0, qpool=0, file=None, record=None, parts=0, flags=flags,
                         size=body, created_ns=0, pid=0, item_ref=place(word, offset),
                         word=word, offset=offset, length=length)
        return row, self.read(row)

    def _ref(self, word: int, offset: int) -> str:
        """The item reference of a container that stands here; empty if none does."""
        try:
            text = self._payloads.read(word, offset, containers.REF_BYTES).decode("ascii")
            containers.relative_path(text)
        except (OmqError, UnicodeDecodeError):
            return ""
        return text

    def body(self, row: MessageRow, stored: Stored) -> bytes:
        """The bytes that were put."""
        if not stored.container:
            return stored.inline
        content = containers.read_item(self._paths, stored.container, row.size, row.qpool)
        expected, got = stored.descriptor.body_crc, crc32c(content)
        if expected != got:
            raise BodyDamaged(qpool_id=row.qpool, where=stored.container, expected=expected,
                              got=got)
        return content

    def close(self) -> None:
        self._payloads.close()


def message_id(stored: Stored, uuid: bytes, qpool: int) -> bytes:
    """Its message id: the one that was given, else the derived one."""
    given = stored.descriptor.message_id
    return given if any(given) else message_format.derived_id(uuid, qpool)
