"""Bodies of non-persistent messages: written, never synced, gone after a restart of the manager.

One writer, the queue manager. A file is removed when its last body is done with.

Invariants: 1. nothing here is synced, waited for or recovered; 2. `live[n]` counts the bodies of
file n that were not released; 3. file numbers are never used twice while the directory exists: the
newest file is never removed, so a reader that keeps files open never takes one for another.

Errors: SpoolFull, which refuses the message; DiskError (latched).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from omq.base import clock
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.format.store import HEADER_BYTES, VOLATILE_MAGIC, StoreHeader
from omq.storage import durable
from omq.storage.disk import Buffer
from omq.storage.files import File, create_file

_NAME = re.compile(r"([0-9]{10})\.vol")


def file_name(number: int) -> str:
    """`0000000042.vol`."""
    return f"{number:010d}.vol"


def volatile_numbers(paths: SpoolPaths) -> list[int]:
    """Numbers of the volatile files, ascending."""
    found = (_NAME.fullmatch(name) for name in durable.list_directory(paths.volatile))
    return sorted(int(match[1]) for match in found if match)


class VolatileBodies:
    """Opening empties the directory: what an earlier manager left belongs to no message."""

    def __init__(self, paths: SpoolPaths, settings: Settings, uuid: bytes) -> None:
        self.live: dict[int, int] = {}
        self._paths = paths
        self._uuid = uuid
        self._file_bytes = settings.volatile_file_bytes
        old = volatile_numbers(paths)
        self.number = max(old, default=0)
        self._open_next()
        for number in old:
            durable.unlink(paths.volatile / file_name(number), sync=False)

    def _open_next(self) -> None:
        number = self.number + 1
        file = create_file(self._paths.volatile / file_name(number), replace=True)
        header = StoreHeader(VOLATILE_MAGIC, number, self._uuid, clock.wall_ns()).encode()
        file.write([header], 0, new=True)
        self._file: File = file
        self.number, self.offset = number, HEADER_BYTES
        self.live[number] = 0

    @property
    def is_full(self) -> bool:
        """The next append begins a new file."""
        return self.offset >= self._file_bytes

    def append(self, payloads: Sequence[Buffer]) -> tuple[int, list[int]]:
        """Write payloads with one call: the file's number and the offset of each. All are live."""
        if self.is_full:
            self._rotate()
        total, offsets = self.offset, []
        for payload in payloads:
            offsets.append(total)
            total += len(payload)
        self._file.write(payloads, self.offset, new=True)
        self.offset = total
        self.live[self.number] += len(offsets)
        return self.number, offsets

    def _rotate(self) -> None:
        before, number = self._file, self.number
        self._open_next()
        before.close()
        if not self.live[number]:
            self._remove(number)

    def release(self, number: int, count: int = 1) -> None:
        """`count` bodies of file `number` are done with."""
        self.live[number] -= count
        assert self.live[number] >= 0
        if not self.live[number] and number != self.number:
            self._remove(number)

    def _remove(self, number: int) -> None:
        del self.live[number]
        durable.unlink(self._paths.volatile / file_name(number), sync=False)

    def close(self) -> None:
        self._file.close()
