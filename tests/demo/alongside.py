"""Something that happens while the feed runs, in a thread of its own.

A subclass says in `_happen` what; it looks at `_stopping` where it waits. Errors: those of
`_happen`, from `join`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor


class Alongside(ABC):
    """See the module."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._end: Future[None] | None = None

    def start(self) -> None:
        """Begin to wait for the moment."""
        self._end = self._pool.submit(self._happen)
        self._pool.shutdown(wait=False)

    def stop(self) -> None:
        """Give up; the feed must have been stopped too."""
        self._stopping.set()

    @property
    def running(self) -> bool:
        """Whether something is still to come to its end."""
        return self._end is not None and not self._end.done()

    def join(self) -> None:
        """Wait for the end; raises what went wrong."""
        if self._end is not None:
            self._end.result()

    @abstractmethod
    def _happen(self) -> None: ...
