"""Frames of AMQP 0-9-1: bytes in, methods, headers and pieces of bodies out. The codec of methods
and headers is pamqp's (ADR 0134); what is around them is read here, so that a size is checked
before anything is made of it.

    frame    type (method 1, header 2, body 3, heart-beat 8), channel (2), size (4), payload, 0xCE

Source: AMQP 0-9-1, 2.3 and 4.2. Errors: Broken, with the reply code of the standard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pamqp import base, frame, header

HEADER: Final = b"AMQP\x00\x00\x09\x01"
FRAME_MIN: Final = 4096
OVERHEAD: Final = 8
"""Of a frame, beside its payload."""
METHOD, CONTENT, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_ERROR, SYNTAX_ERROR = 501, 502
_HEAD: Final = 7
_END: Final = 0xCE
_TAIL: Final = bytes((_END,))
BEAT: Final = bytes((HEARTBEAT, 0, 0, 0, 0, 0, 0, _END))


class Broken(Exception):
    """The connection ends with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Frame:
    """`what`: a method, a header, or the bytes of a body; None: a heart-beat. `size`: bytes of the
    payload, as it came."""

    channel: int
    what: base.Frame | header.ContentHeader | bytes | None
    size: int


class Frames:
    """What came in and is not looked at yet; one frame at most is kept. `most`: bytes of one."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept = bytearray()

    def take(self, data: bytes) -> None:
        """More bytes."""
        self._kept += data

    def __iter__(self) -> Iterator[Frame]:
        """Those that are whole; each is read when it is asked for. Broken."""
        kept = self._kept
        while len(kept) >= _HEAD:
            size = int.from_bytes(kept[3:_HEAD], "big")
            if size + OVERHEAD > self.most:
                raise Broken(FRAME_ERROR, f"a frame of {size} bytes")
            whole = size + OVERHEAD
            if len(kept) < whole:
                return
            if kept[whole - 1] != _END:
                raise Broken(FRAME_ERROR, "a frame without its end")
            raw = bytes(kept[:whole])
            del kept[:whole]
            yield Frame(int.from_bytes(raw[1:3], "big"), _what(raw[0], raw), size)


def _what(kind: int, raw: bytes) -> base.Frame | header.ContentHeader | bytes | None:
    if kind == BODY:
        return raw[_HEAD:-1]
    if kind == HEARTBEAT:
        return None
    if kind not in (METHOD, CONTENT):
        raise Broken(FRAME_ERROR, f"a frame of type {kind}")
    try:
        _, _, found = frame.unmarshal(raw)
    except Exception as error:  # whatever a hostile table makes of the codec
        raise Broken(SYNTAX_ERROR, f"a frame that cannot be read: {type(error).__name__}"
                     ) from error
    if not isinstance(found, base.Frame | header.ContentHeader):
        raise Broken(SYNTAX_ERROR, "a frame that is none")
    return found


def method(channel: int, what: base.Frame) -> bytes:
    """A method as bytes."""
    return bytes(frame.marshal(what, channel))


def content(channel: int, head: bytes, whole: bytes, most: int) -> bytes:
    """A header, of which `head` is the payload, and a body, in frames of at most `most` bytes."""
    parts = [_head(CONTENT, channel, len(head)), head, _TAIL]
    for at in range(0, len(whole), most - OVERHEAD):
        part = whole[at : at + most - OVERHEAD]
        parts += (_head(BODY, channel, len(part)), part, _TAIL)
    return b"".join(parts)


def _head(kind: int, channel: int, size: int) -> bytes:
    return bytes((kind,)) + channel.to_bytes(2, "big") + size.to_bytes(4, "big")
