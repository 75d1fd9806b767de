"""The processes of the demo's instance, as its run directory names them.

`run/supervisor.json` lists the daemons, `run/<service>.json` the readers of one service. Only
processes in state "started" count here: ready, and alive when the file was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from omq.services.daemon.process import ProcessId as Daemon
from omq.services.daemon.run_state import (
    SUPERVISOR_FILE,
    ProcessState,
    State,
    SupervisorState,
    read_service,
    read_supervisor,
)

__all__ = ["Daemon", "auxiliaries", "daemon", "main_reader", "supervisor"]


def supervisor(run: Path) -> SupervisorState | None:
    """The supervisor and its children; None before it has written them."""
    return read_supervisor(run / SUPERVISOR_FILE)


def daemon(run: Path, service: str) -> tuple[Daemon, ...]:
    """The daemon of this service, if it is started."""
    state = supervisor(run)
    children = state.children if state else ()
    return _started(child for child in children if child.name == service)


def main_reader(run: Path, service: str) -> tuple[Daemon, ...]:
    """The main reader of a service, if it is started."""
    state = read_service(run / f"{service}.json")
    return _started([state.main] if state and state.main else [])


def auxiliaries(run: Path, service: str) -> tuple[Daemon, ...]:
    """The auxiliary readers of a service that are started."""
    state = read_service(run / f"{service}.json")
    return _started(state.auxiliary if state else ())


def _started(states: Iterable[ProcessState]) -> tuple[Daemon, ...]:
    return tuple(each.identity for each in states if each.state is State.STARTED)
