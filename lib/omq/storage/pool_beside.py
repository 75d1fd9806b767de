"""The pool files looked at while somebody may be writing them.

While a checkpoint is being written, the files and what they should be are of different moments. So
a look counts only when poolctrl and the double-write file say after it what they said before.

Nothing is written, nothing is locked. Errors: DiskError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from omq.base.paths import SpoolPaths
from omq.format.double_write import Standing
from omq.format.poolctrl import PoolControl
from omq.storage import poolctrl
from omq.storage.pool_overlay import OverlaidPool

TRIES: Final = 3
Seen = TypeVar("Seen")


def look_beside(paths: SpoolPaths, uuid: bytes,
                look: Callable[[PoolControl | None, OverlaidPool], Seen]) -> tuple[Seen, bool]:
    """What `look` returns, and whether a checkpoint moved meanwhile each time. It gets the newest
    checkpoint, and the pool with the images of a cut one over it."""
    for left in reversed(range(TRIES)):
        control, _ = poolctrl.load(paths)
        pool = OverlaidPool(paths, uuid)
        try:
            pool.lay_double_write()
            found = look(control, pool)
        finally:
            pool.close()
        moved = has_moved(paths, uuid, control, pool.stands)
        if not moved or not left:
            return found, moved
    raise AssertionError("the last try returns")


def has_moved(paths: SpoolPaths, uuid: bytes, control: PoolControl | None, stands: Standing
              ) -> bool:
    """Is the checkpoint, or the chunk of one, another by now?"""
    now, _ = poolctrl.load(paths)
    if (now.generation if now else 0) != (control.generation if control else 0):
        return True
    chunk = OverlaidPool(paths, uuid)
    chunk.lay_double_write()
    return chunk.stands != stands
