"""`journal/synced`: how far the journal of a standby is on its own disk. Where there is one, the
spool is a standby's.

A mark is noted when all that it says is synced, and synced itself only where something rests on it
(`sync`): the blocks after it show by themselves how far they are whole (storage.mirror_chain), so
an acknowledgement needs no second sync.

Invariants: 1. a mark never says more than is synced; 2. of the two slots one holds a synced mark
at any instant: a mark that was not synced is written over by the next, in the same slot; 3. what
lies above it and is not whole was promised to nobody.

In the middle of a crash: the slot that is being written fails its CRC, or has any of the marks
since the last synced one. Each of them is true, and the start goes on from there.

Errors: DiskError (latched); SpoolFull from `open_synced` where it must be made; FileNotFoundError.
"""

from __future__ import annotations

from typing import Final

from omq.base.paths import SpoolPaths
from omq.format.findings import Finding
from omq.format.journal import NEWEST_AT
from omq.format.standby import Synced, decode_synced
from omq.storage import durable
from omq.storage.files import File, create_filled, open_file, read_salvaged

NAME: Final = "synced"


def open_synced(paths: SpoolPaths) -> File:
    """The file, made when it is not there. SpoolFull."""
    path = paths.journal / NAME
    try:
        return open_file(path, write=True)
    except FileNotFoundError:
        return create_filled(path, 2 * NEWEST_AT)


def note(file: File, synced: Synced, *, sync: bool = True) -> None:
    """Write it into the slot of its generation; `sync`: make it durable."""
    file.write([synced.encode()], synced.generation % 2 * NEWEST_AT)
    if sync:
        file.sync()


def load(paths: SpoolPaths, *, settle: bool = False) -> Synced | Finding:
    """What is noted, or why it cannot be told. FileNotFoundError: no standby's journal.

    `settle`: at a start, sync and drop the page cache first."""
    file = open_file(paths.journal / NAME, write=settle)
    try:
        if settle:
            file.settle()
        return decode_synced(read_salvaged(file, 2 * NEWEST_AT, 0, NEWEST_AT))
    finally:
        file.close()


def remove(paths: SpoolPaths) -> None:
    """The spool is no longer a standby's."""
    durable.unlink(paths.journal / NAME)
