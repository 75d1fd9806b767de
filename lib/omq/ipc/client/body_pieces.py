"""A body in pieces: put by a program that does not have all of it in memory, and read so.

What is longer than the container threshold goes into a container while the pieces come, by the
spool's owner directly, by others into a memory file that the manager copies (ADR 0021). The message
is put when the last piece is there, so nobody ever sees a part of it; if the pieces end by an
exception nothing is put, and the container is gone.

Errors: BadArgument for what is not a piece, MessageTooLong; those of put and of reading a body.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from omq.base.checksum import crc32c
from omq.base.errors import BodyUnavailable, MessageTooLong, OmqError
from omq.ipc.client.bodies import PIECE_BYTES
from omq.ipc.client.put_arguments import without_body
from omq.ipc.wire import arguments, sealed_body
from omq.ipc.wire.outgoing import Outgoing
from omq.storage import containers

if TYPE_CHECKING:
    from omq.ipc.client.bodies import Bodies
    from omq.ipc.client.connection_parts import Wire

_RULE: Final = "it gives bytes, or is a binary file"


def checked(pieces: Any, queue: str, limit: int) -> Iterator[bytes]:
    """Bytes, from anything that gives them or from a binary file; at most `limit` in all."""
    if isinstance(pieces, str | bytes | bytearray | memoryview):
        raise arguments.wrong("pieces", type(pieces).__name__, _RULE)
    if hasattr(pieces, "read"):
        pieces = iter(partial(pieces.read, PIECE_BYTES), b"")
    if not isinstance(pieces, Iterable):
        raise arguments.wrong("pieces", pieces, _RULE)
    size = 0
    for piece in pieces:
        raw = arguments.body(piece, "pieces")
        size += len(raw)
        if size > limit:
            raise MessageTooLong(size=size, queue=queue, limit=limit)
        if raw:
            yield raw


def head_of(pieces: Iterator[bytes], threshold: int) -> tuple[bytes, bool]:
    """What comes first, and whether there is more: it is longer than `threshold` then."""
    head = bytearray()
    for piece in pieces:
        head += piece
        if len(head) > threshold:
            return bytes(head), True
    return bytes(head), False


def put_pieces(put: Callable[..., str], wire: Wire, queues: str | Sequence[str], pieces: Any,
               outgoing: Outgoing | None) -> str:
    """As Connection.put_pieces, which calls it. `put`: Connection.put."""
    message, listed, first = without_body(wire, queues, outgoing)
    found = checked(pieces, first, wire.facts(first).length_max)
    head, more = head_of(found, wire.link.threshold)
    if not more:
        return put(listed, outgoing=replace(message, body=head))
    poured = Poured(wire.bodies, first, chain((head,), found))
    try:
        answer = wire.with_bodies((message,), listed, lambda new: wire.put_one(new[0], first),
                                  poured.contain)
    finally:
        poured.close()
    return wire.id_text(answer.qpool, message)


class Poured:
    """A body that goes into a container while its pieces come; of one put."""

    def __init__(self, bodies: Bodies, queue: str, pieces: Iterator[bytes]) -> None:
        self._bodies, self._queue, self._pieces = bodies, queue, pieces
        self._memory = -1
        self._size = self._crc = 0

    def contain(self, _: bytes) -> tuple[str, int, int]:
        """As outgoing.Contain. A second time only of what lies in the memory file: a manager that
        was started in between does not know its predecessor's containers."""
        if self._bodies.owns:
            return self._bodies.pour(self._pieces)
        if self._memory < 0:
            self._memory = sealed_body.seal_pieces(self._counted())
        return self._bodies.hand_over(self._queue, self._memory, self._size, self._crc)

    def _counted(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._size += len(piece)
            self._crc = crc32c(piece, self._crc)
            yield piece

    def close(self) -> None:
        """Let go of the memory file."""
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def descriptor_of(bodies: Bodies, reference: str, size: int, qpool: int) -> int:
    """Of the container of a message; the caller closes it. BodyUnavailable."""
    if not bodies.by_files:
        return bodies.ask_container(reference, qpool)
    try:
        file = containers.open_item(bodies.paths, reference)
        try:
            return os.dup(file.fd)
        finally:
            file.close()
    except (FileNotFoundError, OmqError) as error:
        raise BodyUnavailable(qpool_id=qpool, where=reference, reason=str(error)) from error
