"""What fills a spool, and what makes room: the one place that measures it. omstat, omqwhy,
omqadvise, omq health, the console, the metrics and the refusal of a put all say what it says.

A part is a folder of the spool, by the word that people use for it. The folders of many files
(containers, quarantine, mail) are walked up to FILES_MAX files: then their size is reported as a
lower bound, and no look takes longer than that, however many there are. What this user may not
look at is left out.

Errors: none; DiskError from `free` where the system says nothing of its file system.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.base.sizes import shown
from omq.storage import disk_reserve, durable
from omq.storage.journal import next_is_ready

PARTS: Final[Mapping[str, str]] = MappingProxyType({
    "journal": "journal", "archive": "archive", "msgpool": "msgpool", "store": "store",
    "volatile": "volatile", "containers": "data", "quarantine": "quarantine", "logs": "logs",
    "mail": "mail"})
"""The word for a part -> its folder."""
REMEDIES: Final[Mapping[str, str]] = MappingProxyType({
    "archive": "'omq-archive' removes the oldest history; [archive] of omq.conf bounds it",
    "journal": "'omstat' says whether pool.writer runs, which retires it",
    "msgpool": "'omtop' shows the queues whose messages wait",
    "store": "'omtop' shows the queues whose messages wait",
    "volatile": "'omtop' shows the queues whose messages wait",
    "containers": "'omtop' shows the queues whose large messages wait, 'omscan' those of none",
    "quarantine": "look at the notes in quarantine/, then remove what is settled",
    "logs": "event_log_bytes_max and mail_log_bytes_max bound them",
    "mail": "mailboxes in mail/: read or remove mail"})
FILES_MAX: Final = 20_000
MARGIN_FILES: Final = 2
"""Journal files that fit above the reserve before history goes: the one that pool.writer prepares
next, and the one that is filled until it has retired another."""
_BLOCK_BYTES: Final = 512  # of st_blocks, stat(2)
_NAMED: Final = 3  # parts of the text
_WORTH: Final = 10  # history of a tenth of the spool is what can go without a loss


@dataclass(frozen=True, slots=True)
class Filled:
    """Bytes on the disk by part; `at_least`: parts with more files than were counted."""

    parts: Mapping[str, int] = field(default_factory=dict)
    at_least: frozenset[str] = frozenset()
    files: Mapping[str, int] = field(default_factory=dict)  # and folders: an inode each

    @property
    def text(self) -> str:
        """The largest parts, and the command that helps with the first of them."""
        return self._told(self.parts, shown)

    @property
    def files_text(self) -> str:
        """The same of the parts with most files, where inodes are the matter."""
        return self._told(self.files, "{} files".format)

    def _told(self, sizes: Mapping[str, int], shown: Callable[[int], str]) -> str:
        parts = {part: size for part, size in sizes.items() if size}
        largest = sorted(parts, key=lambda part: -parts[part])[:_NAMED]
        if not largest:
            return ""
        said = ", ".join(f"{part} {'at least ' if part in self.at_least else ''}"
                         f"{shown(parts[part])}" for part in largest)
        history = parts.get("archive", 0) * _WORTH >= sum(parts.values())
        first = "archive" if history else largest[0]
        return f"in the spool: {said}; {REMEDIES[first]}"


NOTHING: Final = Filled()
"""Not looked at."""


def filled(paths: SpoolPaths, files_max: int = FILES_MAX) -> Filled:
    """Look now."""
    sizes, files, at_least = dict[str, int](), dict[str, int](), set[str]()
    for part, folder in PARTS.items():
        size, count = _size(str(paths.root / folder), files_max)
        if size is not None:
            sizes[part], files[part] = size, count
            if count > files_max:
                at_least.add(part)
    return Filled(sizes, frozenset(at_least), files)


def _size(root: str, files_max: int) -> tuple[int | None, int]:
    """Bytes on the disk below a folder, None where it cannot be looked at; how many files and
    folders, one more than `files_max` when there are more."""
    total, left = 0, files_max
    folders = deque([root])
    while folders:
        folder = folders.popleft()
        try:
            entries = os.scandir(folder)
        except OSError:
            if folder == root:
                return None, 0
            continue  # it went meanwhile
        with entries:
            for each in entries:
                if not left:
                    return total, files_max + 1
                left -= 1
                with suppress(OSError):
                    if each.is_dir(follow_symlinks=False):
                        folders.append(each.path)
                    else:
                        total += each.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    return total, files_max - left


@dataclass(frozen=True, slots=True)
class Free:
    """What the file system has left, and the lines that an instance draws there.

    `bytes`: without what the next checkpoint adds to the pool; `owed`: of the next journal file
    while it is not made, which is as good as taken."""

    bytes: int
    inodes: int | None  # None: it does not count them
    reserve: int
    inode_reserve: int
    margin: int
    owed: int = 0
    late_bytes: int = 0
    debt: int = 0  # of the pool: `bytes` is without it

    @property
    def low(self) -> bool:
        """Puts are refused: what is left is for done, move and delete."""
        return self.bytes < self.reserve + self.owed or self._inodes_low(self.inode_reserve)

    @property
    def lacking(self) -> int:
        """What puts are refused for: 1 bytes, 2 inodes (Counter.SPACE_LOW)."""
        return 1 if self.bytes < self.reserve + self.owed else 2

    @property
    def late(self) -> bool:
        """A quarter of the reserve is gone, or half of the inodes of it: nobody waits for room any
        more."""
        return (self.bytes < self.late_bytes + self.owed
                or self._inodes_low(self.inode_reserve // 2))

    @property
    def short(self) -> bool:
        """History goes, and journal files are not kept for reading: before puts are refused."""
        return (self.bytes < self.reserve + self.margin
                or self._inodes_low(2 * self.inode_reserve))

    @property
    def wanted(self) -> int:
        """Bytes that must go until it is not short of them."""
        return max(0, self.reserve + self.margin - self.bytes)

    @property
    def history_wanted(self) -> int:
        """The same of history; where inodes are short, one number of it after the other."""
        return max(self.wanted, int(self.short))

    @property
    def depth(self) -> float:
        """How far it is into the margin: 0 not yet, 1 at the reserve."""
        room = self.margin - self.owed
        return min(1.0, self.wanted / room) if room else 0.0

    def _inodes_low(self, least: int) -> bool:
        return self.inodes is not None and self.inodes < least


def free(paths: SpoolPaths, settings: Settings, messages: int = 0) -> Free:
    """Of the file system of the journal, for an instance with so many messages. The lines are those
    of storage.disk_reserve. Where there is room enough for any pool, its files are not looked at.
    DiskError."""
    found, reserve = durable.file_system(paths.journal), disk_reserve.reserve_bytes(settings)
    owes = reserve and not next_is_ready(paths, settings)
    margin, owed = MARGIN_FILES * settings.journal_file_bytes, settings.journal_file_bytes
    debt = disk_reserve.debt_max_bytes(settings, messages)
    if found.free - debt < reserve + margin + owed:
        debt = disk_reserve.debt_bytes(paths, settings, messages)
    return Free(found.free - debt,
                found.inodes_free if found.inodes else None,
                reserve, min(settings.inode_reserve, found.inodes // 10),
                margin, owed if owes else 0, disk_reserve.late_bytes(settings), debt)
