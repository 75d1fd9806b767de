"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from omq.base import checksum, form


def describe(folder: Path) -> dict[str, Any]:
    """Machine, system and software; `folder` is where the spool lies."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "processor": _processor(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "crc32c": checksum.implementation(),
        "fast_path": form.told(),
        "file_system": _file_system(folder),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """Type, device and options of the mount that holds the folder."""
    path = str(folder.resolve())
    best, found = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mount, kind, options, *_ = line.split()
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, found = mount, f"{kind} on {device} ({options})"
    return found
