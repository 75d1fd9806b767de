"""Native connections of a library's transport: one for what is put and asked, under a lock.

Invariants: 1. a native connection is used by one thread at a time; 2. the child of a fork makes its
own, and never touches its parent's; 3. one that has ended by an error is left, and the next use
makes another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from omq.base.errors import (
    ConnectionClosed,
    ConnectionForked,
    ManagerHung,
    ManagerUnavailable,
    QueueGone,
    ReaderClosed,
    ShuttingDown,
    TimedOut,
    UnknownQueue,
)
from omq.ipc.client.connection import Client, connect
from omq.ipc.wire import arguments

CONNECTION_ERRORS: Final = (ManagerUnavailable, ManagerHung, TimedOut, ShuttingDown,
                            ConnectionClosed, ConnectionForked, ReaderClosed, QueueGone,
                            UnknownQueue)
"""After these a library connects again and declares its queues anew, which mends all of them."""
TIMEOUT_S: Final = 10.0
"""Patience with a manager that is away. Libraries try again by themselves; a restart takes less."""
Result = TypeVar("Result")


def place_of(url: str) -> dict[str, Any]:
    """What a URL tells `connect`: omq:///path, omq://instance, omq:// (as OMQ_SPOOL says)."""
    parts = urlsplit(url)
    if parts.path.strip("/"):
        if parts.netloc:
            raise arguments.wrong("url", url, "it is omq:///path or omq://instance")
        return {"spool": Path(unquote(parts.path))}
    return {"instance": unquote(parts.netloc)} if parts.netloc else {}


class Natives:
    """See the module. `use` carries out a call with the shared connection."""

    def __init__(self, url: str, name: str, timeout_s: float) -> None:
        self._place, self._name, self._timeout_s = place_of(url), name, timeout_s
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._shared: Client | None = None

    def connect(self) -> Client:
        """A new native connection, for a reader."""
        return connect(**self._place, name=self._name, timeout_s=self._timeout_s)

    def use(self, work: Callable[[Client], Result]) -> Result:
        """What `work` gives; its errors."""
        if self._pid != os.getpid():
            self._forget()  # the parent's is the parent's
        with self._lock:
            if self._shared is None:
                self._shared = self.connect()
            try:
                return work(self._shared)
            except (ManagerUnavailable, ManagerHung, TimedOut, ConnectionClosed):
                self._leave()
                raise

    @property
    def generation(self) -> Client | None:
        """The connection that temporary queues go with."""
        return self._shared if self._pid == os.getpid() else None

    def close(self) -> None:
        """End the shared connection; the next use makes another."""
        if self._pid == os.getpid():
            with self._lock:
                shared, self._shared = self._shared, None
                if shared is not None:
                    shared.close()

    def _leave(self) -> None:
        left, self._shared = self._shared, None
        if left is not None:
            left.abandon()
