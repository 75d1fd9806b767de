"""Which archive files there are, whether they belong together, and how they are split into tasks.

A file appears by rename and never changes, so a listing of names is all that planning needs; heads
are read where the instance, gaps between the files, or splits matter. Any filesystem that
pyarrow.fs knows will do (`file:///`, `s3://`, `hdfs://`...); a plain path is a local one.

Errors: NoArchive, MixedArchives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow.fs as pafs

from omq.base.errors import MixedArchives, NoArchive
from omq.format.archive import BLOCK_BYTES, HEADER, ArchiveHeader, Section, decode_header
from omq.format.findings import Finding, Kind
from omq.storage.archive_file import ArchiveFile, open_archive
from omq.storage.spool import open_spool
from omqtools.omqspark.archive_holds import spool_of

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_NAME: Final = re.compile(r"([0-9]{10})\.oma")
HEADS_AT_ONCE: Final = 16
SPLIT_BYTES: Final = 64 * 1024 * 1024
"""Raw bytes of a task: each costs about 50 ms in its Python worker, so few large ones."""


class Reader:
    """A file of any filesystem, read by position."""

    def __init__(self, fs: Any, path: str) -> None:
        self._file = fs.open_input_file(path)

    def size(self) -> int:
        return int(self._file.size())

    def read(self, length: int, offset: int) -> bytes:
        return bytes(self._file.read_at(max(0, length), offset))

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class Listed:
    """One name of the directory. `path`: for the filesystem; `number` from its name; `modified_ns`:
    when it was written last, 0: the file system does not say."""

    number: int
    path: str
    size: int
    modified_ns: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """zstd frames `first` to `end` of one file. `whole`: report what is wrong with the file."""

    path: str
    number: int
    first: int
    end: int
    whole: bool


def filesystem(where: str) -> tuple[Any, str]:
    """(filesystem, path in it) of a URI or a path."""
    if _URI.match(where):  # also file:/path, as Hadoop writes it
        fs, path = pafs.FileSystem.from_uri(where)
        return fs, path
    return pafs.LocalFileSystem(), where


def is_store(where: str) -> bool:
    """Whether a place is in an object store: no directory that programs of a node just open."""
    return bool(_URI.match(where)) and not where.startswith("file:")


def listing(where: str) -> list[Listed]:
    """The archive files of a directory by number; foreign names are passed over. NoArchive."""
    fs, path = filesystem(where)
    selector = pafs.FileSelector(path, allow_not_found=True)
    found = []
    for info in fs.get_file_info(selector):
        match = _NAME.fullmatch(info.base_name)
        if match and info.type == pafs.FileType.File:
            found.append(Listed(int(match[1]), info.path, int(info.size), info.mtime_ns or 0))
    if not found:
        raise NoArchive(path=where)
    return sorted(found, key=lambda item: item.number)


def head(fs: Any, item: Listed) -> ArchiveHeader | Finding:
    """The head of a file, bounded and checked; UNREADABLE when the file system refuses."""
    try:
        reader = Reader(fs, item.path)
        try:
            found = decode_header(reader.read(HEADER.size, 0))
        finally:
            reader.close()
    except OSError as error:
        return Finding(Kind.UNREADABLE, f"cannot be read: {error}", item.path)
    if isinstance(found, Finding):
        return replace(found, file=item.path)
    if found.number != item.number:
        return Finding(Kind.FOREIGN, f"file {found.number} under another name", item.path)
    return found


def heads(where: str, items: Sequence[Listed], uuid: bytes = b""
          ) -> list[tuple[Listed, ArchiveHeader | Finding]]:
    """The heads of all files, several at a time: an object store answers late. One that is not of
    the instance `uuid`, or of the spool whose archive this is, is FOREIGN. Where neither is known
    nobody can say which of two instances is the stray: MixedArchives."""
    fs, _ = filesystem(where)
    expected = uuid or instance_of(where)
    with ThreadPoolExecutor(HEADS_AT_ONCE) as pool:
        answers = list(pool.map(lambda item: head(fs, item), items))
    first = b""
    out: list[tuple[Listed, ArchiveHeader | Finding]] = []
    for item, found in zip(items, answers, strict=True):
        if isinstance(found, ArchiveHeader):
            first = first or found.uuid
            if found.uuid != (expected or first):
                if not expected:
                    raise MixedArchives(file=item.path, uuid=found.uuid.hex(), expected=first.hex())
                found = Finding(Kind.FOREIGN, f"of another instance, {found.uuid.hex()}; this is "
                                f"{expected.hex()}: move it away", item.path)
        out.append((item, found))
    return out


def instance_of(where: str) -> bytes:
    """The uuid of the spool whose archive this is; empty: it is a copy, or none of a spool."""
    paths = spool_of(where)
    return open_spool(paths.root).uuid if paths else b""


def splits(found: Sequence[tuple[Listed, ArchiveHeader | Finding]], split_bytes: int
           ) -> list[list[Split]]:
    """Tasks: large files in pieces of about `split_bytes` raw bytes, small files put together."""
    tasks: list[list[Split]] = [[]]
    room = split_bytes
    for item, header in found:
        total = header.blocks[Section.FRAMES] if isinstance(header, ArchiveHeader) else 1
        frames = max(1, -(-total // 16))
        step = max(1, split_bytes // (16 * BLOCK_BYTES))
        for first in range(0, frames, step):
            end = min(frames, first + step)
            cost = (end - first) * 16 * BLOCK_BYTES
            if tasks[-1] and cost > room:
                tasks.append([])
                room = split_bytes
            tasks[-1].append(Split(item.path, item.number, first, end, first == 0))
            room -= cost
    return [task for task in tasks if task]


@contextmanager
def opened(fs: Any, split: Split) -> Iterator[ArchiveFile | Finding]:
    """The archive file of a split, open while it is looked at."""
    try:
        reader = Reader(fs, split.path)
    except OSError as error:
        yield Finding(Kind.UNREADABLE, f"cannot be read: {error}", split.path)
        return
    try:
        yield _archive(reader, split)
    finally:
        reader.close()


def _archive(reader: Reader, split: Split) -> ArchiveFile | Finding:
    try:
        found = open_archive(reader, split.path)
    except OSError as error:
        return Finding(Kind.UNREADABLE, f"cannot be read: {error}", split.path)
    if isinstance(found, ArchiveFile) and found.header.number != split.number:
        found = Finding(Kind.FOREIGN, f"file {found.header.number} under another name", split.path)
    return found


def bad_text(finding: Finding) -> str:
    """A finding as the column `bad` holds it."""
    return json.dumps({"path": finding.file, "offset": finding.offset, "length": finding.length,
                       "kind": finding.kind.value, "reason": finding.reason}, sort_keys=True)
