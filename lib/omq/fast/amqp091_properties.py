"""The properties of a content of AMQP 0-9-1 out of bytes, and into them (4.2.6 of the standard).

    flags (2), then each property whose flag is set, from the highest on:
    content-type, content-encoding, headers (a table), delivery-mode, priority, correlation-id,
    reply-to, expiration, message-id, timestamp, type, user-id, app-id, cluster-id

A table is not decoded here: it stays bytes, preceded by its size.

Invariant: nothing outside the given bytes is read, and all of them must be properties.

Errors: Malformed, whatever the bytes are.
"""

from __future__ import annotations

from typing import Any

from omq.base import shim as cython
from omq.format.amqp_types import Malformed

_NAMES = ("content_type", "content_encoding", "headers", "delivery_mode", "priority",
          "correlation_id", "reply_to", "expiration", "message_id", "timestamp", "message_type",
          "user_id", "app_id", "cluster_id")
_COUNT, _TABLE, _MODE, _PRIORITY, _TIME = 14, 2, 3, 4, 9
TIME_MAX = 1 << 53
"""Seconds by the standard; many clients say milliseconds, and are given what they said. Up to here
a float has each whole number."""
_TIME_MAX = TIME_MAX
_CORRELATION, _REPLY, _MESSAGE, _EXPIRATION = 0x0400, 0x0200, 0x0080, 0x0100
_SAID_MODE, _SAID_PRIORITY, _PRIORITY_MAX = 0x1000, 0x0800, 255
_HEAD = b"\x00\x3c\x00\x00"
_ONE = tuple(bytes((each,)) for each in range(256))


def read(raw: bytes) -> dict[str, Any]:
    """Those that are there: texts, numbers, and bytes of `headers`."""
    found: dict[str, Any] = {}
    end: cython.Py_ssize_t = len(raw)
    if end < 2:
        raise Malformed("the flags of properties are cut")
    flags: cython.uint = raw[0] << 8 | raw[1]
    if flags & 3:
        raise Malformed("there are no such properties")
    at: cython.Py_ssize_t = 2
    i: cython.Py_ssize_t
    ends: cython.Py_ssize_t
    number: cython.longlong
    for i in range(_COUNT):
        if not flags >> (15 - i) & 1:
            continue
        if _MODE <= i <= _PRIORITY:
            ends = at + 1
        elif i == _TIME:
            ends = at + 8
        elif i == _TABLE:
            if at + 4 > end:
                raise Malformed("a table is cut")
            ends = at + 4 + (raw[at] << 24 | raw[at + 1] << 16 | raw[at + 2] << 8 | raw[at + 3])
        else:
            if at >= end:
                raise Malformed("a property is cut")
            ends = at + 1 + raw[at]
        if ends > end or ends < at:
            raise Malformed("a property is cut")
        if _MODE <= i <= _PRIORITY:
            found[_NAMES[i]] = raw[at]
        elif i == _TIME:
            number = 0
            while at < ends:
                if number > _TIME_MAX:
                    raise Malformed("a time that no clock has")
                number = number << 8 | raw[at]
                at += 1
            if number > _TIME_MAX:
                raise Malformed("a time that no clock has")
            found[_NAMES[i]] = int(number)
        elif i == _TABLE:
            found[_NAMES[i]] = raw[at:ends]
        else:
            try:
                found[_NAMES[i]] = raw[at + 1 : ends].decode("utf-8")
            except UnicodeDecodeError:
                raise Malformed("a property is not UTF-8") from None
        at = ends
    if at != end:
        raise Malformed("something follows the properties")
    return found


def written(found: dict[str, Any]) -> tuple[int, bytes, bytes]:
    """What is the same for many messages, for `head`: flags, and what precedes and what follows the
    properties that `head` has."""
    flags: cython.uint = 0
    first, last = bytearray(), bytearray()
    i: cython.Py_ssize_t
    for i in range(_COUNT):
        value = found.get(_NAMES[i])
        if value is None or value == "":
            continue
        flags |= 1 << (15 - i)
        out = first if i < _MODE else last
        if i == _TIME:
            if not 0 <= value <= _TIME_MAX:
                raise Malformed("a time that cannot be said")
            out += int(value).to_bytes(8, "big")
        elif i == _TABLE:
            out += value
        else:
            out += short(value)
    return flags, bytes(first), bytes(last)


def short(text: str) -> bytes:
    """A short string."""
    try:
        raw: bytes = text.encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed("a text that cannot be UTF-8") from None
    if len(raw) > 255:
        raise Malformed("a short string has at most 255 bytes")
    return _ONE[len(raw)] + raw


def head(size: cython.ulonglong, mode: cython.uint, priority: cython.uint, flags: cython.uint,
         first: bytes, last: bytes, correlation: str, reply: str, message: str,
         expiration: str = "") -> bytes:
    """The payload of the header of a body of `size` bytes; the others as `written` gave them.
    A mode of 0, a priority above 255 and empty texts are not said."""
    out = bytearray(_HEAD)
    out += int(size).to_bytes(8, "big")
    said: cython.uint = flags
    said |= _SAID_MODE if mode else 0
    said |= _SAID_PRIORITY if priority <= _PRIORITY_MAX else 0
    said |= _CORRELATION if correlation else 0
    said |= _REPLY if reply else 0
    said |= _MESSAGE if message else 0
    said |= _EXPIRATION if expiration else 0
    out += _ONE[said >> 8]
    out += _ONE[said & 255]
    out += first
    if mode:
        out += _ONE[mode]
    if priority <= _PRIORITY_MAX:
        out += _ONE[priority]
    if correlation:
        out += short(correlation)
    if reply:
        out += short(reply)
    if expiration:
        out += short(expiration)
    if message:
        out += short(message)
    out += last
    return bytes(out)
