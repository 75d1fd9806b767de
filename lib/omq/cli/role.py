"""What a spool is of its instance, for the tools that look: nothing of a primary, a line of a
standby or a former primary, so that nobody takes what it shows for what is served.

Errors: none: what cannot be read says nothing; who needs the spool meets it.
"""

from __future__ import annotations

import json
from typing import Any

from omq.base import clock, side_files
from omq.base.amounts import duration
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.services.standby.lag import SILENT_NS
from omq.storage import instance_file
from omq.storage.instance_file import Instance, Role

_BYTES_MAX = 1 << 16


def member(paths: SpoolPaths) -> Instance | None:
    """instance.json; None where it cannot be told."""
    try:
        data = side_files.read(paths.uuid, instance_file.BYTES_MAX)
        return instance_file.decode(data, paths.uuid) if data is not None else None
    except (OmqError, OSError):
        return None


def published(paths: SpoolPaths) -> dict[str, Any]:
    """What `omq standby follow` says of itself; empty where it does not run. One that was killed,
    or stands still, has left what it said last: that is no longer so (`following` None, and why).
    """
    try:
        found = json.loads(side_files.read(paths.standby, _BYTES_MAX) or b"{}")
    except (ValueError, RecursionError, OSError):
        return {}
    return _aged(found) if isinstance(found, dict) else {}


def _aged(said: dict[str, Any]) -> dict[str, Any]:
    """A process that follows says so once a second. Before a reboot the clock began elsewhere; an
    older omq does not say when it was."""
    told = said.pop("monotonic_ns", None)
    if not said.get("following") or not isinstance(told, int):
        return said
    age_ns = clock.monotonic_ns() - told
    if 0 <= age_ns < SILENT_NS:
        return said
    since = f" for {duration(age_ns / clock.NS_PER_S)}" if age_ns > 0 else " since the host started"
    return said | {"following": None, "heard_s": None, "lag_frames": None, "primary_lsn": None,
                   "error": f"'omq standby follow' has said nothing{since}: it does not run, or "
                            "stands still"}


def line(paths: SpoolPaths) -> str:
    """`standby of ..., 12 frames behind`; empty of a primary."""
    found = member(paths)
    if found is None or found.role is Role.PRIMARY:
        return ""
    if found.role is Role.FORMER:
        return f"a former primary (member {found.member}): what it shows is not served"
    said = published(paths)
    lag = said.get("lag_frames")
    how = "it does not follow" if not said.get("following") else (
        f"{lag} frames behind" if lag is not None else "a new term begins")
    return f"standby of: {found.primary or 'a primary that is not noted'} (member " \
           f"{found.member}), {how}"
