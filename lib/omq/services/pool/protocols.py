"""What pool.writer needs of others, as protocols: the manager's connection, waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from omq.base.paths import SpoolPaths


class Connection(Protocol):
    """What pool.writer asks of the queue manager (omq.ipc.client.connection.Connection)."""

    @property
    def registrations(self) -> int: ...
    def relocate(self, rows: bytes) -> int: ...
    def control(self, question: dict[str, Any]) -> dict[str, Any]: ...
    def close(self) -> None: ...


Connect = Callable[[SpoolPaths, float], Connection]


class Waiting(Protocol):
    """Waits that keep the watchdog quiet (omq.services.pool.pool_writer.Pulse)."""

    def beat(self) -> None: ...
    def wait(self, periods: int = 1, also: int = -1) -> None: ...
    def short(self) -> None: ...
    def busy(self, status: str) -> None: ...
