"""Whether the journal and its archive know of a message's birth."""

from __future__ import annotations

from omq.base.arrays import Vector
from omq.base.paths import SpoolPaths
from omq.core.history.frames import History, put_with_id


def was_born(paths: SpoolPaths, key: int, after_lsn: int) -> bool | None:
    """Whether a message with this key was put after an LSN; None: the journal and its archive do
    not reach back so far, or are damaged there."""
    history = History(paths)
    reaches = False

    def choose(frames: Vector) -> Vector:
        nonlocal reaches
        reaches |= int(frames["lsn"][0]) <= after_lsn
        return put_with_id(frames, key) & (frames["lsn"] > after_lsn)

    if any(True for _ in history.read(choose)):
        return True
    return False if reaches and not history.findings else None
