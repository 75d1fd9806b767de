"""Frames of AMQP 0-9-1: what is frequent is read and written flat (omq.fast.amqp091_frames, ADR
0138), the codec of all other methods is pamqp's (ADR 0134).

Source: AMQP 0-9-1, 2.3 and 4.2. Errors: Broken, with the reply code of the standard.
"""

from __future__ import annotations

from typing import Final

from pamqp import base, frame

from omq.fast.amqp091_frames import FRAMING
from omq.format.amqp_types import Malformed

HEADER: Final = b"AMQP\x00\x00\x09\x01"
FRAME_MIN: Final = 4096
FRAME_ERROR, SYNTAX_ERROR = 501, 502
BEAT: Final = b"\x08\0\0\0\0\0\0\xce"


class Broken(Exception):
    """The connection ends with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def broken_by(error: Malformed) -> Broken:
    """Of bytes that are not a frame, or not one that can be read."""
    if error.condition == FRAMING:
        return Broken(FRAME_ERROR, str(error))
    return Broken(SYNTAX_ERROR, f"a frame that cannot be read: {error}")


def method_of(raw: bytes) -> base.Frame:
    """The method in a whole frame. Broken."""
    try:
        _, _, found = frame.unmarshal(raw)
    except Exception as error:  # whatever a hostile table makes of the codec
        raise Broken(SYNTAX_ERROR, f"a frame that cannot be read: {type(error).__name__}"
                     ) from error
    if not isinstance(found, base.Frame):
        raise Broken(SYNTAX_ERROR, "a frame that is none")
    return found


def method(channel: int, what: base.Frame) -> bytes:
    """A method as bytes."""
    return bytes(frame.marshal(what, channel))
