"""A request of the wire as numbers: a copy of its bytes, which nobody else can change."""

from __future__ import annotations

from omq.base import shim as cython
from omq.format.wire import REQUEST, REQUEST_MAGIC, VERSION

_SIZE = 96
_PLACES = ("operation", "priority", "flags", "queue", "count", "client", "length", "token",
           "sequence", "size", "crc", "magic", "version", "correlation", "want", "argument",
           "entry", "parts", "spare", "expiry")
_OFFSETS = (0, 1, 2, 4, 6, 8, 12, 16, 32, 40, 48, 52, 54, 56, 64, 72, 80, 84, 86, 88)
assert REQUEST.size == _SIZE and REQUEST.names == _PLACES
assert tuple(map(REQUEST.offset, _PLACES)) == _OFFSETS
_UNPACK = REQUEST.unpack
_MAGIC, _VERSION = REQUEST_MAGIC, VERSION


class Request:
    """The request that is being looked at; `read` fills it."""

    def __init__(self) -> None:
        self._raw = memoryview(bytearray(_SIZE))
        self._b8, self._b16 = self._raw, self._raw.cast("H")
        self._b32, self._b64 = self._raw.cast("I"), self._raw.cast("Q")
        self.token = b""
        self.operation = self.priority = self.flags = self.queue = self.count = self.client = 0
        self.length = self.sequence = self.size = self.crc = self.correlation = self.want = 0
        self.argument = self.parts = self.expiry = 0

    def read(self, raw: bytes) -> cython.bint:
        """Take its numbers; False: it is not a request of this version."""
        if len(raw) != _SIZE:
            return False
        if not cython.compiled:
            (self.operation, self.priority, self.flags, self.queue, self.count, self.client,
             self.length, self.token, self.sequence, self.size, self.crc, magic, version,
             self.correlation, self.want, self.argument, _, self.parts, _, self.expiry
             ) = _UNPACK(raw)
            return bool(magic == _MAGIC and version == _VERSION)
        self._raw[:] = raw
        if self._b16[26] != _MAGIC or self._b16[27] != _VERSION:
            return False
        self.operation, self.priority = self._b8[0], self._b8[1]
        self.flags, self.queue, self.count = self._b16[1], self._b16[2], self._b16[3]
        self.client, self.length = self._b32[2], self._b32[3]
        self.token = raw[16:32]
        self.sequence, self.size, self.crc = self._b64[4], self._b64[5], self._b32[12]
        self.correlation, self.want = self._b64[7], self._b64[8]
        self.argument, self.expiry = self._b64[9], self._b64[11]  # signed, by their C types
        self.parts = self._b16[42]
        return True
