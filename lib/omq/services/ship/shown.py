"""run/ship.json: how far `omq ship` is. It says so once a second, to whoever looks: `omq ship
status`, `omq health`, alarms, metrics and the console.

Invariant: whatever the file holds, a look at it says that something is wrong, or what it says.

Errors: none: what cannot be read says that nothing ships (omq.base.side_files).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from omq.base import clock, side_files
from omq.base.amounts import duration, size
from omq.base.clock import NS_PER_S, iso_time
from omq.base.config import load_settings
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings

SILENT_S: Final = 60
"""A runner says something each second: it is taken to have gone."""
QUIET_S: Final = 5
"""Its figures are no longer those of now."""
_BYTES_MAX: Final = 65536
NOT_KNOWN: Final = "not known: no queue manager has run since this began"


@dataclass(frozen=True, slots=True)
class ShipState:
    """`found`: the file's object, empty: there is none. `late_s`: the key ship_late_s."""

    found: dict[str, Any]
    late_s: int
    now_ns: int

    @property
    def waits_s(self) -> float | None:
        """For so long the oldest has waited that is not there, up to now; None: nobody knows. What
        came since nothing was said may not be there, so nobody who looks hears `nothing` then."""
        waits = self.found.get("waits_s")
        if not self.found or waits is None:
            return None
        return float(waits) + (self.silent_s if waits or self._is_quiet else 0.0)

    @property
    def waits_bytes(self) -> int | None:
        """Bytes of the journal that are not there; None: nobody knows."""
        waits = self.found.get("waits_bytes")
        return None if waits is None or self._is_quiet else int(waits)

    @property
    def _is_quiet(self) -> bool:
        return self.silent_s > QUIET_S

    @property
    def silent_s(self) -> float:
        """Since when nothing was said; a time in the future is one that was said long ago."""
        age = (self.now_ns - int(self.found["time_ns"])) / NS_PER_S
        return age if age >= -SILENT_S else 2.0 * SILENT_S

    @property
    def trouble(self) -> str:
        """What is wrong, in a line; empty: nothing."""
        if not self.found:
            return "nothing ships: 'omq ship run', or start omq-ship.service"
        if self.silent_s >= SILENT_S:
            return ("what ships has said nothing since "
                    f"{iso_time(int(self.found['time_ns']))}{self._last()}")
        if self.found["error"]:
            away = self.found.get("away_s") or 0.0
            return (str(self.found["error"]) + (f"; it has been away for {duration(away)}"
                                                if away else "") + self._last())
        if not self.found["base_time_ns"]:
            return "no copy of the pool is there yet, so nothing can be restored from there"
        waits = self.waits_s
        if waits is None:
            return f"what is not there is {NOT_KNOWN}; start it with omrc"
        if waits > self.late_s:
            return f"something has waited for {duration(waits)} to be shipped{self._last()}"
        return ""

    def _last(self) -> str:
        lacks = self.waits_bytes
        told = f", {size(lacks)} of the journal are not there" if lacks else ""
        name = self.found.get("last_object")
        return told + (f"; the last object there is {name}" if name else "")


def load(paths: SpoolPaths, settings: Settings) -> ShipState:
    """As it is now."""
    now_ns, late_s = clock.wall_ns(), settings.ship_late_s
    try:
        found = _checked(json.loads(side_files.read(paths.ship, _BYTES_MAX) or b""))
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        found = {}
    return ShipState(found, late_s, now_ns)


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    """ValueError, TypeError, KeyError: it is none of ours."""
    for name in ("shipped_lsn", "base_lsn", "base_time_ns", "objects", "bytes", "time_ns"):
        found[name] = int(found[name])
    for name, kind in (("durable_lsn", int), ("waits_s", float)):
        found[name] = None if found[name] is None else kind(found[name])
    for name, other in (("waits_bytes", int), ("away_s", float)):  # an earlier omq says neither
        found[name] = None if found.get(name) is None else other(found[name])
    if not all(math.isfinite(found[name] or 0.0) for name in ("waits_s", "away_s")):
        raise ValueError(found)
    for name in ("url", "error", "needs_base"):
        found[name] = str(found[name])
    found["last_object"] = str(found.get("last_object", ""))
    iso_time(found["time_ns"])
    iso_time(found["base_time_ns"])
    return found


def watched(paths: SpoolPaths, conf_dir: Path) -> ShipState | None:
    """As `load`, for who watches; None: this instance is not to be shipped, or its configuration is
    wrong."""
    try:
        settings = load_settings(conf_dir)
    except OmqError:
        return None
    return load(paths, settings) if settings.ship_to else None
