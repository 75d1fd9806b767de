"""Frames of AMQP 1.0 by hand, for what the library is too well-behaved to send."""

from __future__ import annotations

import random

from proton import Message

HEADER = b"AMQP\x00\x01\x00\x00"
MESSAGE = bytes(Message(body=b"x", inferred=True, durable=True).encode())
NULL, TRUE, FALSE, ZERO = b"\x40", b"\x41", b"\x42", b"\x43"


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def text(value: str, code: bytes = b"\xa1") -> bytes:
    return code + bytes((len(value),)) + value.encode()


def many(*fields: bytes) -> bytes:
    content = b"".join(fields)
    return b"\xd0" + u32(len(content) + 4) + u32(len(fields)) + content


def frame(performative: int, *fields: bytes, payload: bytes = b"") -> bytes:
    body = b"\x00\x53" + bytes((performative,)) + many(*fields) + payload
    return u32(len(body) + 8) + b"\x02\x00\x00\x00" + body


OPENED = HEADER + frame(0x10, text("x")) + frame(
    0x11, NULL, ZERO, b"\x70" + u32(1 << 20), b"\x70" + u32(1 << 20))


def attach(handle: int, queue: str, *, takes: bool = False, more: tuple[bytes, ...] = (),
           properties: bytes = NULL) -> bytes:
    source = b"\x00\x53\x28" + many(text(queue), *more)
    target = b"\x00\x53\x29" + many(text(queue))
    return frame(0x12, text(f"link{handle}"), b"\x70" + u32(handle), TRUE if takes else FALSE,
                 NULL, NULL, source, target, NULL, NULL, ZERO, NULL, NULL, NULL, properties)


def transfer(number: int, payload: bytes = MESSAGE, state: bytes = NULL, *, settled: bool = False
             ) -> bytes:
    return frame(0x14, ZERO, b"\x70" + u32(number), b"\xa0\x04" + u32(number), ZERO,
                 TRUE if settled else FALSE, FALSE, NULL, state, payload=payload)


def mutated(frames: list[bytes], chosen: random.Random) -> list[bytes]:
    """The same from some place on with bytes changed, cut, out of order."""
    stream = [bytearray(each) for each in frames]
    for each in stream[chosen.randrange(len(stream)):]:
        for _ in range(chosen.choice((0, 0, 0, 1, 1, 3))):
            what, at = chosen.randrange(4), chosen.randrange(len(each))
            if what == 0:
                each[at] = chosen.randrange(256)
            elif what == 1:
                each[at] ^= 1 << chosen.randrange(8)
            elif what == 2 and at > 8:  # shorter, and the size says so
                del each[at:]
                each[:4] = len(each).to_bytes(4, "big")
            else:
                each[at : at + 4] = chosen.choice(
                    (b"\xff\xff\xff\xff", bytes(4), b"\x80\0\0\0"))[: len(each) - at]
    if chosen.random() < 0.2:
        chosen.shuffle(stream)
    return [*map(bytes, stream)]
