"""A start of a standby's journal: what is synced stays, and nothing else.

Several blocks are written before one sync. A power cut may leave the last of them and not the one
before; a start that took it would see a hole with a valid block after it, call it damage, and ask
the primary from after it: the hole would never be sent again. So the mark moves to the end of what
follows it without a gap and is whole (storage.mirror_chain: all that was acknowledged is), and what
is above goes, however whole it looks.

    files above the mark's      removed
    blocks right after it       stay as far as they are certain; the mark then says so, synced
    bytes above it in its file  zeros
    `newest`                    names the mark's file

In the middle of a crash: each step finds its own half done and does the rest; the mark never goes
down here, and what goes was promised to nobody.

Errors: StandbyDiverged; NewerFormat; DiskError (latched); SpoolFull.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from omq.base.errors import NewerFormat, StandbyDiverged
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding, Kind
from omq.format.journal import NEWEST_AT, FileHeader, Newest
from omq.format.standby import VERSION, Synced
from omq.storage import durable, journal_newest, journal_synced
from omq.storage.files import File, open_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import load_file, read_entry
from omq.storage.journal_scan import FileScan
from omq.storage.mirror_chain import extended

_STEP: Final = 1 << 20
_ZEROS: Final = bytes(_STEP)


def settle(paths: SpoolPaths, uuid: bytes) -> Synced:
    """The mark, and nothing above it: see the module. StandbyDiverged: there is no valid mark, or
    its file is not there. For a start, and before a promotion."""
    path = paths.journal / journal_synced.NAME
    try:
        mark = journal_synced.load(paths, settle=True)
    except FileNotFoundError:
        mark = Finding(Kind.END, "it is not there: this is not a standby's journal")
    if isinstance(mark, Finding) and mark.kind is Kind.NEWER:
        raise NewerFormat(file=path, version=mark.reason.split()[2].rstrip(","), known=VERSION)
    if isinstance(mark, Finding):
        raise StandbyDiverged(path=path, reason=mark.reason)
    if mark.uuid != uuid:
        raise StandbyDiverged(path=path, reason=f"it is of the instance {mark.uuid.hex()}")
    header = mark_header(paths, uuid, mark)
    above = [number for number in numbers_in(paths.journal) if number > mark.number]
    for number in above:
        durable.unlink(paths.journal / file_name(number), sync=False)
    durable.sync_directory(paths.journal)  # names, too, that a killed process left unsynced
    file = open_file(paths.journal / file_name(mark.number), write=True)
    try:
        file.settle()
        made = _moved_up(paths, uuid, mark)
        _clear_above(file, made.offset)
    finally:
        file.close()
    _name_newest(paths, header)
    return made


def _moved_up(paths: SpoolPaths, uuid: bytes, mark: Synced) -> Synced:
    """The mark behind what follows it and is whole; noted, if that is anything."""
    path = paths.journal / file_name(mark.number)
    made = extended(mark, FileScan(load_file(path), mark.number, uuid, name=path.name,
                                   start=mark.offset, after=mark.lsn))
    if made == mark:
        return mark
    file = journal_synced.open_synced(paths)
    try:
        made = replace(made, generation=mark.generation + 1)
        journal_synced.note(file, made)
    finally:
        file.close()
    return made


def mark_header(paths: SpoolPaths, uuid: bytes, mark: Synced) -> FileHeader:
    """The header of the mark's file. StandbyDiverged."""
    name = file_name(mark.number)
    try:
        header = read_entry(paths, mark.number, uuid).header
    except FileNotFoundError:
        header = None
    if header is None or (header.term, header.epoch) != (mark.term, mark.epoch):
        raise StandbyDiverged(path=paths.journal / name, reason=f"its journal is synced up to LSN "
                              f"{mark.lsn} in this file, which is missing, damaged or another one")
    return header


def _clear_above(file: File, offset: int) -> None:
    """Zeros from there to the end; what is zeros already is not written."""
    size, changed = file.size(), False
    for at in range(offset, size, _STEP):
        data = file.read(min(_STEP, size - at), at)
        if data != _ZEROS[: len(data)]:
            file.write([_ZEROS[: len(data)]], at)
            changed = True
    if changed:
        file.sync()


def _name_newest(paths: SpoolPaths, header: FileHeader) -> None:
    """`newest` names this file, and none above it."""
    file = journal_newest.open_newest(paths)
    try:
        wanted = Newest(header.uuid, header.number, header.epoch, header.first_lsn, header.term)
        if journal_newest.load(paths, settle=True) != wanted:
            journal_newest.note(file, wanted)
            if journal_newest.load(paths) != wanted:  # a higher number in the other slot
                file.write([_ZEROS[:NEWEST_AT]], (header.number + 1) % 2 * NEWEST_AT)
                file.sync()
    finally:
        file.close()


def adopt(paths: SpoolPaths, uuid: bytes, mark: Synced) -> None:
    """From now on this is a standby's journal, whole up to `mark`, and nothing above it counts: of
    a base that was verified, a former primary that rejoins, a promotion."""
    file = journal_synced.open_synced(paths)
    try:
        before = journal_synced.load(paths)
        generation = before.generation + 1 if isinstance(before, Synced) else mark.generation
        journal_synced.note(file, replace(mark, uuid=uuid, generation=generation, exact=True))
    finally:
        file.close()
