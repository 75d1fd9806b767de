"""A journal file back out of its archive, for tools; also when its bodies were dropped.

Without the bodies the payloads are zeros: names, texts, groups and queues then come from the rows
that the archiver took out of them (`texts`: LSN -> payload), so a history can be told all the same.

Errors: none; what cannot be read is a Finding, None when there is no archive file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from omq.base.errors import DiskError
from omq.base.names import id_bytes
from omq.base.paths import SpoolPaths
from omq.format.archive import BODIES_MAGIC, NameKind, Section
from omq.format.findings import Finding
from omq.format.message import Descriptor, Part, pack_parts
from omq.storage.archive import BODIES_SUFFIX, FRAMES_SUFFIX, archive_name
from omq.storage.archive_file import ArchiveFile, open_archive, rebuild, rebuild_without_bodies
from omq.storage.archive_names import texts
from omq.storage.files import File, open_file

_NAMED = (NameKind.QUEUE, NameKind.READER, NameKind.TEXT)


@dataclass(slots=True)
class ArchivedFile:
    """The bytes of a journal file, and payloads by LSN where its own are gone."""

    data: bytes
    payloads: dict[int, bytes] = field(default_factory=dict)


def archived_numbers(paths: SpoolPaths) -> list[int]:
    """Numbers of the archive files there are."""
    found = [path.stem for path in paths.archive.glob(f"*{FRAMES_SUFFIX}")]
    return sorted(int(stem) for stem in found if len(stem) == 10 and stem.isdigit())


def read_archived(paths: SpoolPaths, number: int) -> ArchivedFile | Finding | None:
    """See the module."""
    name = archive_name(number)
    try:
        frames = open_file(paths.archive / name)
    except (FileNotFoundError, DiskError):
        return None
    bodies = _open(paths, number)
    try:
        oma = open_archive(frames, name)
        if isinstance(oma, Finding):
            return oma
        omb = None
        if bodies is not None:
            opened = open_archive(bodies, archive_name(number, BODIES_SUFFIX), BODIES_MAGIC)
            omb = None if isinstance(opened, Finding) else opened
        whole = rebuild(oma, omb)
        if not isinstance(whole, Finding):
            return ArchivedFile(whole)
        oma.findings.clear()
        data = rebuild_without_bodies(oma)
        return data if isinstance(data, Finding) else ArchivedFile(data, _payloads(oma))
    finally:
        frames.close()
        if bodies is not None:
            bodies.close()


def _open(paths: SpoolPaths, number: int) -> File | None:
    try:
        return open_file(paths.archive / archive_name(number, BODIES_SUFFIX))
    except (FileNotFoundError, DiskError):
        return None


def _payloads(oma: ArchiveFile) -> dict[int, bytes]:
    names = oma.rows(Section.NAMES)
    found = {lsn: text.encode() for kind in _NAMED
             for (lsn, _), text in texts(names, kind).items()}
    parts: dict[int, list[Part]] = {}
    for row in oma.rows(Section.PARTS):
        parts.setdefault(int(row["lsn"]), []).append(
            Part(int(row["queue"]), int(row["priority"]), 0, int(row["until"])))
    groups = {lsn: (id_bytes(text) or b"", number)
              for (lsn, number), text in texts(names, NameKind.GROUP).items()}
    for lsn in parts.keys() | groups.keys():
        group, number = groups.get(lsn, (b"", 0))
        head = Descriptor(group_id=group, group_sequence=number)
        found[lsn] = head.encode() + pack_parts(parts.get(lsn, []))
    return found

