"""The one program that `omq standby keep` runs at a time, for what its member is.

    serve      omrc --embedded                     a primary with the lease
    follow     omq standby follow -- WAY           a standby
    promote    omq standby promote --won TERM      a standby that has won the lease
    rejoin     omq standby rejoin -- WAY           a former primary

It is stopped by SIGTERM, and its whole process group by SIGKILL when that takes too long. It gets
SIGTERM from the kernel when the keeper dies. What failed is started again after a pause that grows.

Errors: OSError of `start`: there is no such program, or no process.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from omq.services.supervise.process_group import launch

PAUSE_S: Final = (0.5, 30.0)  # the first one, the longest
LASTED_S: Final = 60.0  # what ran for so long was well
_RUN: Final = (sys.executable, "-P", "-m", "omq.cli.launch")


class KeptProgram:
    """See the module. `name`: of what runs, empty: nothing; `code` of what ended last."""

    def __init__(self, location_arguments: Sequence[str]) -> None:
        self._location = tuple(location_arguments)
        self.name = ""
        self.words: tuple[str, ...] = ()
        self.code = 0
        self.pid = 0
        self._began = self._due = self._kill_at = 0.0
        self._pause = PAUSE_S[0]

    def start(self, name: str, program: Sequence[str], words: Sequence[str] = ()) -> bool:
        """False: it failed just now, and has a pause."""
        assert not self.name
        now = time.monotonic()
        if now < self._due:
            return False
        argv = [*_RUN, *program, *self._location, *(("--", *words) if words else ())]
        self.pid = launch(argv, dict(os.environ))
        self.name, self.words = name, tuple(words)
        self._began, self._kill_at = now, 0.0
        return True

    def stop(self, patience_s: float) -> None:
        """Ask it to end; again is nothing."""
        if self.name and not self._kill_at:
            self._kill_at = time.monotonic() + patience_s
            self._signal(signal.SIGTERM)

    @property
    def stopping(self) -> bool:
        """Was it asked to end?"""
        return bool(self.name and self._kill_at)

    def reap(self) -> str:
        """The name of what has ended since; empty: nothing has."""
        if not self.name:
            return ""
        now = time.monotonic()
        if self._kill_at and now >= self._kill_at:
            self._signal(signal.SIGKILL, group=True)
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG)
        if found is None:
            return ""
        self.code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        ended, asked = self.name, bool(self._kill_at)
        self.name, self.words, self._kill_at = "", (), 0.0
        if self.code == 0 or asked:
            self._pause, self._due = PAUSE_S[0], now
        else:
            if now - self._began > LASTED_S:
                self._pause = PAUSE_S[0]
            self._due, self._pause = now + self._pause, min(2 * self._pause, PAUSE_S[1])
        return ended

    def at_once(self) -> None:
        """Its member has changed: no pause for the next one."""
        self._due, self._pause = 0.0, PAUSE_S[0]

    def _signal(self, number: signal.Signals, *, group: bool = False) -> None:
        """It is not reaped yet, so both numbers are its own."""
        if group:
            os.killpg(self.pid, number)
        else:
            os.kill(self.pid, number)

    def close(self) -> None:
        """Nothing of it is left."""
        while self.name:
            self._kill_at = self._kill_at or time.monotonic()
            self._signal(signal.SIGKILL, group=True)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self.reap()
