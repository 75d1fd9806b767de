"""Side files: what a process writes for people and tools next to the data, and may go without.

    run/SERVICE.json  run/supervisor.json  run/*.pid  run/ids.json  run/ipc.list  run/smtp.port
    run/unix.peers.json  logs/events.log  logs/mail.log  logs/unix.sends.jsonl
    logs/qmgr.tomb
    the text in a lock file  standard error

A disk that is full, broken or read-only refuses these writes; the work goes on. A refused write is
kept and done again later, the newest one of a file; when the first is refused that is one event,
when the last is made up for another (OM 1123, OM 1124). One that is there and cannot be looked at
or read (ESTALE, EIO) is like one that is not there; that too is an event, one a file (OM 1128).

Invariants: 1. nothing here raises OSError; 2. every such call of omq goes through `Calls`, one
method a system call (the text of a lock through the disk of its file), so that a test makes each
of them fail; tests/tidy finds one that does not;
3. a reader of a replaced file sees the old or the new one, never half; 4. nothing is synced: after
a reboot these files mean nothing; 5. `retry` costs one comparison while all is well.

The event log and standard error keep nothing: a line that was refused is counted (base.event_log).
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from omq.base import events, modes
from omq.base.events import Event

RETRY_S: Final = 2.0
"""A few small writes; soon enough for whoever has just made room and looks."""
_STDERR: Final = 2

Write = Callable[[], None]
Seen = TypeVar("Seen")
Tell = Callable[[Event, dict[str, str | float]], None]
"""Takes an event and its fields; base.event_log has one."""


class Calls:
    """The system calls; a test puts others in place (`use`)."""

    def open(self, path: str, flags: int, mode: int = modes.FILE) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def fchmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def stat(self, path: str) -> os.stat_result:
        return os.stat(path)

    def read(self, path: str, bytes_max: int) -> bytes:
        with open(path, "rb") as file:
            return file.read(bytes_max)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)


class _Owed:
    """What this process still has to write."""

    def __init__(self) -> None:
        self.writes: dict[Path, Write] = {}
        self.appends: dict[Path, bytes] = {}
        self.refused = 0
        self.since = 0.0
        self.due = 0.0
        self.told = False
        self.unseen: dict[tuple[str, Path], str] = {}  # what cannot be looked at, and why
        self.first: dict[str, str | float] = {}
        self.tell: Tell | None = None
        self.pid = os.getpid()


calls: Calls = Calls()
_owed = _Owed()


def use(other: Calls) -> Calls:
    """Put other system calls in place (tests), and owe nothing; returns those before."""
    global calls, _owed
    before, calls, _owed = calls, other, _Owed()
    return before


def report_to(tell: Tell) -> None:
    """Who hears when the first write is refused and when the last one is made up for; what has
    been refused before is reported at once."""
    _mine().tell = tell
    _say_begun()
    for (_, path), reason in _owed.unseen.items():
        tell(events.SIDE_FILE_UNREADABLE, {"file": str(path), "reason": reason})


def replace(path: Path, data: bytes, mode: int = modes.FILE) -> bool:
    """Let the file hold `data`, by rename; False: later."""
    _mine().appends.pop(path, None)
    return attempt(path, lambda: _replace(path, data, mode))


def append(path: Path, data: bytes) -> bool:
    """Add `data` to the file; False: later, behind what is owed to it already."""
    appends = _mine().appends
    whole = appends.get(path, b"") + data

    def write() -> None:
        _append(path, whole)
        appends.pop(path, None)

    if attempt(path, write):
        return True
    appends[path] = whole if whole.startswith(b"\n") else b"\n" + whole  # after a torn line
    return False


def remove(path: Path) -> bool:
    """Let there be no such file; False: later."""
    _mine().appends.pop(path, None)
    return attempt(path, lambda: _remove(path))


def seen(path: Path) -> os.stat_result | None:
    """What there is; None: there is no such file, or it cannot be looked at."""
    return _look("stat", path, lambda: calls.stat(str(path)))


def read(path: Path, bytes_max: int = -1) -> bytes | None:
    """What is in it; None: there is no such file, or it cannot be read."""
    return _look("read", path, lambda: calls.read(str(path), bytes_max))


def _look(kind: str, path: Path, look: Callable[[], Seen]) -> Seen | None:
    try:
        found = look()
    except FileNotFoundError:
        found = None
    except OSError as error:
        unseen(path, error, kind)
        return None
    _mine().unseen.pop((kind, path), None)
    return found


def attempt(path: Path, write: Write) -> bool:
    """Do `write`, all of what `path` needs; when it is refused (False), again at each `retry`
    until it succeeds or another write of the same file takes its place."""
    owed = _mine()
    try:
        write()
    except OSError as error:
        owed.writes[path] = write
        owed.refused += 1
        if not owed.since:
            owed.since = time.monotonic()
            owed.due = owed.since + RETRY_S
            owed.first = {"file": str(path), "reason": error.strerror or str(error)}
        _say_begun()
        return False
    if owed.writes.pop(path, None) is not None:
        _say_over()
    return True


def forget(path: Path) -> None:
    """What the file is owed is not wanted any more: who wrote it has let it go."""
    owed = _mine()
    owed.appends.pop(path, None)
    if owed.writes.pop(path, None) is not None:
        _say_over()


def retry() -> None:
    """Main loops call it in every turn: what is owed is written again, every RETRY_S."""
    if not _owed.writes or time.monotonic() < _owed.due:
        return
    owed = _mine()
    owed.due = time.monotonic() + RETRY_S
    for path, write in list(owed.writes.items()):
        if not attempt(path, write):
            return  # the others would meet the same disk


def wait_s() -> float | None:
    """Seconds until `retry` has something to do; None: nothing is owed."""
    return max(0.0, _owed.due - time.monotonic()) if _owed.writes else None


def say(line: str, end: str = "\n") -> bool:
    """A line on standard error; False when it does not take it."""
    try:
        sys.stderr.write(line + end)
        sys.stderr.flush()
    except (OSError, ValueError):  # full, closed, or its reader is gone: nowhere to say it
        _keep_nothing()
        return False
    return True


def _keep_nothing() -> None:
    """A buffer that cannot be flushed would be tried again at the end, and change the exit code."""
    if isinstance(sys.stderr, io.TextIOWrapper) and sys.stderr is sys.__stderr__:
        with suppress(OSError, ValueError):
            sys.stderr = io.TextIOWrapper(
                io.FileIO(_STDERR, "w", closefd=False),
                errors="backslashreplace", write_through=True)


def write_all(fd: int, data: bytes) -> None:
    """All of it, or OSError."""
    while data:
        data = data[calls.write(fd, data):]


def _replace(path: Path, data: bytes, mode: int) -> None:
    # One writer per file, so the pid makes the temporary name unique also after a crash.
    temporary = str(path.with_name(f".{path.name}.{os.getpid()}"))
    try:
        fd = calls.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            if mode != modes.FILE:  # past the umask
                calls.fchmod(fd, mode)
            write_all(fd, data)
        finally:
            os.close(fd)
        calls.rename(temporary, str(path))
    except OSError:
        with suppress(OSError):
            calls.unlink(temporary)
        raise


def _append(path: Path, data: bytes) -> None:
    fd = calls.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        calls.unlink(str(path))


def _mine() -> _Owed:
    """What this process owes: a forked child owes nothing of its parent's."""
    global _owed
    if _owed.pid != os.getpid():
        tell, _owed = _owed.tell, _Owed()
        _owed.tell = tell
    return _owed


def _say_begun() -> None:
    if _owed.writes and not _owed.told and _owed.tell is not None:
        _owed.told = True
        _owed.tell(events.SIDE_FILES_REFUSED, dict(_owed.first))


def unseen(path: Path, error: OSError, kind: str = "") -> None:
    """It cannot be looked at: told once, until it can be again, when somebody listens."""
    owed = _mine()
    if (kind, path) not in owed.unseen:
        reason = owed.unseen[kind, path] = error.strerror or str(error)
        if owed.tell is not None:
            owed.tell(events.SIDE_FILE_UNREADABLE, {"file": str(path), "reason": reason})


def _say_over() -> None:
    if _owed.writes:
        return
    seconds = round(time.monotonic() - _owed.since, 1)
    told, refused = _owed.told, _owed.refused
    _owed.told, _owed.refused, _owed.since = False, 0, 0.0
    if told and _owed.tell is not None:
        _owed.tell(events.SIDE_FILES_WRITTEN, {"refused": refused, "seconds": seconds})
