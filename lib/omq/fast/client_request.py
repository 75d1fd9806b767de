"""A client's request down to its two system calls and back, when nothing unusual happens. It does
what Link.request does, which handles everything else.

Compiled, a request touches only this object, the channel and the kernel: clients that take turns on
a processor run with cold caches, where the memory they touch counts more than what they execute
(ADR 0017). Interpreted, nothing is sent here and the link does everything itself.
"""

from __future__ import annotations

from collections import deque

from omq.base import shim as cython
from omq.format.wire import REPLY, REQUEST, REQUEST_MAGIC, REQUEST_TYPE, VERSION

if cython.compiled:
    from cython.cimports.omq.fast.sysv import acquire as _acquire
    from cython.cimports.omq.fast.sysv import send as _send
else:
    from omq.base.shim import acquire as _acquire
    from omq.base.shim import send as _send

_NAMES = ("operation", "priority", "flags", "queue", "count", "client", "length", "token",
          "sequence", "size", "crc", "magic", "version", "correlation", "want", "argument",
          "entry", "parts", "spare", "expiry")
_OFFSETS = (0, 1, 2, 4, 6, 8, 12, 16, 32, 40, 48, 52, 54, 56, 64, 72, 80, 84, 86, 88)
assert REQUEST.size == 96 and REQUEST.names == _NAMES
assert tuple(map(REQUEST.offset, _NAMES)) == _OFFSETS
_REPLY_NAMES = ("magic", "status", "flags", "sequence", "count", "length", "qpool", "lsn", "epoch",
                "reserved")
assert REPLY.size == 64 and REPLY.names == _REPLY_NAMES
assert tuple(map(REPLY.offset, _REPLY_NAMES)) == (0, 2, 4, 8, 16, 20, 24, 32, 40, 48)
_MAGIC, _VERSION, _TYPE = REQUEST_MAGIC, VERSION, REQUEST_TYPE

UNSENT, WAITING, WOKEN, ANSWERED, DONE = range(5)
"""How far a request came: nothing was sent; sent, and the semaphore is still to be asked, which
may be gone; the wait ended without a reply; there is a reply to look at; it is carried out, and
the reply is in the fields."""
_UNSENT, _WAITING, _WOKEN, _ANSWERED, _DONE = range(5)


class Asking:
    """Of one registration. `queue`, `semaphore`: their ids; -1: requests go another way. `marks`:
    one for each release that is not a reply; `waits`: the semaphore is being waited for
    (ipc.client.reply_wait). `sends`: `ask` does something."""

    def __init__(self, queue: int, semaphore: int, client: int, token: bytes, epoch: int) -> None:
        self._queue, self._semaphore, self._epoch = queue, semaphore, epoch
        self.marks: deque[None] = deque()
        self.waits = False
        self.sends = bool(cython.compiled and queue >= 0)
        self.count = self.lost = self.qpool = self.lsn = 0
        self._message = bytearray(104)  # its type, and the request
        said = memoryview(self._message)
        self._b8, self._b16 = said, said.cast("H")
        self._b32, self._b64, self._q64 = said.cast("I"), said.cast("Q"), said.cast("q")
        said[24:40] = token
        self._b64[0], self._b32[4], self._b16[30], self._b16[31] = _TYPE, client, _MAGIC, _VERSION
        reply = memoryview(bytearray(64))
        self._reply, self._r16 = reply, reply.cast("H")
        self._r32, self._r64 = reply.cast("I"), reply.cast("Q")

    def ask(self, area: memoryview, reply: memoryview, data: bytes, sequence: cython.ulonglong,
            operation: cython.uint, priority: cython.uint, flags: cython.uint,
            queue: cython.uint, count: cython.uint, length: cython.uint, size: cython.ulonglong,
            crc: cython.uint, correlation: cython.ulonglong, want: cython.ulonglong,
            argument: cython.longlong, parts: cython.uint, expiry: cython.longlong) -> int:
        """Send it and wait for the reply; how far it came. `data` fits `area`, the request half of
        the channel; `reply`: the other half."""
        if not self.sends:
            return _UNSENT
        n: cython.Py_ssize_t = len(data)
        if n:
            area[:n] = data
        self._b8[8], self._b8[9] = operation, priority
        self._b16[5], self._b16[6], self._b16[7] = flags, queue, count
        self._b32[5] = length
        self._b64[5], self._b64[6], self._b32[14] = sequence, size, crc
        self._b64[8], self._b64[9], self._q64[10] = correlation, want, argument
        self._b64[11] = 0
        self._b16[46] = parts
        self._q64[12] = expiry
        if not _send(self._queue, self._message):
            return _UNSENT
        self.waits = True
        got: cython.Py_ssize_t = _acquire(self._semaphore)
        self.waits = False
        if got <= 0:
            return _WAITING if got else _WOKEN
        if self.marks:
            self.marks.popleft()
            return _WOKEN
        self._reply[:64] = reply[:64]
        if (self._r64[1] != sequence or self._r16[0] != _MAGIC or self._r16[1]
                or self._r64[5] != self._epoch):
            return _ANSWERED
        self.lost, self.count = self._r32[1], self._r32[4]
        self.qpool, self.lsn = self._r64[3], self._r64[4]
        return _DONE
