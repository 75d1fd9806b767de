"""One direction of a stream as bytes: pieces are numbered on their way out, and checked on their
way in (format.standby).

Invariant: what `feed` gives are the pieces that were sent, each whole, each once, in their order,
up to the first that is not; from there on the stream is broken for good.

Errors: StreamBroken.
"""

from __future__ import annotations

from collections.abc import Iterator

from omq.base.errors import StreamBroken
from omq.format.findings import Finding
from omq.format.standby import HEAD, Piece, decode_piece, payload_bytes


class Outgoing:
    """Numbers the pieces of one connection."""

    def __init__(self) -> None:
        self._sequence = 0

    def encode(self, piece: Piece) -> tuple[bytes, bytes | memoryview]:
        """Head and payload of the next one."""
        self._sequence += 1
        return piece.encode(self._sequence - 1)


class PieceReader:
    """Makes pieces of the bytes that arrive."""

    def __init__(self, peer: str = "the primary") -> None:
        self._peer = peer
        self._data = bytearray()
        self._sequence = 0
        self._broken = ""

    def feed(self, data: bytes | memoryview) -> Iterator[Piece]:
        """The pieces that are complete with these bytes. Their payloads are copies."""
        self._data += data
        while (piece := self._next()) is not None:
            yield piece

    def _next(self) -> Piece | None:
        if self._broken:
            raise StreamBroken(peer=self._peer, reason=self._broken)
        if len(self._data) < HEAD.size:
            return None
        head = bytes(self._data[: HEAD.size])
        length = payload_bytes(head)
        if isinstance(length, Finding):
            raise self._give_up(length)
        end = HEAD.size + length
        if len(self._data) < end:
            return None
        piece = decode_piece(head, bytes(self._data[HEAD.size : end]), self._sequence)
        if isinstance(piece, Finding):
            raise self._give_up(piece)
        del self._data[:end]
        self._sequence += 1
        return piece

    def _give_up(self, finding: Finding) -> StreamBroken:
        self._broken = finding.reason
        return StreamBroken(peer=self._peer, reason=finding.reason)
