"""Bodies as a client gets and gives them: by the spool's files, or over its channel (ADR 0021).

The owner of the spool and root read its files themselves. Everybody else asks the manager: a
payload comes in pieces through the reply half of the channel, a container as a read-only
descriptor. Containers are written by the owner; from anybody else, root too, a large body goes to
the manager as a sealed memory file, so that every container belongs to the owner.

Errors: BodyUnavailable, BodyDamaged, and those of the link.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from omq.base.checksum import crc32c
from omq.base.errors import (
    BodyDamaged,
    BodyUnavailable,
    ManagerUnavailable,
    OmqError,
    TimedOut,
)
from omq.base.paths import SpoolPaths
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.wire import REPLY
from omq.ipc.client.link import Link
from omq.ipc.wire import sealed_body
from omq.ipc.wire.outgoing import Encoded, own_container
from omq.storage import containers
from omq.storage.payloads import PayloadReader
from omq.storage.spare_containers import SpareContainers

PIECE_BYTES: Final = 1 << 20
COPY_BYTES_PER_S: Final = 4 << 20
"""A disk slower than this makes a large body time out."""


class Bodies:
    """See the module. Of one connection."""

    def __init__(self, paths: SpoolPaths, link: Link) -> None:
        self._paths, self._link = paths, link
        self.paths = paths
        self.files = PayloadReader(paths)
        self._spares = SpareContainers(paths)

    @property
    def by_files(self) -> bool:
        """Whether this client reads the spool itself."""
        return self._link.trusted

    # reading

    def payload(self, word: int, offset: int, length: int, qpool: int) -> bytes:
        """A payload that was handed out; where it lies is asked anew when it has moved."""
        if not self._link.trusted:
            return self.fetch(qpool)[0]
        try:
            return self.files.read(word, offset, length, qpool)
        except BodyUnavailable:
            facts = self._link.control({"op": "locate", "qpool": qpool})
            moved = (int(facts["location"]), int(facts["offset"]))
            if moved == (word, offset):
                raise
            return self.files.read(*moved, length, qpool)

    def fetch(self, qpool: int) -> tuple[bytes, int, bool]:
        """(payload, size of the body, whether that is in a container), over the channel."""
        pieces, at, length = [], 0, 1
        crc = size = 0
        large = False
        while at < length:
            facts = self._link.control({"op": "fetch", "qpool": qpool, "at": at})
            length, count = int(facts["length"]), int(facts["bytes"])
            crc, size, large = int(facts["crc"]), int(facts["size"]), bool(facts["container"])
            pieces.append(bytes(self._link.reply[REPLY.size : REPLY.size + count]))
            at += count
            if not count:
                break
        raw = b"".join(pieces)
        got = crc32c(raw)
        if got != crc or len(raw) != length:
            raise BodyDamaged(qpool_id=qpool, where="the queue manager's answer", expected=crc,
                              got=got)
        return raw, size, large

    def body(self, qpool: int) -> bytes:
        """The body of a message that is held, or may be browsed; checked. NoMessage."""
        raw, size, large = self.fetch(qpool)
        found = message_format.decode(raw)
        if isinstance(found, Finding):
            raise BodyDamaged(qpool_id=qpool, where="its descriptor", expected=0, got=0)
        content = raw[found.body_at :]
        if large:
            content = self.container(content.decode("ascii", "replace"), size,
                                     found.descriptor.body_crc, qpool)
        return content

    def container(self, reference: str, size: int, expected: int, qpool: int) -> bytes:
        """The content of the container of a message, with this CRC-32C. BodyUnavailable,
        BodyDamaged."""
        if not self._link.trusted:
            return b"".join(pieces_of(self.ask_container(reference, qpool), size, expected, qpool,
                                      reference))
        content = containers.read_item(self._paths, reference, size, qpool)
        if (got := crc32c(content)) != expected:
            raise BodyDamaged(qpool_id=qpool, where=reference, expected=expected, got=got)
        return content

    def ask_container(self, reference: str, qpool: int) -> int:
        """A descriptor of a message's container, from the manager; the caller closes it.
        BodyUnavailable."""
        self._link.control({"op": "container", "qpool": qpool})
        descriptor = self._link.take_descriptor()
        if descriptor < 0:
            raise BodyUnavailable(qpool_id=qpool, where=reference,
                                  reason="the queue manager passed no descriptor")
        return descriptor

    def give_out(self, reference: str) -> None:
        """A program has the name of this container (storage.containers.give_out)."""
        with contextlib.suppress(FileNotFoundError):
            file = containers.open_item(self._paths, reference)
            try:
                containers.give_out(file)
            finally:
                file.close()

    # putting

    @property
    def owns(self) -> bool:
        """This client writes containers itself."""
        return self._link.owns

    def pour(self, pieces: Iterable[bytes]) -> tuple[str, int, int]:
        """A container of the owner: (reference, bytes, CRC-32C)."""
        return containers.create(self._paths, pieces, self._spares)

    def clone(self, source: int, shared: Callable[[], None]) -> tuple[str, int, int] | None:
        """The same of a file that is there (storage.containers.clone)."""
        return containers.clone(self._paths, source, shared, self._spares)

    def contain(self, queue: str, body: bytes) -> tuple[str, int, int]:
        """A container for a body that is to be put on `queue`: (reference, bytes, CRC-32C)."""
        if self._link.owns:
            return own_container(self._paths, body, self._spares)
        descriptor = sealed_body.seal_pieces((body,))
        try:
            return self.hand_over(queue, descriptor, len(body), crc32c(body))
        finally:
            os.close(descriptor)

    def hand_over(self, queue: str, descriptor: int, size: int, crc: int) -> tuple[str, int, int]:
        """The same of a sealed memory file, which the manager copies."""
        facts = self._link.control({"op": "contain", "queue": queue, "size": size},
                                   descriptor, size / COPY_BYTES_PER_S)
        if int(facts["crc"]) != crc:
            raise BodyDamaged(qpool_id=0, where="the copy that the queue manager made",
                              expected=int(facts["crc"]), got=crc)
        return str(facts["ref"]), size, crc

    def refused(self, error: OmqError, *messages: Encoded) -> None:
        """Containers of messages that were refused are removed; in doubt they stay."""
        if isinstance(error, ManagerUnavailable | TimedOut):
            return
        for message in messages:
            if not message.container:
                continue
            if self._link.owns:
                containers.remove(self._paths, message.container)
            else:
                with contextlib.suppress(OmqError):  # the refusal is what is to be told
                    self._link.control({"op": "discard", "ref": message.container})

    def close(self) -> None:
        self.files.close()
        self._spares.close()


def pieces_of(descriptor: int, size: int, expected: int, qpool: int, where: str) -> Iterator[bytes]:
    """A container's content; the descriptor is closed at the end. BodyDamaged after the last piece
    when its CRC is wrong: who uses the pieces before believes them."""
    at = crc = 0
    try:
        while at < size:
            piece = os.pread(descriptor, min(PIECE_BYTES, size - at), at)
            if not piece:
                raise BodyUnavailable(qpool_id=qpool, where=where,
                                      reason=f"its length is not {size} bytes")
            at += len(piece)
            crc = crc32c(piece, crc)
            yield piece
        if os.pread(descriptor, 1, size):
            raise BodyUnavailable(qpool_id=qpool, where=where,
                                  reason=f"its length is not {size} bytes")
    except OSError as error:
        raise BodyUnavailable(qpool_id=qpool, where=where, reason=str(error)) from error
    finally:
        os.close(descriptor)
    if crc != expected:
        raise BodyDamaged(qpool_id=qpool, where=where, expected=expected, got=crc)
