"""Closes what an older omq, or somebody's umask, left open to others: modes as in omq.base.modes.

A directory that is closed protects all that is in it, so only directories that are open are walked:
a start costs one lstat for each directory of the spool. Files are closed first and their directory
last: a start that was killed in between begins again.

Invariants: 1. rights are only taken away, but for run/ and instance.json; 2. only regular files
and directories of this user are touched, through a descriptor that follows no link; 3. conf/ and
what omq does not know are left alone; 4. nothing here is data: an error never latches and never
stops a start; what could not be changed is counted as foreign.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from omq.base import modes
from omq.base.paths import SpoolPaths

_FOREIGN_MAX: Final = 1000  # named at most
_MORE: Final = ("mail", "dumps")  # besides SpoolPaths.directories


@dataclass(slots=True)
class Restricted:
    """What was done; `foreign` has the first paths that are not this user's to change."""

    files: int = 0
    directories: int = 0
    foreign: list[Path] = field(default_factory=list)

    def command(self, paths: SpoolPaths) -> str:
        """What root runs to give the foreign ones to the daemons' user."""
        return f"chown -R --no-dereference {os.geteuid()} {paths.root}"


def restrict(paths: SpoolPaths) -> Restricted:
    """See the module."""
    done = Restricted()
    passed = (paths.run, paths.root)
    known = (*paths.directories(), paths.rebuilding, *(paths.root / name for name in _MORE))
    for directory in known:
        if directory not in passed:
            _directory(directory, done)
    for directory in passed:
        for entry in _entries(directory):
            if entry.is_file(follow_symlinks=False):
                relative = Path(entry.path).relative_to(paths.root).as_posix()
                wanted = modes.wanted(relative, directory=False)
                add = wanted if wanted == modes.PUBLIC else 0
                _close(Path(entry.path), wanted, done, add)
    _close(paths.root, modes.PASSAGE, done)
    _close(paths.run, modes.PASSAGE, done, add=modes.PASSAGE)
    return done


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


def _directory(path: Path, done: Restricted) -> None:
    """What is in an open directory, then the directory itself."""
    found = _look(path)
    if found is None or not stat.S_ISDIR(found.st_mode):
        return
    if _excess(found, modes.DIRECTORY) and found.st_uid == os.geteuid():
        for entry in _entries(path):
            if entry.is_dir(follow_symlinks=False):
                _directory(Path(entry.path), done)
            elif entry.is_file(follow_symlinks=False):
                _close(Path(entry.path), modes.FILE, done)
    _close(path, modes.DIRECTORY, done)


def _look(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _excess(found: os.stat_result, wanted: int) -> int:
    return stat.S_IMODE(found.st_mode) & ~(wanted | modes.SPECIAL_BITS)


def _close(path: Path, wanted: int, done: Restricted, add: int = 0) -> None:
    """Take away what goes beyond `wanted`."""
    found = _look(path)
    if found is None:
        return
    mode = stat.S_IMODE(found.st_mode)
    target = mode & (wanted | modes.SPECIAL_BITS) | add
    if found.st_uid != os.geteuid() or (target != mode and not _change(path, found, target)):
        if len(done.foreign) < _FOREIGN_MAX:
            done.foreign.append(path)
    elif mode & ~target and stat.S_ISDIR(found.st_mode):
        done.directories += 1
    elif mode & ~target:
        done.files += 1


def _change(path: Path, found: os.stat_result, mode: int) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.path.samestat(found, os.fstat(fd)):
            os.fchmod(fd, mode)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
