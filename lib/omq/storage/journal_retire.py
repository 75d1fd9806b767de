"""Retire a journal file: out of journal/, into archive/ or away.

The caller has made sure that nothing needs the file in its place: every frame in it is in the pool
(it lies before the last checkpoint), and no live message has its body there, in the index nor in
the pool.

Invariants: 1. the file keeps its name and its bytes; 2. it is in journal/ or in archive/ at every
instant, and both directories are synced before `retire` returns; 3. names of journal files are
never reused: a new one is numbered above every file of both directories and the checkpoint's.

In the middle of a crash: the rename happened or it did not; the next round finds the file in one of
the two places and goes on.
Errors: DiskError (latched for a failed rename).
"""

from __future__ import annotations

from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.journal import file_name, numbers_in


def retirable(paths: SpoolPaths, before: int) -> list[int]:
    """Numbers of the files in journal/ below `before`, oldest first."""
    return [number for number in numbers_in(paths.journal) if number < before]


def retire(paths: SpoolPaths, number: int, *, keep: bool) -> bool:
    """Move file `number` to archive/ (`keep`), or remove it; False when it is gone already."""
    source = paths.journal / file_name(number)
    durable.step("journal.retire", source)
    if not keep:
        return durable.unlink(source)
    if durable.status(source) is None:
        return False
    durable.step("archive.before_rename", source)
    durable.rename(source, paths.archive / file_name(number))
    return True
