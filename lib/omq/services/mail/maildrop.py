"""The maildrop: a directory of mail from programs of this host that no queue has yet.

mail.drop is its only writer (flock on maildrop/lock), so a user of this host never has a file in
it: no links, no half files, no names of his. It takes mail while the queue manager is away, and
for as long as there is room: `drop_files_max` files, `drop_bytes_max` bytes, half of each for one
user other than the owner and root, and never the room that the queues keep for themselves
(`disk_reserve_bytes`, `inode_reserve`).

Invariants:
1. `keep` returns after the file is durable under its name, and its author is answered after that.
2. A file goes only after the queue manager acknowledged its message (drop_carrier), or to
   quarantine/, with a note.
3. What has another name than NAME, or is not a regular file, is not ours: reported, left alone.

Crash argument: a file appears by rename after its sync, so there is all of it or none; `.tmp` is
what a death before that left, nobody was told of it, and the next start removes it. A death after
the put and before the removal leaves a file whose mail is on its queue: it is put once more under
the same id (Postfix's pickup does the same). A queue with `dedupe_s` absorbs it, a Maildir has it
once.

Errors: MaildropFull (temporary); SpoolFull, DiskError; SpoolLocked.
"""

from __future__ import annotations

import json
import stat
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omq.base import clock
from omq.base.errors import DiskError, DropDamaged, MaildropFull, SpoolFull
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.services.mail.drop_file import HEAD_BYTES_MAX, NAME, Dropped, decode, encode
from omq.storage import durable
from omq.storage.files import TEMPORARY, read_file, write_new_file
from omq.storage.spool import lock

LOCK: Final = "lock"
_SHARE: Final = 2  # one user has half
_EXTRA_BYTES: Final = 64  # the first line


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of the maildrop: its name, bytes, and whose it is (-1: not known)."""

    name: str
    size: int
    uid: int


class Maildrop:
    """Open once in a process; `keep` and the rest may be called from several threads."""

    def __init__(self, paths: SpoolPaths, settings: Settings,
                 tell: Callable[[str, str], None]) -> None:
        """`tell`: a file and what is wrong with it."""
        self.folder, self._paths, self._tell = paths.maildrop, paths, tell
        self.settings = settings
        self._guard = threading.Lock()
        durable.make_directory(self.folder)
        self._lock = lock(self.folder / LOCK, "the maildrop")
        self._kept: dict[str, Kept] = {}
        self._files: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()
        self._find()

    def close(self) -> None:
        """Let another process have it."""
        self._lock.close()

    def __len__(self) -> int:
        return len(self._kept)

    def names(self) -> list[str]:
        """What waits, in the order of arrival."""
        with self._guard:
            return sorted(self._kept)

    def keep(self, mail: Dropped, *, bounded: bool = True) -> None:
        """Make the file of a mail. `bounded`: of a user who may have half of the room. Nothing is
        left of it after MaildropFull, SpoolFull or DiskError."""
        data = encode(mail)
        kept = Kept(mail.name, len(data), mail.uid)
        with self._guard:
            self._check(kept, bounded=bounded)
            self._count(kept, 1)  # before it is written: others are, too
        try:
            write_new_file(self.folder / mail.name, [data]).close()
        except BaseException:
            with self._guard:
                self._count(kept, -1)
            raise
        with self._guard:
            self._kept[mail.name] = kept

    def read(self, name: str) -> Dropped | None:
        """The mail in a file; None: it is gone, or was set aside. DiskError."""
        limit = HEAD_BYTES_MAX + self.settings.body_bytes_max + _EXTRA_BYTES
        try:
            return decode(read_file(self.folder / name, limit), name)
        except FileNotFoundError:
            self._tell(name, "it is gone from the maildrop")
            self._forget(name)
        except DropDamaged as error:
            self._set_aside(name, str(error))
        return None

    def done(self, names: list[str]) -> None:
        """Their messages are on a queue. DiskError."""
        for name in names:
            durable.unlink(self.folder / name, sync=False)
        durable.sync_directory(self.folder)
        for name in names:
            self._forget(name)

    def _check(self, kept: Kept, *, bounded: bool) -> None:
        settings, share = self.settings, _SHARE if bounded else 1
        for used, own, need, limit, key in (
                (self._files.total(), self._files[kept.uid], 1, settings.drop_files_max,
                 "drop_files_max"),
                (self._bytes.total(), self._bytes[kept.uid], kept.size, settings.drop_bytes_max,
                 "drop_bytes_max")):
            if used + need > limit or own + need > max(1, limit // share):
                raise MaildropFull(folder=self.folder, key=key, limit=limit)
        room = durable.file_system(self.folder)
        if (room.free - kept.size < settings.disk_reserve_bytes
                or (room.inodes and room.inodes_free <= min(
                    settings.inode_reserve, room.inodes // 10))):
            raise SpoolFull(path=self.folder, detail="what is left is for the queues "
                            "(disk_reserve_bytes, inode_reserve)")

    def _count(self, kept: Kept, sign: int) -> None:
        self._files[kept.uid] += sign
        self._bytes[kept.uid] += sign * kept.size

    def _forget(self, name: str) -> None:
        with self._guard:
            kept = self._kept.pop(name, None)
            if kept is not None:
                self._count(kept, -1)

    def _find(self) -> None:
        """What a process before this one left."""
        for name in durable.list_directory(self.folder):
            if name == LOCK:
                continue
            if name.endswith(TEMPORARY) and NAME.fullmatch(name.removesuffix(TEMPORARY)):
                durable.unlink(self.folder / name)
                continue
            status = durable.status(self.folder / name)
            if NAME.fullmatch(name) is None or (status and not stat.S_ISREG(status.st_mode)):
                self._tell(name, "this is not a mail file; it is left alone")
                continue
            if status is not None:
                kept = Kept(name, status.st_size, self._owner(name))
                self._kept[name] = kept
                self._count(kept, 1)

    def _owner(self, name: str) -> int:
        """Whose it is; what is damaged is nobody's until it is read, and then set aside."""
        try:
            head = read_file(self.folder / name, HEAD_BYTES_MAX).split(b"\n", 2)[1]
            return int(json.loads(head)["uid"])
        except (FileNotFoundError, DiskError, IndexError, KeyError, TypeError, ValueError):
            return -1

    def _set_aside(self, name: str, reason: str) -> None:
        """Into quarantine/, whole, with a note next to it; the note first."""
        note = json.dumps({"file": f"maildrop/{name}", "reason": reason, "time": clock.wall_ns()})
        write_new_file(self._paths.quarantine / f"{name}.json", [note.encode() + b"\n"]).close()
        durable.rename(self.folder / name, self._paths.quarantine / name)
        self._tell(name, f"{reason}; it is in quarantine/ now")
        self._forget(name)
