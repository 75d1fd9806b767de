"""What the daemons publish about themselves in the run directory, for omstat and other tools.

    run/<service>.json    one per service, written by its parent process: ServiceState
    run/supervisor.json   written by the embedded supervisor: SupervisorState

A reader of these files asks nobody and waits for nobody. Files are replaced by rename, so a reader
sees the old or the new one, never half. They are not synced: after a reboot they mean nothing, and
every pid in them carries its start time (ProcessId), so a stale file is seen as stale.

Invariant: hostile or foreign content gives None from `read_*`, never an exception of its decoder.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from omq.base import modes, side_files
from omq.services.daemon.process import ProcessId

FILE_BYTES_MAX = 256 * 1024  # 21 readers or 100 children need a tenth of it
SUPERVISOR_FILE = "supervisor.json"


class State(StrEnum):
    """The life of one process or service."""

    STOPPED = "stopped"  # off; where it is `wanted`, it waits for its turn to start
    STARTING = "starting"  # runs, not ready yet
    STARTED = "started"  # ready
    STOPPING = "stopping"  # asked to end
    WAITING = "waiting"  # died; the next start waits for its back-off
    FAILED = "failed"  # wrong configuration: not started again by itself


LIVE = frozenset({State.STARTING, State.STARTED, State.STOPPING})


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process of a service. `since` is wall time in seconds; pid 0 = none runs."""

    name: str
    state: State
    since: float
    pid: int = 0
    start_ticks: int = 0
    restarts: int = 0
    text: str = ""
    wanted: bool = False  # of a daemon: its supervisor is to have it on

    @property
    def identity(self) -> ProcessId:
        return ProcessId(self.pid, self.start_ticks)


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One service: its parent process and its readers (none for a single-process daemon)."""

    process: ProcessState
    auxiliaries: int = 0  # configured
    main: ProcessState | None = None
    auxiliary: tuple[ProcessState, ...] = ()
    conf_dir: str = ""  # where it reads its configuration


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """The embedded supervisor and its children in starting order."""

    pid: int
    start_ticks: int
    since: float
    children: tuple[ProcessState, ...]

    @property
    def identity(self) -> ProcessId:
        return ProcessId(self.pid, self.start_ticks)


def write_state(path: Path, state: ServiceState | SupervisorState) -> None:
    """Publish: at once, or when the run directory can be written again (base.side_files)."""
    side_files.replace(path, (json.dumps(asdict(state), indent=1) + "\n").encode("ascii"),
                       modes.PUBLIC)


def read_service(path: Path) -> ServiceState | None:
    """The published state; None when there is none or it cannot be understood."""
    found = _read(path)
    if found is None:
        return None
    try:
        main = found["main"]
        return ServiceState(
            process=_process(found["process"]),
            auxiliaries=int(found["auxiliaries"]),
            main=None if main is None else _process(main),
            auxiliary=tuple(_process(each) for each in found["auxiliary"]),
            conf_dir=str(found.get("conf_dir", "")),
        )
    except (KeyError, TypeError, ValueError):
        return None


def read_supervisor(path: Path) -> SupervisorState | None:
    """The published state; None when there is none or it cannot be understood."""
    found = _read(path)
    if found is None:
        return None
    try:
        return SupervisorState(
            pid=int(found["pid"]),
            start_ticks=int(found["start_ticks"]),
            since=float(found["since"]),
            children=tuple(_process(each) for each in found["children"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _process(found: dict[str, Any]) -> ProcessState:
    return ProcessState(
        name=str(found["name"]),
        state=State(found["state"]),
        since=float(found["since"]),
        pid=int(found["pid"]),
        start_ticks=int(found["start_ticks"]),
        restarts=int(found["restarts"]),
        text=str(found["text"]),
        wanted=bool(found.get("wanted", False)),
    )


def _read(path: Path) -> dict[str, Any] | None:
    data = side_files.read(path, FILE_BYTES_MAX + 1)
    if data is None or len(data) > FILE_BYTES_MAX:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
