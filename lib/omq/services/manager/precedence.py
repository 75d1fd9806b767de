"""How the manager stands among the processes of the host: first, and without pauses for garbage."""

from __future__ import annotations

import contextlib
import gc
import os


def take_precedence(nice: int) -> None:
    """Every client waits for this process: beside other work it may go first (manager_nice), if
    it has the right; a drop-in's Nice= does the same. By itself it does not: it would push the
    clients aside that are about to ask, and groups would be smaller (ADR 0017)."""
    if nice < os.getpriority(os.PRIO_PROCESS, 0):
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
    gc.collect()
    gc.freeze()  # what is there now stays
