"""Asking systemd: which instance it runs, how its units are, and to start, stop or reload them.

An instance is systemd's when it has the spool of its name below /var/lib and its target is
installed; the embedded supervisor runs all others. States are the words that the supervisor has
too (omq.services.daemon.run_state.State), so that tools show the same for both.

Errors: SystemctlFailed, with the last line that systemctl said; NoPermission.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.errors import NoPermission, SystemctlFailed
from omq.base.names import escape
from omq.base.paths import SpoolPaths, spool_of_instance
from omq.services.daemon.process import identify
from omq.services.daemon.run_state import ProcessState, State
from omq.services.supervise.unit_files import (
    PACKAGE_UNIT_DIR,
    UNIT_DIR,
    base_name,
    target,
    unit_of,
)

BOOTED: Final = Path("/run/systemd/system")
"""Exists exactly when systemd is the init (sd_booted(3))."""

_PROPERTIES: Final = (
    *("Id", "ActiveState", "SubState", "MainPID", "NRestarts", "StatusText", "Result"),
    *("StateChangeTimestamp", "ExecMainStatus", "LoadState"),
)
_STATES: Final = {
    ("activating", "auto-restart"): State.WAITING,
    ("active", ""): State.STARTED,
    ("reloading", ""): State.STARTED,
    ("activating", ""): State.STARTING,
    ("deactivating", ""): State.STOPPING,
    ("failed", ""): State.FAILED,
    ("inactive", ""): State.STOPPED,
}
_DENIED: Final = ("Access denied", "authentication required", "Permission denied")


@dataclass(frozen=True, slots=True)
class UnitState:
    """A unit as `systemctl show` has it."""

    unit: str
    loaded: bool
    state: State
    since: float
    pid: int
    restarts: int
    text: str
    result: str

    def process(self, service: str) -> ProcessState:
        """The same in the words of the embedded supervisor."""
        return ProcessState(
            name=service, state=self.state, since=self.since, pid=self.pid,
            start_ticks=identify(self.pid).start_ticks if self.pid else 0,
            restarts=self.restarts, text=self.text,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Managed:
    """An instance that systemd runs."""

    instance: str | None

    @property
    def target(self) -> str:
        return target(self.instance)

    @property
    def drain(self) -> str:
        return f"{base_name(self.instance)}-drain.service"

    def unit(self, service: str) -> str:
        return unit_of(service, self.instance)


def managed(paths: SpoolPaths) -> Managed | None:
    """The instance with this spool, if systemd runs it."""
    plain = spool_of_instance(None)
    if not BOOTED.is_dir() or paths.root.parent != plain.parent:
        return None
    if paths.root == plain:
        instance = None
    elif paths.root.name.startswith(f"{plain.name}-"):
        instance = paths.root.name.removeprefix(f"{plain.name}-")
    else:
        return None
    known = (UNIT_DIR / target(instance), PACKAGE_UNIT_DIR / target(instance))
    return Managed(instance) if any(path.exists() for path in known) else None


def states(units: Sequence[str]) -> list[UnitState]:
    """How these units are, in their order."""
    if not units:
        return []
    wanted = ",".join(_PROPERTIES)
    text = call(["show", "--timestamp=unix", f"--property={wanted}", *units])
    found = [_state(block) for block in text.strip().split("\n\n")]
    if len(found) != len(units):
        raise SystemctlFailed(command="systemctl show", reason=f"{len(found)} answers for "
                              f"{len(units)} units", unit=units[0])
    return found


def _state(block: str) -> UnitState:
    values = dict(line.partition("=")[::2] for line in block.splitlines())
    active, sub = values["ActiveState"], values["SubState"]
    state = _STATES.get((active, sub)) or _STATES.get((active, "")) or State.STARTING
    return UnitState(
        unit=values["Id"],
        loaded=values["LoadState"] == "loaded",
        state=state,
        since=float(values["StateChangeTimestamp"].removeprefix("@") or 0),
        pid=int(values.get("MainPID") or 0),
        restarts=int(values.get("NRestarts") or 0),
        text=values.get("StatusText", ""),
        result=values.get("Result", ""),
    )


def enabled(units: Sequence[str]) -> list[str]:
    """`enabled`, `disabled`, `static` ... of each; `` for one that is not installed."""
    if not units:
        return []
    text = call(["show", "--property=Id,UnitFileState", *units])
    return [re.findall(r"^UnitFileState=(.*)$", block, re.MULTILINE)[0]
            for block in text.strip().split("\n\n")]


def reset_failed(units: Iterable[str]) -> None:
    """Forget failures and counted starts: else a unit that was started often is refused."""
    listed = call(["list-units", "--all", "--plain", "--no-legend", *units])
    loaded = [line.split()[0] for line in listed.splitlines() if line.strip()]
    if loaded:  # of others, which are off and were forgotten, there is nothing to forget
        call(["reset-failed", *loaded])


def call(words: Sequence[str], unit: str = "") -> str:
    """`systemctl WORDS`, what it printed. SystemctlFailed, NoPermission."""
    command = ["systemctl", "--no-pager", "--no-ask-password", *words]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode == 0:
        return result.stdout
    lines = [line for line in result.stderr.splitlines() if line.strip()] or ["no reason given"]
    reason = escape(lines[0], 300)
    if any(each.lower() in result.stderr.lower() for each in _DENIED):
        raise NoPermission(action=" ".join(words[:2]), what=reason)
    raise SystemctlFailed(command=f"systemctl {' '.join(words)}", reason=reason,
                          unit=unit or words[-1])
