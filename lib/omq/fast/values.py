"""The value of a property, out of a payload that a client may change meanwhile. It is read from a
copy: of the first bytes, where nearly all messages have their properties, else of as many bytes as
the properties say they take. As format.property_key.
"""

from __future__ import annotations

from typing import Any

from omq.base import limits
from omq.base import shim as cython
from omq.format.message import DESCRIPTOR, MAGIC, PART, VERSION

assert tuple(map(DESCRIPTOR.offset, ("magic", "version", "parts", "properties"))) == (0, 2, 4, 8)
_MAGIC_1, _MAGIC_2, _VERSION = MAGIC[0], MAGIC[1], VERSION
_HEAD, _PART, _PARTS_MAX = DESCRIPTOR.size, PART.size, limits.QUEUES_MAX
_FIRST = 448  # bytes that are copied first


def value_in(payload: Any, at: cython.Py_ssize_t, length: cython.Py_ssize_t, name: bytes
             ) -> bytes | None:
    """The value of the property `name` of the payload of this length that begins at `at`; None: it
    has none, or is not a payload."""
    wanted: cython.Py_ssize_t = min(length, _FIRST)
    said: bytes = bytes(payload[at : at + wanted])
    if wanted < _HEAD or said[0] != _MAGIC_1 or said[1] != _MAGIC_2 or said[2] > _VERSION:
        return None
    parts: cython.Py_ssize_t = said[4] | said[5] << 8
    size: cython.Py_ssize_t = said[8] | said[9] << 8 | said[10] << 16
    size += cython.cast(cython.ulonglong, said[11]) << 24
    place: cython.Py_ssize_t = _HEAD + parts * _PART
    end: cython.Py_ssize_t = place + size
    if parts > _PARTS_MAX or end > length or size < 8:
        return None
    if end > wanted:
        said = bytes(payload[at : at + end])
    named: cython.Py_ssize_t = len(name)
    count: cython.Py_ssize_t = said[place] | said[place + 1] << 8
    begin: cython.Py_ssize_t
    key: cython.Py_ssize_t
    place += 2
    for _ in range(count):
        begin = place + 6
        if begin > end:
            return None
        key = said[place] | said[place + 1] << 8
        size = said[place + 2] | said[place + 3] << 8 | said[place + 4] << 16
        size += cython.cast(cython.ulonglong, said[place + 5]) << 24
        place = begin + key + size
        if key == named and begin + key <= end and said[begin : begin + key] == name:
            return said[begin + key : place] if place <= end else None
    return None
