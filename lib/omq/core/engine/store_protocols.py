"""What the engine wants of the stores that it writes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from omq.base.arrays import Vector
from omq.storage.slots import FileSlots


class PoolSlots(Protocol):
    """Pool file slots in memory (storage.slots.SlotAllocator)."""

    def choose_file(self, pid: int) -> int: ...
    def alloc(self, file: int, run: int = 1) -> int: ...
    def file(self, file: int) -> FileSlots: ...
    def free(self, file: int, record: int, run: int = 1) -> None: ...
    def free_many(self, files: Vector, records: Vector) -> None: ...


class VolatileBodies(Protocol):
    """Bodies of non-persistent messages (storage.volatile). `number`: of the file in use;
    `is_full`: the next append begins another."""

    number: int

    @property
    def is_full(self) -> bool: ...

    def append(self, payloads: Sequence[bytes | memoryview]) -> tuple[int, list[int]]: ...
    def release(self, number: int, count: int = 1) -> None: ...
