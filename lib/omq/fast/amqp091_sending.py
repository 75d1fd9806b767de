"""Frames of AMQP 0-9-1 to go, appended to a bytearray; amqp091_frames says what they are."""

from __future__ import annotations

from omq.base import shim as cython

_DELIVER, _ACK = b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x50"
_TAIL, _YES, _NO = b"\xce", b"\x01", b"\x00"
_OVERHEAD = 8
_KINDS = (b"\x00", b"\x01", b"\x02", b"\x03")


def deliver(out: bytearray, channel: cython.uint, consumer: bytes, tag: cython.ulonglong,
            redelivered: cython.bint, where: bytes, head: bytes, body: bytes,
            most: cython.Py_ssize_t) -> None:
    """basic.deliver and its content, in frames of at most `most` bytes. `consumer`: its tag,
    `where`: exchange and routing key, as short strings; `head`: the payload of the header."""
    _frame(out, 1, channel, 4 + len(consumer) + 8 + 1 + len(where))
    out += _DELIVER
    out += consumer
    out += int(tag).to_bytes(8, "big")
    out += _YES if redelivered else _NO
    out += where
    out += _TAIL
    content(out, channel, head, body, most)


def content(out: bytearray, channel: cython.uint, head: bytes, body: bytes,
            most: cython.Py_ssize_t) -> None:
    """A header, of which `head` is the payload, and a body."""
    _frame(out, 2, channel, len(head))
    out += head
    out += _TAIL
    at: cython.Py_ssize_t = 0
    left: cython.Py_ssize_t = len(body)
    room: cython.Py_ssize_t = most - _OVERHEAD
    while left > room:
        _frame(out, 3, channel, room)
        out += body[at : at + room]
        out += _TAIL
        at += room
        left -= room
    if left > 0:
        _frame(out, 3, channel, left)
        out += body[at:] if at else body
        out += _TAIL


def ack(out: bytearray, channel: cython.uint, tag: cython.ulonglong, multiple: cython.bint) -> None:
    """basic.ack, as a confirm."""
    _frame(out, 1, channel, 13)
    out += _ACK
    out += int(tag).to_bytes(8, "big")
    out += _YES if multiple else _NO
    out += _TAIL


def _frame(out: bytearray, kind: cython.Py_ssize_t, channel: cython.uint, size: cython.Py_ssize_t
           ) -> None:
    out += _KINDS[kind]
    out += int(channel).to_bytes(2, "big")
    out += int(size).to_bytes(4, "big")
