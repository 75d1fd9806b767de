"""How long a session waits for its client: one timer, looked at when it is due instead of being
moved for each command.

Times are the loop's. A whole command comes within `smtp_idle_timeout_s`; a text has that and what
its bytes earn (`smtp_text_bytes_s_min`); all together `smtp_session_s_max`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omq.base.settings import Settings


class Patience:
    """`over` is called once the client has had its time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settings: Callable[[], Settings],
                 over: Callable[[], None]) -> None:
        self._loop, self._settings, self._over = loop, settings, over
        self._timer: asyncio.TimerHandle | None = None
        self._ends = loop.time() + settings().smtp_session_s_max  # of the session
        self._base = self._due = self._ends  # for the text, for what is next

    def expect(self) -> None:
        """From now on a whole command, or a text that moves, is waited for."""
        self._base = self._due = self._loop.time() + self._settings().smtp_idle_timeout_s
        self._watch()

    def grant(self, received: int) -> None:
        """So much of a text has come: it earns time."""
        rate = self._settings().smtp_text_bytes_s_min
        self._due = self._base + received / rate if rate else self._ends

    def hold(self) -> None:
        """No time-out: the server itself makes the client wait, or the session is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_at(min(self._due, self._ends), self._check)

    def _check(self) -> None:
        self._timer = None
        if self._loop.time() < min(self._due, self._ends):
            self._watch()  # it has moved since the timer was set
        else:
            self._over()
