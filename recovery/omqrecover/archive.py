"""Archived journal files: which there are in a directory, and how one is opened.

The only module of recovery that knows the forms of an archived file: the retired journal file
itself (`.jnl`), and the archive that omq-archive makes of it (`.oma`, `.omb`), out of which the
journal file comes back byte for byte. Where both are there, the journal file counts.

Errors: FileNotFoundError, DiskError, SpoolFull. Damage inside is a finding of the scan; an archive
out of which the journal file does not come back reads as an empty file, so it shows as a gap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from omq.base.paths import SpoolPaths
from omq.format.archive import BODIES_MAGIC
from omq.format.findings import Finding, Kind
from omq.format.journal import FILE_HEADER, FileHeader, decode_file_header
from omq.storage import durable
from omq.storage.archive import BODIES_SUFFIX, FRAMES_SUFFIX, archive_name
from omq.storage.archive_file import ArchiveFile, open_archive, rebuild_without_bodies
from omq.storage.archive_file import rebuild as journal_bytes
from omq.storage.files import open_file, read_file, write_new_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import load_file
from omq.storage.journal_scan import FileScan
from omqtools.omqrecover.originals import copy_file


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One file of the journal, in journal/ or in an archive; `header` a Finding when damaged."""

    number: int  # by its name, or by its header if it was renamed
    path: Path
    header: FileHeader | Finding

    def scan(self, uuid: bytes, after: int, known: int, limit: int | None, *, bodies: bool = True
             ) -> FileScan:
        """Its blocks in order; see storage.journal_scan."""
        data = self.load(bodies=bodies)
        scan = FileScan(b"" if isinstance(data, Finding) else data, self.number, uuid,
                        name=self.path.name, after=after, known=known, limit=limit)
        if isinstance(data, Finding):
            scan.findings.append(data)
        return scan

    def load(self, *, bodies: bool = True) -> bytes | memoryview | Finding:
        """The bytes of the journal file. Without `bodies` payloads may be zeros, which is quicker
        where it is an archive."""
        if self.path.suffix != FRAMES_SUFFIX:
            return load_file(self.path)
        with_bodies = self.path.with_suffix(BODIES_SUFFIX)
        oma = open_file(self.path)
        try:
            found = open_archive(oma, self.path.name)
            if isinstance(found, Finding):
                return found
            if not bodies and durable.status(with_bodies) is not None:
                return rebuild_without_bodies(found)
            return _with_bodies(found, with_bodies)
        finally:
            oma.close()

    @property
    def follows(self) -> FileHeader | None:
        return self.header if isinstance(self.header, FileHeader) else None


def _with_bodies(oma: ArchiveFile, path: Path) -> memoryview | Finding:
    if durable.status(path) is None:
        return journal_bytes(oma, None)
    file = open_file(path)
    try:
        omb = open_archive(file, path.name, BODIES_MAGIC)
        return omb if isinstance(omb, Finding) else journal_bytes(oma, omb)
    finally:
        file.close()


def open_archived(directory: Path, number: int) -> ArchivedFile:
    """File `number` of a directory of archived or current journal files."""
    path = directory / file_name(number)
    if durable.status(path) is None:
        return _archive(directory / archive_name(number), number)
    return ArchivedFile(number, path, decode_file_header(read_file(path, FILE_HEADER.size)))


def _archive(path: Path, number: int) -> ArchivedFile:
    file = open_file(path)
    try:
        found = open_archive(file, path.name)
    finally:
        file.close()
    if isinstance(found, Finding):
        # Whatever is wrong, by its name it is ours: it is read, and its frames are missed.
        return ArchivedFile(number, path, replace(found, kind=Kind.CORRUPT))
    h = found.header
    first = h.first_lsn or h.follows_lsn + 1
    header = FileHeader(h.uuid, h.epoch, h.number, h.page, h.journal_bytes, first, h.follows_lsn,
                        h.follows_number, h.time_ns, 0)
    return ArchivedFile(number, path, header)


def all_numbers(directory: Path) -> list[int]:
    """Numbers of the files of the journal in a directory, in either form, ascending."""
    return sorted({*numbers_in(directory), *numbers_in(directory, FRAMES_SUFFIX)})


def names_of(number: int) -> tuple[str, ...]:
    """The names that a file of the journal may have, in either form."""
    return (file_name(number), archive_name(number), archive_name(number, BODIES_SUFFIX))


def list_archived(directories: list[Path], uuid: bytes = b"") -> list[ArchivedFile]:
    """All files of these directories by number; of equal numbers the first directory counts. A file
    of this instance under a wrong name counts as what its header says, if the right name is free.
    """
    found: dict[int, ArchivedFile] = {}
    renamed: list[ArchivedFile] = []
    for directory in directories:
        for number in all_numbers(directory):
            file = open_archived(directory, number)
            header = file.follows
            if header is not None and header.uuid == uuid and header.number != number:
                renamed.append(replace(file, number=header.number))
            else:
                found.setdefault(number, file)
    for file in renamed:
        found.setdefault(file.number, file)
    return [found[number] for number in sorted(found)]


def fetch(source: Path, number: int, target: Path) -> bool:
    """Make the journal file `target` of what a directory has of it; False when that is nothing, or
    it cannot be read."""
    if number not in all_numbers(source):
        return False
    file = open_archived(source, number)
    if file.path.suffix != FRAMES_SUFFIX:
        copy_file(file.path, target)
        return True
    data = file.load()
    if isinstance(data, Finding):
        return False
    write_new_file(target, [data]).close()
    return True


def readable(paths: SpoolPaths, number: int) -> bool:
    """Make sure that bodies in journal file `number` can be read where messages name them."""
    if number in numbers_in(paths.journal) or number in numbers_in(paths.archive):
        return True
    return fetch(paths.archive, number, paths.archive / file_name(number))
