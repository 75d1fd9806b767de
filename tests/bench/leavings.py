"""What a run leaves in its spool: bytes by folder, and the checkpoints told in the event log."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omq.base import events

_BLOCK_BYTES = 512  # unit of st_blocks, whatever the file system
_NO_FIGURES = ("event", "pid", "lsn")


def spool_bytes(root: Path) -> dict[str, int]:
    """Allocated bytes of each folder of the spool."""
    return {folder.name: sum(_allocated(path) for path in folder.rglob("*"))
            for folder in sorted(root.iterdir()) if folder.is_dir()}


def checkpoints(event_log: Path) -> dict[str, Any]:
    """How many there were, and of each number that their events have the median and the highest."""
    taken = [record for record in _records(event_log)
             if record.get("event") == events.CHECKPOINT.number]
    figures: dict[str, list[float]] = {}
    for record in taken:
        for key, value in record.items():
            if isinstance(value, int | float) and key not in _NO_FIGURES:
                figures.setdefault(key, []).append(float(value))
    found: dict[str, Any] = {"count": len(taken)}
    for key, values in sorted(figures.items()):
        found[key] = {"median": statistics.median(values), "highest": max(values)}
    return found


def _allocated(path: Path) -> int:
    try:
        return os.lstat(path).st_blocks * _BLOCK_BYTES
    except FileNotFoundError:  # retired meanwhile
        return 0


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(errors="replace").splitlines():
        record = json.loads(line)
        assert isinstance(record, dict)
        yield record
