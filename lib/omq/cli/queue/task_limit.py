"""The time that a function has for one message: --time-limit and --kill-after of `omq worker`.

    limit_s           the function is interrupted in the main thread (TaskOverdue): a failed attempt
    + kill_after_s    its process ends: the message is redelivered as that of a reader that died,
                      one attempt counted, and the parent starts another process

The first is SIGALRM, which Python hands to the function between two of its instructions: its
`finally`s run. A function that swallows it, or hangs in C code, or holds the GIL there, meets the
second: a thread of the faulthandler, which needs neither the interpreter nor the parent, writes to
standard error where every thread stood, and ends the process.

Invariants: 1. after `disarm` neither comes; 2. without a limit nothing is armed, and nothing paid.

The crash argument is the reader's (omq.ipc.client.reader): the attempt was counted when the message
was handed out, and the reader had not settled it, so the manager has it again.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omq.base.amounts import duration

AGAIN_S: Final = 0.5


class TaskOverdue(BaseException):
    """Raised in a function at work: its time is over."""


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """See the module. `limit_s` 0: none."""

    limit_s: float
    kill_after_s: float

    def arm(self, interrupt: Callable[[BaseException], None]) -> None:
        """`interrupt` is called in the signal's handler. Each time anew: a function may have used
        SIGALRM for itself."""
        if not self.limit_s:
            return
        faulthandler.dump_traceback_later(self.limit_s + self.kill_after_s, exit=True,
                                          file=sys.stderr.fileno())
        signal.signal(signal.SIGALRM, lambda *_: interrupt(TaskOverdue(
            f"the function had {duration(self.limit_s)} (--time-limit)")))
        # Again and again: one that comes just before a system call that blocks is seen after it.
        signal.setitimer(signal.ITIMER_REAL, self.limit_s, AGAIN_S)

    def disarm(self) -> None:
        """The function is over."""
        if self.limit_s:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()
