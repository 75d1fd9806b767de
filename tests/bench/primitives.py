"""What the machine itself can do, in the same run and on the same disk as omq's figures.

Each figure of omq is told as a multiple of `fdatasync_rate`: one 4 KiB page written and synced in a
file of real zeros, by one process, one after the other: the fastest a lone durable write can be.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import multiprocess
import sysv_ipc

from omq.base.checksum import crc32c
from omq.format.wire import REPLY, REQUEST

PAGE_BYTES = 4096
FILE_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
CHECK_EVERY = 16  # operations between two looks at the clock

_fork = multiprocess.get_context("fork")


class SyncProbe:
    """A zero-filled file, made once; `rate` may be asked before every round."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / "probe", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        for offset in range(0, FILE_BYTES, CHUNK_BYTES):
            os.pwrite(self._fd, bytes(CHUNK_BYTES), offset)
        os.fsync(self._fd)
        self._offset = 0
        self.seen: list[float] = []

    def rate(self, seconds: float) -> float:
        """Synced pages per second."""
        page = os.urandom(PAGE_BYTES)
        began = time.perf_counter()
        count, passed = 0, 0.0
        while passed < seconds:
            for _ in range(CHECK_EVERY):
                os.pwrite(self._fd, page, self._offset)
                os.fdatasync(self._fd)
                self._offset = (self._offset + PAGE_BYTES) % FILE_BYTES
            count += CHECK_EVERY
            passed = time.perf_counter() - began
        self.seen.append(count / passed)
        return count / passed

    def close(self) -> None:
        os.close(self._fd)


def round_trips(seconds: float) -> float:
    """Requests on a System V queue answered through shared memory and a semaphore, per second:
    the way of omq's requests without omq."""
    queue = sysv_ipc.MessageQueue(None, sysv_ipc.IPC_CREX, mode=0o600)
    semaphore = sysv_ipc.Semaphore(None, sysv_ipc.IPC_CREX, mode=0o600)
    memory = sysv_ipc.SharedMemory(None, sysv_ipc.IPC_CREX, mode=0o600, size=PAGE_BYTES)
    server = _fork.Process(target=_serve, args=(queue, semaphore, memory))
    try:
        server.start()
        request, view = bytes(REQUEST.size), memoryview(memory)
        began = time.perf_counter()
        count, passed = 0, 0.0
        while passed < seconds:
            for _ in range(CHECK_EVERY):
                queue.send(request)
                semaphore.acquire()
                bytes(view[: REPLY.size])
            count += CHECK_EVERY
            passed = time.perf_counter() - began
        view.release()
        queue.send(b"end")
        server.join()
        return count / passed
    finally:
        if server.is_alive():
            server.kill()
            server.join()
        memory.detach()
        for thing in (queue, semaphore, memory):
            thing.remove()


def _serve(queue: sysv_ipc.MessageQueue, semaphore: sysv_ipc.Semaphore,
           memory: sysv_ipc.SharedMemory) -> None:
    view, reply = memoryview(memory), bytes(REPLY.size)
    while len(queue.receive()[0]) == REQUEST.size:
        view[: REPLY.size] = reply
        semaphore.release()
    view.release()


def checksum_rate(size: int, seconds: float) -> float:
    """CRC-32C over buffers of this size, in MB/s."""
    data = os.urandom(size)
    repeat = max(1, CHUNK_BYTES // size)
    began = time.perf_counter()
    count, passed = 0, 0.0
    while passed < seconds:
        for _ in range(repeat):
            crc32c(data)
        count += repeat
        passed = time.perf_counter() - began
    return count * size / passed / 1e6
