"""How much a mailbox holds, so that it takes no more than its quota, whoever delivers.

What is counted: the files of new/ and cur/, and those of the folders next to them (".Archive"), by
their length. Counting looks at every file, so what was counted is remembered for as long as no
folder of the mailbox has changed; before a mail is refused it is counted anew.

Invariants: 1. from counting to the new file's rename the mailbox is locked against other deliveries
of ours (`locked`), so that two of them do not both have the last room; locks are taken in one
order, of one file of ours: an owner can hold none of them; 2. a mailbox of more than `FILES_MAX`
files counts as full: who makes a million of them costs us no more than that; 3. a link is counted
as a link, and no folder that is one is looked into.

`told_full` and `is_full`: local.delivery tells smtp.server of a mailbox without room by a file in
run/, which counts for `local_retry_s`; so mail is refused while its client is there.

Errors: OSError of the mailbox's file system.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from omq.base import clock, side_files
from omq.storage import durable

FILES_MAX: Final = 200_000
"""Files of a mailbox that are looked at; about a second's work."""
_LOCKS: Final = 1 << 31
_LOCK_FILE: Final = "mailboxes.lock"
_FULL: Final = "mailbox-full."

_Seen = tuple[tuple[str, int], ...]


class Quotas:
    """Of one delivering process; close it."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._file = -1
        self._counted: dict[str, tuple[_Seen, int]] = {}
        self._promised: dict[str, int] = {}  # reserved, and not delivered yet

    def close(self) -> None:
        """Forget, and let go of the locks' file."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    @contextmanager
    def locked(self, mailboxes: Iterable[str]) -> Iterator[None]:
        """No other process of ours delivers to these meanwhile."""
        places = sorted({_place(each) for each in mailboxes})
        if places and self._file < 0:
            self._file = side_files.calls.open(str(self._run / _LOCK_FILE),
                                               os.O_RDWR | os.O_CREAT)
        taken: list[int] = []
        try:
            for place in places:
                fcntl.lockf(self._file, fcntl.LOCK_EX, 1, place)
                taken.append(place)
            yield
        finally:
            for place in taken:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)

    def reserve(self, mailbox: Path, size: int, quota: int) -> bool:
        """Whether `size` more bytes fit, which are counted then. While it is locked, acting as its
        owner; `delivered` follows."""
        key = str(mailbox)
        seen = _seen(mailbox)
        known = self._counted.get(key)
        if known is None or known[0] != seen or known[1] + size > quota:
            promised = self._promised.get(key, 0)
            known = seen, _used(seen, quota) + promised
        fits = known[1] + size <= quota
        if fits:
            self._promised[key] = self._promised.get(key, 0) + size
            known = seen, known[1] + size
        self._counted[key] = known
        return fits

    def delivered(self, mailbox: Path, *, whole: bool) -> None:
        """What was reserved is in it, or, where not all of it is, is counted anew next time."""
        key = str(mailbox)
        self._promised.pop(key, None)
        known = self._counted.pop(key, None)
        if whole and known is not None:
            self._counted[key] = _seen(mailbox), known[1]


def _place(mailbox: str) -> int:
    digest = hashlib.blake2b(mailbox.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % _LOCKS


def _seen(mailbox: Path) -> _Seen:
    """The folders that are counted, with the time of their last change."""
    found: list[tuple[str, int]] = []
    disk = durable.current()
    top = str(mailbox)
    folders = [top, *(f"{top}/{each}" for each in disk.listdir(top) if each[0] == ".")]
    for folder in folders:
        for part in ("new", "cur"):
            try:
                state = disk.lstat(f"{folder}/{part}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            if stat.S_ISDIR(state.st_mode) and not stat.S_ISLNK(disk.lstat(folder).st_mode):
                found.append((f"{folder}/{part}", state.st_mtime_ns))
    return tuple(found)


def _used(seen: _Seen, quota: int) -> int:
    used = files = 0
    for folder, _ in seen:
        with os.scandir(folder) as entries:
            for entry in entries:
                files += 1
                if files > FILES_MAX:
                    return quota
                try:
                    used += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue  # its owner has just moved it
    return used


def told_full(run: Path, mailbox: str, *, full: bool) -> None:
    """Tell smtp.server that there is no room, or that there is again."""
    path = run / f"{_FULL}{mailbox}"
    if full:
        side_files.replace(path, b"")
    else:
        side_files.remove(path)


def is_full(run: Path, mailbox: str, within_s: float) -> bool:
    """Whether there was none lately."""
    try:
        told_ns = (run / f"{_FULL}{mailbox}").stat().st_mtime_ns
    except OSError:
        return False
    return 0 <= clock.wall_ns() - told_ns < within_s * clock.NS_PER_S
