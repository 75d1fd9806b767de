"""A log that many processes append to: followed when it is renamed, renamed at its bound.

Invariants: 1. a log that was renamed, by logrotate or here, is left alone and a new one begun, by
each process with its next line; 2. with `bytes_max` the log and the one before it (`.1`) take no
more than twice that, and a line: who finds the log at its bound renames it, under a lock on the
file itself, so that of several processes one does; 3. it is a side file (base.side_files), never
synced.

In the middle of a crash: between the rename and the first line of the new file there is only `.1`;
no line is lost, for one that is written meanwhile goes to the renamed file.

Errors: OSError of `write`, and of what opens a log to read it; a log that cannot be opened or
renamed is passed to `refused`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from omq.base import side_files


class LogFile:
    """One process's way to a log. `bytes_max` 0: no bound. `files`: how many it has opened; who has
    a head for each writes it when this changes."""

    def __init__(self, path: Path, bytes_max: int, refused: Callable[[str], None]) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._refused = refused
        self._descriptor = -1
        self.files = 0
        self.cut = False  # what was written last ends in the middle of a line

    def reopen(self) -> None:
        """Open it again, after a fork into another service or a rotation."""
        self.close()
        try:
            self._descriptor = side_files.calls.open(
                str(self.path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            self.files += 1
        except OSError as error:
            self._refused(f"cannot be opened: {error.strerror}")

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            with suppress(OSError):  # it is closed all the same
                os.close(self._descriptor)
            self._descriptor = -1

    def ready(self) -> bool:
        """Have the file open that has the name, and not beyond its bound. Two system calls. One
        that cannot be looked at (a stale handle, a sick disk) is opened again."""
        if self._descriptor >= 0:
            try:
                mine = side_files.calls.fstat(self._descriptor)
            except OSError as error:
                self._refused(f"cannot be looked at: {error.strerror}")
                self.close()
            else:
                if not _is_at(self.path, mine):
                    self.close()
                elif 0 < self._bytes_max <= mine.st_size:
                    self._rotate()
        if self._descriptor < 0:
            self.reopen()
        return self._descriptor >= 0

    def write(self, data: bytes) -> int:
        """Append in one write; how much of it was written. Only when it is `ready`. Of a line that
        a full disk cuts the last byte becomes its end: what another process writes next is a line
        of its own. `cut`: that could not be done."""
        written = side_files.calls.write(self._descriptor, data)
        if written:
            self.cut = data[written - 1:written] != b"\n" and not self._end_line()
        return written

    def _end_line(self) -> bool:
        """Over the last byte that this process wrote, which needs no room. Not by its own
        descriptor, with which every write appends (pwrite(2), BUGS)."""
        try:
            at = os.lseek(self._descriptor, 0, os.SEEK_CUR) - 1
            own = side_files.calls.open(f"/proc/self/fd/{self._descriptor}", os.O_WRONLY)
            try:
                return side_files.calls.pwrite(own, b"\n", at) == 1
            finally:
                os.close(own)
        except OSError:
            return False

    def _rotate(self) -> None:
        """Rename the full log, unless another process was quicker; one that cannot be goes on."""
        try:
            # A description of its own: one that came by a fork shares its lock with the parent.
            own = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(own, fcntl.LOCK_EX)
                found = side_files.calls.fstat(own)
                if found.st_size >= self._bytes_max and _is_at(self.path, found):
                    side_files.calls.rename(str(self.path), str(before(self.path)))
            finally:
                os.close(own)
        except OSError as error:
            self._refused(f"cannot be renamed at its bound: {error.strerror}")
            return
        self.close()


def before(path: Path) -> Path:
    """The log before this one."""
    return path.with_name(f"{path.name}.1")


def opened(path: Path) -> list[IO[bytes]]:
    """The log before this one, if there is one, and this one, to be read in this order. One that
    is renamed meanwhile is not read twice. FileNotFoundError: there is neither."""
    files: list[IO[bytes]] = []
    missing: FileNotFoundError | None = None
    try:
        files.append(path.open("rb"))
    except FileNotFoundError as error:
        missing = error
    try:
        with suppress(FileNotFoundError):
            older = before(path).open("rb")
            if files and os.path.samestat(os.fstat(older.fileno()), os.fstat(files[0].fileno())):
                older.close()
            else:
                files.insert(0, older)
    except OSError:
        for each in files:
            each.close()
        raise
    if missing is not None and not files:
        raise missing
    return files


def _is_at(path: Path, file: os.stat_result) -> bool:
    """Whether this file has this name."""
    try:
        return os.path.samestat(side_files.calls.stat(str(path)), file)
    except OSError:
        return False
