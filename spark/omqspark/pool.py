"""What is next to the archive: the pool of its instance, and the journal after the archive's end.

The pool of an instance is ahead of its archive, for a journal file retires after the checkpoint. A
message that is open in the archive and not in the pool has ended since, or is lost: the journal
files that are not archived yet tell. The pool is read first: an end that it already shows is in
the journal. Both are of this host; what they say goes on piece by piece to whoever asked (audit.py
has it in files of OUT), so no process holds as much as there is in a pool.

Invariant: nothing is written to the spool.
Errors: MixedArchives for another instance's pool, NoArchive where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from omq.base.arrays import Vector
from omq.base.errors import MixedArchives, NoArchive
from omq.base.paths import SpoolPaths
from omq.format.journal import FileHeader as JournalHeader
from omq.format.journal import FrameFlag, decode_file_header
from omq.format.pool import FILE_HEADER as POOL_HEADER
from omq.storage import poolctrl
from omq.storage.files import open_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import load_file
from omq.storage.journal_scan import FileScan
from omq.storage.pool import PoolFiles

Keep = Callable[[Vector], None]
"""Takes some QPoolIds, eight bytes each, in no order."""


@dataclass(slots=True)
class Beside:
    """`checkpoint`: the LSN up to which the pool knows everything (None: it does not say),
    `unknown`: why it cannot be said who is lost."""

    checkpoint: int | None = None
    unknown: str = ""


def pool_messages(spool: Path, uuid: bytes, keep: Keep) -> None:
    """`keep` is given the QPoolIds of the messages in a pool."""
    paths = SpoolPaths(spool)
    pool = PoolFiles(paths, uuid, write=False)
    if not paths.msgpool.is_dir():
        raise NoArchive(path=paths.msgpool)
    try:
        for number in pool.files():
            file = open_file(paths.msgpool / f"{number}QP")
            try:
                head = POOL_HEADER.as_dict(file.read(POOL_HEADER.size, 0).ljust(64, b"\0"))
            finally:
                file.close()
            if head["uuid"] != uuid:
                raise MixedArchives(file=file.path, uuid=head["uuid"].hex(), expected=uuid.hex())
            for chunk in pool.scan(number):
                keep(chunk.records["qpool"][chunk.live].astype("<i8"))
    finally:
        pool.close()


def beside(spool: Path, uuid: bytes, last_file: int, last_lsn: int, keep: Keep) -> Beside:
    """Pool and journal of a spool, behind archive file `last_file`, which ends with `last_lsn`.
    `keep` is given who is in the pool, and who ended after the archive."""
    paths = SpoolPaths(spool)
    control, _ = poolctrl.load(paths)  # before the pool, which may grow meanwhile
    pool_messages(spool, uuid, keep)
    found = Beside(checkpoint=control.lsn if control else None)
    if control is None and (paths.msgpool / poolctrl.NAME).exists():
        found.checkpoint = 0  # there was none yet: what is in the journal need not be in the pool
    if control is None or control.lsn <= last_lsn:
        return found  # it knows nothing that the archive does not
    reached = _behind(paths, uuid, last_file, last_lsn, keep)
    if reached < control.lsn:
        found.unknown = (f"the pool is of LSN {control.lsn}, the archive ends at {last_lsn}, and "
                         f"the journal between them is read up to {reached} only; run --incremental"
                         " and audit again")
    return found


def _behind(paths: SpoolPaths, uuid: bytes, last_file: int, last_lsn: int, keep: Keep) -> int:
    """Gives `keep` who ended in the journal files behind an archive file; the LSN up to which
    they are there without a gap."""
    folders = {number: folder for folder in (paths.archive, paths.journal) if folder.is_dir()
               for number in numbers_in(folder) if number > last_file}
    reached, numbers = last_lsn, sorted(folders)
    loaded = {}
    for number in numbers:
        try:
            loaded[number] = load_file(folders[number] / file_name(number))
        except FileNotFoundError:  # it retires, or is being archived
            break
    for number, following in zip(numbers, [*numbers[1:], 0], strict=True):
        if number not in loaded:
            break
        after = decode_file_header(loaded[following]) if following in loaded else None
        limit = after.follows_lsn if isinstance(after, JournalHeader) else None
        scan = FileScan(loaded[number], number, uuid, limit=limit)
        if scan.header is None or scan.header.follows_lsn > reached:
            break
        reached = max(reached, scan.header.first_lsn - 1)
        for block in scan:
            if block.header.first_lsn > reached + 1:
                return reached
            ends = block.frames["flags"] & FrameFlag.LAST_PART != 0
            keep(block.frames["qpool"][ends].astype("<i8"))
            reached = max(reached, block.header.last_lsn)
    return reached
