"""The stack of a process that a fatal signal ends: SIGABRT (the watchdog sends it), SIGSEGV.

Such a process cannot log any more; the interpreter's fault handler writes where each thread stood
to `run/SERVICE.stack`. Whoever comes next tells it as an event (OM 1321) and moves the file to
`logs/SERVICE.stack`: the parent of a reader that died, or the next process of the service.

Invariants: 1. the file is open from the start of a daemon on, so that nothing must be opened in a
process that dies; readers inherit the descriptor; 2. it is a side file: where it cannot be made,
the stack goes to standard error, as without this module; 3. told once: the file is moved away
first.
"""

from __future__ import annotations

import faulthandler
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from omq.base import event_log, events, side_files
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths

_SHOWN_CHARACTERS: Final = 1000  # an event field holds 1024; the newest calls stand first
_opened: Final[list[int]] = []


def listen(paths: SpoolPaths, service: str, log: EventLog, *, kept: bool = False) -> Path | None:
    """At the start of a daemon, and when one of its readers has died: tell what was left, and have
    our own stack written; the file of what was told, None: nothing was left. Under systemd the
    stack goes to standard error, which is the journal, but for one that is to be `kept`."""
    if "JOURNAL_STREAM" in os.environ and not kept:
        return None
    told = tell(paths, service, log)
    path = _live(paths, service)
    try:
        descriptor = side_files.calls.open(
            str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
    except OSError:
        return told
    faulthandler.enable(file=descriptor)
    while _opened:
        with suppress(OSError):
            os.close(_opened.pop())
    _opened.append(descriptor)
    return told


def tell(paths: SpoolPaths, service: str, log: EventLog) -> Path | None:
    """Log what a process of this service has left, if it has, and where it is now; our own handler
    goes on with a file of its own (`listen`)."""
    path, kept = _live(paths, service), paths.logs / f"{service}.stack"
    with suppress(OSError):
        if not path.stat().st_size:
            return None
        side_files.calls.rename(str(path), str(kept))
        with kept.open(encoding="utf-8", errors="backslashreplace") as file:
            stack = file.read(_SHOWN_CHARACTERS)
        log.event(events.DIED_OF_SIGNAL, event_log.ERROR, file=kept, stack=stack)
        return kept
    return None


def forget(paths: SpoolPaths, service: str) -> None:
    """The daemon ends as it meant to: there is nothing to tell."""
    path = _live(paths, service)
    with suppress(OSError):
        if not path.stat().st_size:
            side_files.remove(path)


def _live(paths: SpoolPaths, service: str) -> Path:
    return paths.run / f"{service}.stack"
