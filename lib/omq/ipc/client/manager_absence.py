"""A queue manager that does not answer: what a client says of it while it waits, and at the end.

    no process        ManagerUnavailable: start it with omrc
    one that hangs    ManagerHung: it runs already, so omrc would not help; the text says what does
    a missing right   AccessDenied

Which process it is says the kernel (SO_PEERCRED of the control connection), else run/ids.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from omq.base import access, clock
from omq.base.amounts import duration
from omq.base.errors import AccessDenied, ManagerHung, ManagerUnavailable, OmqError
from omq.base.paths import SpoolPaths
from omq.storage.segment import read_ids

LATE_S: Final = 1.0
"""A wait of this length is announced; a restart of the manager usually takes less."""

Waiting = Callable[[str], None]
"""Takes the line for the user."""


class Absence:
    """Of the manager of one spool, as one client meets it."""

    def __init__(self, paths: SpoolPaths, waiting: Waiting | None = None) -> None:
        self._paths = paths
        self._waiting = waiting
        self._told = False

    def tell(self, began: float, reason: str, deadline: float | None = None) -> None:
        """Announce the wait once, when it has lasted LATE_S since `began` (monotonic)."""
        now = time.monotonic()
        if self._told or self._waiting is None or now - began < LATE_S:
            return
        self._told = True
        bound = "" if deadline is None else f", at most {duration(deadline - now)} more"
        self._waiting(f"waiting for the queue manager of {self._paths.root} ({reason}){bound}")

    def over(self) -> None:
        """It answers; the next wait is announced again."""
        self._told = False

    def error(self, error: Exception, manager: int, *, interrupted: bool = False) -> OmqError:
        """What to raise. `manager`: the process that listens on the socket, 0 if none does."""
        if isinstance(error, PermissionError) or type(error).__name__ == "PermissionsError":
            return access.denied(getattr(error, "filename", None) or self._paths.socket, error)
        hung = hung_error(self._paths, manager)
        if hung is not None and not interrupted:
            return hung
        reason = "interrupted" if interrupted else words(error)
        return ManagerUnavailable(spool=self._paths.root, reason=reason)


def words(error: Exception) -> str:
    """Why it could not be reached, without numbers."""
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return "nothing listens on its socket"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def hung_error(paths: SpoolPaths, pid: int = 0) -> ManagerHung | None:
    """For a manager that runs and does not answer; None when there is no process. `pid`: of the
    manager, when it is known from elsewhere than run/ids.json."""
    pid = pid or _published(paths)
    state = clock.process_state(pid) if pid else ""
    if state in ("", "Z", "X"):
        return None
    if state in clock.STOPPED:
        return ManagerHung(spool=paths.root, pid=pid, state="is stopped by a signal",
                           advice=f"'kill -CONT {pid}' lets it go on")
    return ManagerHung(
        spool=paths.root, pid=pid, state=f"runs but does not answer (process state {state})",
        advice=f"it may be starting or busy: see omstat, omqlog; 'kill -ABRT {pid}' ends it with "
        "a trace, and its supervisor starts the next one")


def is_suspended(paths: SpoolPaths) -> bool:
    """Has a signal or a debugger stopped the manager? Then nobody answers before it goes on."""
    pid = _published(paths)
    return bool(pid) and clock.process_state(pid) in clock.STOPPED


def _published(paths: SpoolPaths) -> int:
    """The manager's pid by run/ids.json, if that process still runs; else 0."""
    try:
        ids = read_ids(paths)
    except (OSError, AccessDenied):
        return 0
    if ids is None or ids.boot != clock.boot_id().hex():
        return 0
    return ids.pid if clock.process_start_ticks(ids.pid) == ids.started else 0
