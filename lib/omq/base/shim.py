"""What Python itself needs of Cython's pure Python mode: names for types.

The modules of omq.fast say `from omq.base import shim as cython`; setup_compiled.py gives Cython
copies of them that say `import cython`. So they run interpreted without Cython being installed, and
mypy knows what they mean: every C integer is an int.
"""

from __future__ import annotations

import time

from omq.base import checksum, siphash

compiled: bool = False
"""Whether the module runs compiled. A compiled module sees True in the place of this."""

bint = bool
uint = int
longlong = int
ulonglong = int
Py_ssize_t = int


def cast(_kind: type[int], value: int) -> int:
    """Of a number that has room."""
    return value


def mono_ns() -> int:
    """As sysv.pxd has it for compiled modules: of a clock that is only for differences."""
    return time.monotonic_ns()


def run_handlers() -> None:
    """As sysv.pxd has it for compiled modules; interpreted, Python itself runs them."""


def release(semaphore: int) -> bool:
    """As sysv.pxd has it for compiled modules; here nobody calls semop(2) by itself."""
    return False


def take_off(queue: int, kind: int, out: list[bytes], limit: int) -> bool:
    """The same: nobody calls msgrcv(2) by itself."""
    return False


def wait_for(queue: int, kind: int, out: list[bytes]) -> bool:
    """The same."""
    return False


def gather(queue: int, kind: int, out: list[bytes], limit: int, wanted: int, wait_ns: int) -> bool:
    """The same."""
    return False


def acquire(semaphore: int) -> int:
    """The same: nobody waits by itself."""
    return -1


def send(queue: int, message: bytearray) -> bool:
    """The same: nobody calls msgsnd(2) by itself."""
    return False


def crc32c(data: bytes, begin: int, end: int) -> int:
    """As crc32c.pxd has it for compiled modules."""
    return checksum.crc32c(memoryview(data)[begin:end])


def crc32c_after(crc: int, data: bytes) -> int:
    """The same."""
    return checksum.crc32c(data, crc)


def start_of(data: memoryview, size: int) -> bytes:
    """As copied.pxd has it for compiled modules."""
    return bytes(data[:size])


def copy(to: memoryview, at: int, data: memoryview, begin: int, size: int) -> None:
    """The same."""
    to[at : at + size] = data[begin : begin + size]


def soon(column: memoryview, at: int) -> None:
    """The same: nothing depends on it."""


soon_long = soon


def keyed(one: int, other: int, number: int) -> int:
    """As siphash.pxd has it for compiled modules."""
    return siphash.siphash((one, other), number)


def has_crc32c() -> bool:
    """The same: a loop over records pays only where it is compiled."""
    return False
