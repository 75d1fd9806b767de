"""run/lease.json: how the lease is, told by `omq standby keep` to whoever looks, and the proof with
which a queue manager begins and a keeper that is started again goes on.

    {"state": "held", "member": "a", "term": 3, "holder": "a", "until_ns": ..., "boot_id": "...",
     "lease": ..., "primary_at": ..., "in_sync": ["b"], "error": "", "told_ns": ...}

Times are monotonic ns of the boot that is named, so nothing of it counts after a reboot, or on
another host.

Errors: none: what cannot be read says that there is no lease (omq.base.side_files).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from omq.base import clock, modes, side_files
from omq.base.config import load_settings
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths

SILENT_NS: Final = 10 * clock.NS_PER_S  # nobody has told for so long: the keeper is gone
_BYTES_MAX: Final = 8192
HELD, WAITING, FREE, SILENT, FORGOTTEN, NOT_IN_SYNC = (
    "held", "waiting", "free", "silent", "forgotten", "not in sync")


@dataclass(frozen=True, slots=True)
class LeaseState:
    """What the file says. `state`: held; waiting (another has it); free; silent (etcd does not
    answer); forgotten (etcd knows no term, or an earlier one); not in sync (it is free, and not for
    this one). `holder`: who etcd says is primary. `error`: of the last call."""

    state: str
    member: str
    term: int
    holder: str
    until_ns: int
    boot_id: str
    lease: int
    primary_at: int
    in_sync: list[str] | None
    error: str
    told_ns: int

    @property
    def here(self) -> bool:
        """Is it of this boot?"""
        return self.boot_id == clock.boot_id().hex()

    @property
    def kept(self) -> bool:
        """Does a keeper run?"""
        return self.here and 0 <= clock.monotonic_ns() - self.told_ns < SILENT_NS

    def left_s(self) -> float:
        """For so long nobody else can have it; 0: it is not held."""
        if not self.here or self.state != HELD:
            return 0.0
        return max(0.0, (self.until_ns - clock.monotonic_ns()) / clock.NS_PER_S)

    @property
    def trouble(self) -> str:
        """Why this member could not take part in a failover now; empty: it could."""
        if not self.kept:
            return "omq standby keep does not run"
        if self.state in (SILENT, FORGOTTEN, NOT_IN_SYNC):
            return self.error or "etcd has not answered yet"
        if self.state == HELD and not self.left_s():
            return f"the lease is over: {self.error}"
        return ""

    def record(self) -> dict[str, Any]:
        """As JSON, for people."""
        return {"state": self.state if self.kept else "no keeper", "holder": self.holder,
                "left_s": round(self.left_s(), 1), "in_sync": self.in_sync, "error": self.error}


def load(paths: SpoolPaths) -> LeaseState | None:
    """None: there is none that can be read."""
    try:
        found = json.loads(side_files.read(paths.lease, _BYTES_MAX) or b"")
        members = found["in_sync"]
        return LeaseState(
            str(found["state"]), str(found["member"]), int(found["term"]), str(found["holder"]),
            int(found["until_ns"]), str(found["boot_id"]), int(found["lease"]),
            int(found["primary_at"]), None if members is None else list(map(str, members)),
            str(found["error"]), int(found["told_ns"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def watched(paths: SpoolPaths, conf_dir: Path) -> LeaseState | None:
    """As `load`, for who watches; None: no lease decides here, or the configuration is wrong."""
    try:
        if not load_settings(conf_dir).standby_lease:
            return None
    except OmqError:
        return None
    return load(paths) or LeaseState(SILENT, "", 0, "", 0, "", 0, 0, [], "", 0)


def store(paths: SpoolPaths, state: LeaseState) -> None:
    """For others to read."""
    side_files.replace(paths.lease, (json.dumps(asdict(state), sort_keys=True) + "\n").encode(),
                       modes.PUBLIC)
