"""What a turn of the manager's loop looks at besides the engine and its server."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from omq.ipc.server.doorkeeper import Doorkeeper
from omq.ipc.server.large_bodies import Made
from omq.ipc.server.requests import Requests


class Watch(Protocol):
    """services.manager.clock_watch: wall minus boot time is between these, or it looks."""

    low: int
    high: int

    def look(self) -> None: ...


class Flags(Protocol):
    """services.daemon.signals."""

    stopping: bool
    reload_wanted: bool


@dataclass(frozen=True, slots=True)
class LoopParts:
    """See the module. `finished`: large bodies that were copied; `limit`: requests of a group."""

    requests: Requests
    keeper: Doorkeeper
    finished: deque[Made]
    clock: Watch
    signals: Flags
    limit: int
