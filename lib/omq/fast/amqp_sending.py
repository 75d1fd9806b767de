"""Frames of AMQP 1.0 to go, appended to a bytearray; amqp_frames says what they are made of.

Errors: Malformed, of what cannot be a field.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.fast.amqp_encoding import listed, put, uint
from omq.format.amqp_types import Malformed

_TRANSFER_HEAD = b"\0\0\0\0\x02\0\0\0\0\x53\x14\xC0\0\x06"
"""Of a transfer with 6 fields: the frame's size and channel, and the size of the list, are set."""
_TAG_BYTES_MAX = 32
_TAGS = tuple(bytes((0xA0, each)) for each in range(_TAG_BYTES_MAX + 1))
_ZERO_TRUE, _ZERO_FALSE = b"\x43\x41", b"\x43\x42"
_HEAD = b"\x02\x00"
_ZERO, _NULL, _TRUE, _FALSE = b"\x43", b"\x40", b"\x41", b"\x42"
_TRANSFER, _DISPOSITION, _FLOW = b"\x00\x53\x14", b"\x00\x53\x15", b"\x00\x53\x13"


def transfer(out: bytearray, channel: cython.uint, handle: cython.uint,
             delivery_id: cython.ulonglong, tag: bytes, settled: cython.bint, more: cython.bint,
             payload: bytes, at: cython.Py_ssize_t, room: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """A frame of at most `room` bytes with `payload` from `at` on; where it ends there. It says
    `more` by itself when some of the payload is left."""
    if len(tag) > _TAG_BYTES_MAX:
        raise Malformed("a delivery tag has at most 32 bytes")
    made = bytearray(_TRANSFER_HEAD)
    uint(made, handle)
    uint(made, delivery_id)
    made += _TAGS[len(tag)]
    made += tag
    made += _ZERO_TRUE if settled else _ZERO_FALSE
    begin: cython.Py_ssize_t = len(made)
    fits: cython.Py_ssize_t = room - 7 - begin
    left: cython.Py_ssize_t = len(payload) - at
    cut: cython.bint = left > fits
    ends: cython.Py_ssize_t = at + fits if cut else len(payload)
    made += _TRUE if more or cut else _FALSE
    size: cython.Py_ssize_t = begin + 1 + ends - at
    i: cython.Py_ssize_t
    for i in range(4):
        made[3 - i] = size & 255
        size >>= 8
    made[6], made[7] = channel >> 8 & 255, channel & 255
    made[12] = begin - 12
    out += made
    out += payload if at == 0 and not cut else payload[at:ends]
    return ends


def abort(out: bytearray, channel: cython.uint, handle: cython.uint,
          delivery_id: cython.ulonglong) -> None:
    """The delivery under way does not come to its end."""
    made = bytearray()
    uint(made, handle)
    uint(made, delivery_id)
    made += b"\x40\x40\x41\x42\x40\x40\x40\x41"
    _frame(out, channel, _TRANSFER, made, 10, 0)


def disposition(out: bytearray, channel: cython.uint, receives: cython.bint,
                first: cython.ulonglong, last: cython.ulonglong, state: bytes) -> None:
    """Of a range that is settled; `state`: encoded, empty for none."""
    made = bytearray()
    made += _TRUE if receives else _FALSE
    uint(made, first)
    uint(made, last)
    made += _TRUE
    made += state if state else _NULL
    _frame(out, channel, _DISPOSITION, made, 5, 0)


def flow(out: bytearray, channel: cython.uint, next_incoming: cython.longlong,
         incoming_window: cython.ulonglong, next_outgoing: cython.ulonglong,
         outgoing_window: cython.ulonglong, handle: cython.longlong,
         delivery_count: cython.longlong, credit: cython.ulonglong, drain: cython.bint) -> None:
    """Of a session, and of a link where `handle` is one (else -1); the others -1: not known yet."""
    made = bytearray()
    _maybe(made, next_incoming)
    uint(made, incoming_window)
    uint(made, next_outgoing)
    uint(made, outgoing_window)
    if handle < 0:
        _frame(out, channel, _FLOW, made, 4, 0)
        return
    uint(made, cython.cast(cython.ulonglong, handle))
    _maybe(made, delivery_count)
    uint(made, credit)
    made += _NULL
    made += _TRUE if drain else _FALSE
    _frame(out, channel, _FLOW, made, 9, 0)


def performative(out: bytearray, channel: cython.uint, code: cython.uint, fields: list[Any]
                 ) -> None:
    """Any other; fields at the end that are None are left out."""
    count: cython.Py_ssize_t = len(fields)
    while count > 0 and fields[count - 1] is None:
        count -= 1
    made = bytearray()
    i: cython.Py_ssize_t
    for i in range(count):
        put(made, fields[i], 1)
    _frame(out, channel, b"\x00\x53" + bytes((code,)), made, count, 0)


def empty(out: bytearray) -> None:
    """A sign of life."""
    out += b"\0\0\0\x08\x02\0\0\0"


def _maybe(out: bytearray, number: cython.longlong) -> None:
    if number < 0:
        out += _NULL
    else:
        uint(out, cython.cast(cython.ulonglong, number))


def _frame(out: bytearray, channel: cython.uint, descriptor: bytes, content: bytearray,
           count: cython.Py_ssize_t, payload: cython.Py_ssize_t) -> None:
    made = bytearray(descriptor)
    listed(made, content, count)
    size: cython.Py_ssize_t = 8 + len(made) + payload
    out += int(size).to_bytes(4, "big")
    out += _HEAD
    out += int(channel).to_bytes(2, "big")
    out += made
