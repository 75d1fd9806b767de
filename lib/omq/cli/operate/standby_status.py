"""What `omq standby status` shows: of a standby how it is, of a primary its standbys.

Errors: those of open_spool.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omq.base.amounts import duration, size
from omq.base.clock import iso_time
from omq.base.errors import Exit
from omq.base.paths import SpoolPaths
from omq.cli import role
from omq.cli.common import print_json
from omq.format.standby import Synced
from omq.services.daemon.options import Location
from omq.services.standby import lease_file
from omq.services.standby.lag import NOT_IN_FORCE, protection, standbys
from omq.storage import journal_synced, promotions, spool, standby_holds
from omq.storage.instance_file import Role

_UNKNOWN = ("standbys.json cannot be read: journal files are kept up to standby_files_kept. Remove "
            "it while the standbys follow, and each notes itself again")
_RESTART = "; the queue manager reads standby_sync when it starts: omshut, then omrc"


def show(location: Location, *, as_json: bool) -> int:
    """Print it; Exit.NO where a standby does not follow, or too few of those that are waited
    for."""
    found = status(location.paths, location.conf_dir)
    members = found.get("standbys", [])
    if as_json:
        print_json(found)
    else:
        for key, value in found.items():
            if value not in (None, "") and key not in (
                    "standbys", "promotions", "protection", "lease"):
                sys.stdout.write(f"{key:<16}{value}\n")
        if guard := found.get("protection"):
            sys.stdout.write(f"{'protection':<16}{guard['state']}: {len(guard['standbys'])} of "
                             f"{guard['wanted']} standbys that replies wait for"
                             f"{_RESTART if guard['state'] == NOT_IN_FORCE else ''}\n")
        if lease := found.get("lease"):
            sys.stdout.write(f"{'lease':<16}{lease_line(lease)}\n")
        for made in found["promotions"]:
            sys.stdout.write(f"{'promotion':<16}term {made['term']}: member {made['member']}, "
                             f"behind LSN {made['lsn']}, {iso_time(made['time_ns'])}\n")
        for each in members:
            sys.stdout.write(f"{'standby':<16}{standby_line(each)}\n")
    follows = found["following"] if found["role"] == Role.STANDBY.value else all(
        each["following"] and not each["conf"] for each in members)
    guarded = (found.get("protection") or {"state": "synced"})["state"] in ("synced", "leased")
    leased = not (found.get("lease") or {"trouble": ""})["trouble"]
    return Exit.OK if follows and guarded and leased else Exit.NO


def status(paths: SpoolPaths, conf_dir: Path) -> dict[str, Any]:
    """What this member is, and of a standby how it is; `following` is None where nothing runs."""
    info = spool.open_spool(paths.root)
    instance = info.instance
    found: dict[str, Any] = {"role": instance.role.value, "member": instance.member,
                             "term": instance.term, "primary": instance.primary,
                             "following": None,
                             "promotions": [asdict(each) for each in
                                            promotions.load(paths, instance.term)]}
    if (lease := lease_file.load(paths)) is not None:
        found["lease"] = lease.record() | {"trouble": lease.trouble}
    if instance.role is Role.PRIMARY:
        members, guard = [each.record() for each in standbys(paths)], protection(
            paths, conf_dir)
        return found | {"holds_unknown": _UNKNOWN if standby_holds.load(paths) is None else "",
                        "protection": guard.record() if guard else None, "standbys": members}
    if instance.role is not Role.STANDBY:
        return found
    found |= role.published(paths)
    mark = journal_synced.load(paths)
    if found["following"] is None and isinstance(mark, Synced):
        found["synced_lsn"] = mark.lsn
    return found


def lease_line(state: dict[str, Any]) -> str:
    """`held, 8.2 s left; primary: a; in sync: b`."""
    in_sync = "whoever follows" if state["in_sync"] is None else (
        ", ".join(state["in_sync"]) or "nobody")
    left = f", {duration(state['left_s'])} left" if state["left_s"] else ""
    why = f" ({state['trouble']})" if state["trouble"] else ""
    holder = state["holder"] or "nobody"
    return f"{state['state']}{left}; primary: {holder}; in sync: {in_sync}{why}"


def standby_line(state: dict[str, Any]) -> str:
    """`b: 12 frames, 40.0 KiB, 0.3 s behind`."""
    frames, seconds = state["lag_frames"], state["lag_s"]
    lacks = state.get("lag_bytes")
    behind = "lag not known" if seconds is None else (
        f"{_frames(frames, following=state['following'])}, "
        f"{'' if lacks is None else size(lacks) + ', '}{duration(seconds)} behind")
    away = state["away_s"]
    how = "" if state["following"] else (
        ", away" if away is None else f", away for {duration(away)}")
    why = f" ({state['error']})" if state.get("error") else ""
    why += f"; {state['conf']}" if state.get("conf") else ""
    return f"{state['member']}: {behind}{how}{why}"


def _frames(frames: int | None, *, following: bool) -> str:
    if frames is None:
        return "a new term" if following else "an unknown number of frames"
    return f"{frames} frames"
