"""Daemons that run although run/ does not say so: on a full disk neither a daemon nor its embedded
supervisor can write what it is (base.side_files), and what is written there is of their
predecessors. The kernel knows better: who is a child of the supervisor, and for which service.

Invariants: 1. only children of a supervisor that lives count, so nobody else can pretend; 2. what
/proc hides from this user, or a kernel without `children` does not say, is as if it were not there.
Errors: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from omq.services.daemon.process import ProcessId, identify
from omq.services.daemon.run_state import LIVE, ProcessState, State

OLD: Final = "it runs; what run/ says of it is old, for nothing can be written there"
_OPTION: Final = "--service"  # services.supervise.daemon_plan.command
_PROC: Final = Path("/proc")


def seen(supervisor: ProcessId, recorded: Iterable[ProcessState]) -> list[ProcessState]:
    """What the supervisor has recorded of its daemons, with those in the place of their
    predecessors that run and are not recorded yet."""
    records = list(recorded)
    if all(each.state in LIVE and each.identity.alive() for each in records):
        return records
    running = dict(_services(supervisor))
    return [_as_it_is(each, running.get(each.name)) for each in records]


def _as_it_is(record: ProcessState, runs: ProcessId | None) -> ProcessState:
    if runs is None or record.identity.alive():
        return record
    return replace(record, state=State.STARTED, pid=runs.pid, start_ticks=runs.start_ticks,
                   text=OLD)


def _services(supervisor: ProcessId) -> Iterator[tuple[str, ProcessId]]:
    """The service that each child is started for."""
    if not supervisor.alive():
        return
    for pid in _children(supervisor.pid):
        with suppress(OSError):
            words = (_PROC / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace")
            _, found, rest = words.partition(f"\0{_OPTION}\0")
            if found:
                yield rest.partition("\0")[0], identify(pid)


def _children(pid: int) -> Iterator[int]:
    """Of all its threads."""
    with suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                yield from map(int, (thread / "children").read_text("ascii").split())
