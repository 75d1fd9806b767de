"""How much of the disk new messages may never take, and who may take it: the one place for the
lines below which puts, the journal, the store and the pool stop.

    reserve          disk_reserve_bytes, but never less than RESERVE_FILES journal files. Puts are
                     refused when less would be left after the next journal file is made: at once
                     when pool.writer can gain nothing, else at three quarters of it
    three quarters   are left when the next journal file is prepared
    a quarter        is for the pool alone: no journal file is made of it, and no body is moved into
                     the store. A checkpoint may take it

Why: space comes back in this order: a checkpoint; bodies moved out of the oldest journal file; that
file. While both can be written, what is taken gives its space back. A journal file that took the
last bytes would end that for good: neither a checkpoint could be written nor a done. So there is
room for a checkpoint, and above it for the bodies of one journal file or for one more file, which
done, move and delete fill.

What the next checkpoint adds to the pool for the messages that are there (`debt_bytes`) counts as
taken already: many small messages are little journal and much pool.

`disk_reserve_bytes = 0` keeps nothing free: whoever says so keeps the disk free by other means.
Errors: SpoolFull of `keep`; DiskError.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from omq.base.errors import SpoolFull
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.base.sizes import shown
from omq.storage import durable

RESERVE_FILES: Final = 2
"""Journal files of the reserve at least."""
_BLOCK_BYTES: Final = 512  # of st_blocks, stat(2)
_LOOKS: Final = 8  # while messages use up the reserve
POOL_BYTES: Final = 4 << 20
"""Of an empty instance without its journal: poolctrl, logs, run/ and first records."""


def reserve_bytes(settings: Settings) -> int:
    """Bytes that must be free for a put, after the next journal file."""
    said = settings.disk_reserve_bytes
    return max(said, RESERVE_FILES * settings.journal_file_bytes) if said else 0


def late_bytes(settings: Settings) -> int:
    """What stays free when the next journal file is prepared, and below which puts wait for
    nothing any more; besides the debt of the pool."""
    return reserve_bytes(settings) * 3 // 4


def pool_bytes(settings: Settings) -> int:
    """What only checkpoints take, besides the debt of the pool."""
    return reserve_bytes(settings) // 4


def debt_max_bytes(settings: Settings, messages: int) -> int:
    """`debt_bytes` of a pool that has nothing on the disk."""
    from omq.format.double_write import COUNT_MAX  # clients know this module, and need no numpy
    from omq.format.pool import RECORD_BYTES

    if not reserve_bytes(settings):
        return 0
    return (messages + min(messages, COUNT_MAX)) * RECORD_BYTES


def debt_bytes(paths: SpoolPaths, settings: Settings, messages: int) -> int:
    """What the pool grows by when it holds `messages`, at most: a record for each, and a copy of
    those of one batch in the double-write file, less what is on the disk of both. One stat for each
    pool file."""
    most = debt_max_bytes(settings, messages)
    if not most:
        return 0
    found = (durable.status(paths.msgpool / name)
             for name in durable.list_directory(paths.msgpool) if name.endswith(("QP", ".dw")))
    there = sum(each.st_blocks * _BLOCK_BYTES for each in found if each is not None)
    return max(0, most - there)


def frames_between_looks(settings: Settings) -> int:
    """Frames in which the pool's debt grows by an eighth of the reserve at most; 0: no reserve."""
    from omq.format.pool import RECORD_BYTES

    return reserve_bytes(settings) // (_LOOKS * 2 * RECORD_BYTES)


def least_bytes(settings: Settings) -> int:
    """Of a file system on which a put is ever taken: the reserve, the journal file in use and the
    next one."""
    reserve = reserve_bytes(settings)
    return reserve + 2 * settings.journal_file_bytes + POOL_BYTES if reserve else 0


def keep(folder: Path, leave: int, wanted: int) -> None:
    """SpoolFull when `wanted` more bytes in `folder` would leave less than `leave`."""
    if leave and (free := durable.free_bytes(folder)) - wanted < leave:
        raise SpoolFull(path=folder, detail=f"{shown(free)} are free, and {shown(leave)} are to "
                                            "stay so (disk_reserve_bytes)")


@dataclasses.dataclass(frozen=True, slots=True)
class TooSmall:
    """A file system on which no put is ever taken."""

    key: str
    """The setting that asks for too much of it."""
    most: str
    """What `key` may be at most, as omq.conf says it."""
    text: str
    """What is the matter, and the remedy."""


def too_small(folder: Path, settings: Settings) -> TooSmall | None:
    """Why no put will ever be taken on this file system; None when one may."""
    size, least = durable.file_system(folder).size, least_bytes(settings)
    if size >= least:
        return None
    files = max(0, size - POOL_BYTES)
    if files >= (RESERVE_FILES + 2) * settings.journal_file_bytes:
        key, most = "disk_reserve_bytes", shown(files - 2 * settings.journal_file_bytes)
        remedy = f"set {key} to {most} or less"
    else:
        key, most = "journal_file_bytes", shown(files // (RESERVE_FILES + 2))
        remedy = f"set {key} to {most} or less, and disk_reserve_bytes to twice of it"
    return TooSmall(key, most, f"its file system has {shown(size)} in all, and messages are taken "
                               f"from {shown(least)} on: {remedy}, or make the file system larger")
