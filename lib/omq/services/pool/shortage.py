"""When the disk is short (storage.disk_usage): rounds of pool.writer at once, and what it tells the
manager of them: that no room can be made, and what fills the spool.

While a round gains something the next one follows in the next turn; when none does, the disk is
full of what is needed, and one a second looks whether that has changed, or the next journal file
is in use: then the one before may go. The manager slows clients
down until it hears so, then it refuses their puts.

Errors: DiskError of statvfs; what the manager refuses is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omq.base import clock
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.services.pool.protocols import Connection
from omq.storage import disk_reserve, disk_usage
from omq.storage.disk_usage import Free

PAUSE_NS: Final = clock.NS_PER_S
"""Between rounds that gain nothing, and between two looks at what fills the spool."""


class Shortage:
    """Of one manager; `look` each turn, `after_round` after a round."""

    def __init__(self, paths: SpoolPaths, settings: Settings) -> None:
        self._paths, self._settings = paths, settings
        self._free: Free | None = None
        self._due_ns = self._says_ns = 0
        self._stuck = False
        self._file = 0
        self._says = ""
        self._told = (False, "")

    @property
    def short(self) -> bool:
        return self._free is not None and self._free.short

    def look(self, messages: int, file: int) -> bool:
        """Of an instance with so many messages, which writes into this journal file. True: a round
        is due now."""
        before = self.short and file == self._file
        self._file = file
        self._free = disk_usage.free(self._paths, self._settings, messages)
        if not self.short:
            self._stuck, self._says = False, ""
        elif not before:
            self._due_ns = 0
        return self.short and clock.monotonic_ns() >= self._due_ns

    def after_round(self, *, gained: bool) -> None:
        """`gained`: it removed something, or the next ones will."""
        if self.short:
            self._stuck = not gained
            self._due_ns = 0 if gained else clock.monotonic_ns() + PAUSE_NS

    def tell(self, manager: Callable[[], Connection]) -> None:
        """What has changed since the last time."""
        now = clock.monotonic_ns()
        if self.short and now >= self._says_ns:
            self._says_ns = now + PAUSE_NS
            found = disk_usage.filled(self._paths)
            bytes_lack = self._free is not None and self._free.wanted
            self._says = found.files_text
            if bytes_lack:
                small = disk_reserve.too_small(self._paths.journal, self._settings)
                self._says = f"{small.text}; {found.text}" if small else found.text
        if (self._stuck, self._says) != self._told:
            manager().control({"op": "room", "stuck": self._stuck, "says": self._says})
            self._told = (self._stuck, self._says)
