"""Archived journal files: which there are in a directory, and how one is opened.

The only module of recovery that knows the form of an archived file. Today an archived file is the
retired journal file itself, unchanged; another form needs another `open_archived` and nothing else,
as long as it yields the same blocks.

Errors: FileNotFoundError, DiskError. Damage inside is a finding of the scan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from omq.format.findings import Finding
from omq.format.journal import FILE_HEADER, FileHeader, decode_file_header
from omq.storage.files import read_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import load_file
from omq.storage.journal_scan import FileScan


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One file of the journal, in journal/ or in an archive; `header` a Finding when damaged."""

    number: int  # by its name
    path: Path
    header: FileHeader | Finding

    def scan(self, uuid: bytes, after: int, known: int, limit: int | None) -> FileScan:
        """Its blocks in order; see storage.journal_scan."""
        return FileScan(load_file(self.path), self.number, uuid, name=self.path.name, after=after,
                        known=known, limit=limit)

    @property
    def follows(self) -> FileHeader | None:
        return self.header if isinstance(self.header, FileHeader) else None


def open_archived(directory: Path, number: int) -> ArchivedFile:
    """File `number` of a directory of archived or current journal files."""
    path = directory / file_name(number)
    return ArchivedFile(number, path, decode_file_header(read_file(path, FILE_HEADER.size)))


def list_archived(directories: list[Path], uuid: bytes = b"") -> list[ArchivedFile]:
    """All files of these directories by number; of equal numbers the first directory counts. A file
    of this instance under a wrong name counts as what its header says, if the right name is free.
    """
    found: dict[int, ArchivedFile] = {}
    renamed: list[ArchivedFile] = []
    for directory in directories:
        for number in numbers_in(directory):
            file = open_archived(directory, number)
            header = file.follows
            if header is not None and header.uuid == uuid and header.number != number:
                renamed.append(replace(file, number=header.number))
            else:
                found.setdefault(number, file)
    for file in renamed:
        found.setdefault(file.number, file)
    return [found[number] for number in sorted(found)]
