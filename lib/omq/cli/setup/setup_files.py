"""The files of `omq setup`: stamped, so that an edited or foreign one is never overwritten unasked.

The first line of each file says who wrote it and the SHA-256 of the rest. A plan is made and judged
whole before anything is written. Each change notes how it is taken back, on the ExitStack of the
caller, who takes all of them back when any later step fails.

Errors: FileInTheWay; FileNotWritten when the system refuses.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import omq
from omq.base.errors import FileInTheWay, FileNotWritten
from omq.cli.operate.services_edit import replace_file
from omq.storage import durable
from omq.storage.files import read_file

_BYTES_MAX: Final = 1 << 20
_STAMP: Final = re.compile(rb"# Written by omq setup [^;\n]*; sha256 ([0-9a-f]{64})[^\n]*\n")


class Found(Enum):
    """What lies at the place of a file of ours."""

    NOTHING = "new"
    SAME = "unchanged"
    OURS = "rewritten"  # stamped and as it was written, by this or another version
    EDITED = "has been edited"
    FOREIGN = "was not written by omq setup"


@dataclass(frozen=True, slots=True)
class Planned:
    """One file: its bytes as they will be, those that are there, and what these are."""

    path: Path
    data: bytes
    before: bytes | None
    found: Found


def stamped(text: str) -> bytes:
    """The bytes of a file, with its first line."""
    body = text.encode("ascii")
    digest = hashlib.sha256(body).hexdigest()
    head = f"# Written by omq setup {omq.__version__}; sha256 {digest} of what follows.\n"
    return head.encode("ascii") + body


def judge(path: Path, data: bytes) -> Planned:
    """What is there now."""
    if path.is_symlink():  # a masked unit, or somebody's own place for it
        return Planned(path, data, b"", Found.FOREIGN)
    try:
        before: bytes | None = read_file(path, _BYTES_MAX)
    except FileNotFoundError:
        return Planned(path, data, None, Found.NOTHING)
    assert before is not None
    match = _STAMP.match(before)
    if before == data:
        found = Found.SAME
    elif match is None:
        found = Found.FOREIGN
    elif hashlib.sha256(before[match.end() :]).hexdigest().encode() != match[1]:
        found = Found.EDITED
    else:
        found = Found.OURS
    return Planned(path, data, before, found)


def refuse_strangers(plan: Iterable[Planned]) -> None:
    """FileInTheWay for the first file that is not ours to replace."""
    for each in plan:
        if each.found in (Found.EDITED, Found.FOREIGN):
            raise FileInTheWay(path=each.path, reason=each.found.value)


def write_all(plan: Iterable[Planned], undo: ExitStack) -> None:
    """Write what differs. FileNotWritten."""
    for each in plan:
        if each.found is Found.SAME:
            continue
        write(each.path, each.data)  # the whole or nothing
        if each.before is None:
            undo.callback(durable.unlink, each.path)
        else:
            undo.callback(write, each.path, each.before)


def link_all(links: Iterable[tuple[Path, Path]], undo: ExitStack) -> None:
    """Make symbolic links (place, goal); one that leads elsewhere is led here."""
    for link, goal in links:
        before = link.readlink() if link.is_symlink() else None
        if before == goal:
            continue
        undo.callback(_relink, link, before)
        _relink(link, goal)


def _relink(link: Path, goal: Path | None) -> None:
    durable.unlink(link)
    if goal is not None:
        os.symlink(goal, link)


def forget_new_folders(folders: Iterable[Path], undo: ExitStack) -> None:
    """Note that these are to go again: those that do not exist yet, and only while empty."""
    for folder in folders:
        if not folder.exists():
            undo.callback(_remove_empty, folder)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def write(path: Path, data: bytes) -> None:
    """The file with these bytes, whole or as it was; folders are made. FileNotWritten."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    except OSError as error:
        raise FileNotWritten(path=path, reason=error.strerror or str(error)) from error


def remove(plan: Iterable[Planned], *, force: bool) -> tuple[list[Path], list[Path]]:
    """Take away what is ours: the files removed, and those that stay because they were edited."""
    removed, kept = [], []
    for each in plan:
        if each.found is Found.NOTHING:
            continue
        if each.found in (Found.EDITED, Found.FOREIGN) and not force:
            kept.append(each.path)
            continue
        durable.unlink(each.path)
        removed.append(each.path)
    return removed, kept
