"""`journal/newest`: which journal file is the newest, so that its absence is seen at a start. Every
other one is missed by the file that follows it, or by the checkpoint.

Invariants: 1. a file is noted when it has its name and its header, both durable, and before any
block of it: what was acknowledged lies in no file above the one noted; 2. numbers only rise; 3. the
slot of the file before is not touched, so one slot is whole at any instant.

In the middle of a crash: the slot that is being written fails its CRC, and the other one, of an
older file, counts: nothing was acknowledged in the newer file yet.

Errors: DiskError (latched); SpoolFull from `open_newest` where it must be made.
"""

from __future__ import annotations

from typing import Final

from omq.base.paths import SpoolPaths
from omq.format.journal import NEWEST_AT, Newest, decode_newest
from omq.storage.files import File, create_filled, open_file, read_salvaged

NAME: Final = "newest"


def open_newest(paths: SpoolPaths) -> File:
    """The file, made when it is not there. SpoolFull."""
    path = paths.journal / NAME
    try:
        return open_file(path, write=True)
    except FileNotFoundError:
        return create_filled(path, 2 * NEWEST_AT)


def note(file: File, newest: Newest) -> None:
    """Make it durable."""
    file.write([newest.encode()], newest.number % 2 * NEWEST_AT)
    file.sync()


def load(paths: SpoolPaths, *, settle: bool = False) -> Newest | None:
    """What is noted; None where nothing is, or nothing valid. FileNotFoundError.

    `settle`: at a start, sync and drop the page cache first."""
    file = open_file(paths.journal / NAME, write=settle)
    try:
        if settle:
            file.settle()
        return decode_newest(read_salvaged(file, 2 * NEWEST_AT, 0, NEWEST_AT))
    finally:
        file.close()
