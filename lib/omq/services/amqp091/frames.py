"""Frames of AMQP 0-9-1: bytes in, methods, headers and pieces of bodies out. The codec of methods and
headers is pamqp's; what is around them is read here, so that a size is checked before anything is
made of it.

    frame    type (1: method 1, header 2, body 3, heart-beat 8), channel (2), size (4), payload, 0xCE

Source: AMQP 0-9-1, 2.3 and 4.2. Errors: Broken, with the reply code of the standard.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pamqp import base, body, frame, header

HEADER: Final = b"AMQP\x00\x00\x09\x01"
FRAME_MIN: Final = 4096
OVERHEAD: Final = 8
"""Of a frame, beside its payload."""
METHOD, CONTENT, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_ERROR, SYNTAX_ERROR = 501, 502
_HEAD: Final = struct.Struct(">BHI")
_END: Final = 0xCE
BEAT: Final = _HEAD.pack(HEARTBEAT, 0, 0) + bytes((_END,))


class Broken(Exception):
    """The connection ends with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Frame:
    """`what`: a method, a header, or the bytes of a body; None: a heart-beat."""

    channel: int
    what: base.Frame | header.ContentHeader | bytes | None


class Frames:
    """What came in and is not looked at yet; at most one frame is kept. `most`: bytes of a frame."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept = bytearray()

    def take(self, data: bytes) -> None:
        """More bytes."""
        self._kept += data

    def __iter__(self) -> Iterator[Frame]:
        """Those that are whole; each is read when it is asked for. Broken."""
        kept = self._kept
        while len(kept) >= _HEAD.size:
            kind, channel, size = _HEAD.unpack_from(kept)
            if size + OVERHEAD > self.most:
                raise Broken(FRAME_ERROR, f"a frame of {size} bytes")
            whole = size + OVERHEAD
            if len(kept) < whole:
                return
            if kept[whole - 1] != _END:
                raise Broken(FRAME_ERROR, "a frame without its end")
            raw = bytes(kept[:whole])
            del kept[:whole]
            yield Frame(channel, _what(kind, raw))


def _what(kind: int, raw: bytes) -> base.Frame | header.ContentHeader | bytes | None:
    if kind == BODY:
        return raw[_HEAD.size : -1]
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


def content(channel: int, properties: Any, whole: bytes, most: int) -> bytes:
    """A header and a body as bytes, in frames of at most `most`."""
    parts = [frame.marshal(header.ContentHeader(0, len(whole), properties), channel)]
    for at in range(0, len(whole), most - OVERHEAD):
        parts.append(frame.marshal(body.ContentBody(whole[at : at + most - OVERHEAD]), channel))
    return b"".join(parts)
