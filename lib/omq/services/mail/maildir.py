"""A Maildir: a folder per local user, a file per message, none of them lost or double.

    <root>/<user>/tmp    being written, unseen by readers of mail
    <root>/<user>/new    delivered                    <root>/<user>/cur    seen, name + ":2,FLAGS"

A file's name is derived from the message and the recipient, never from the clock or the process:

    <seconds of the put>.<message id, 48 hex digits>.<8 hex digits of the user's hash>.omq

Invariants: 1. a name in new/ is a whole message on disk: the file is synced before it is renamed
and the folder is synced after; 2. the same message for the same user has the same name, so a
second delivery finds the first one in new/ or cur/ and writes nothing; 3. two processes that
deliver the same message at once (one of them lost its lease) write different files in tmp/ and
rename them to the same name: one stays, whole; 4. no file is ever synced again after a sync of it
failed: it is removed, and the next attempt writes another one.

Crash argument: killed before the rename, a file is left in tmp/ that no reader of mail shows; the
redelivery removes it and writes again. Killed after the rename but before the folder is synced, the
file is there or not, but always whole; the redelivery looks, and syncs the folder of what it finds
before it says so. Not covered: a user who deletes the message between the crash and the redelivery
gets it once more.

A mailbox is not a spool file: an error of its disk must not stop the daemon, so the calls go to the
disk of omq.storage.durable directly, past its latch; the caller defers the message.

Errors: BadName for a user name that is not a mailbox name; OSError from the disk.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omq.base import fault
from omq.base.errors import BadName
from omq.services.mail.mailbox_owner import Owner, acting_as, give
from omq.storage import durable
from omq.storage.disk import Disk

USER_RULE = "1 to 64 of a-z, 0-9 and . _ + - =, a letter, digit or _ first, no .. in it"
FOLDER_MODE = 0o700  # mail is its owner's alone
FILE_MODE = 0o600

_USER = re.compile(r"[a-z0-9_][a-z0-9._+=-]{0,63}")
_DOMAIN = re.compile(r"[a-z0-9][a-z0-9.-]{0,126}")
_FOLDERS = ("tmp", "new", "cur")


def mailbox_name(user: str) -> str:
    """The folder name of a user: lower case, and safe as one path component. BadName otherwise."""
    name = user.lower()
    if _USER.fullmatch(name) is None or ".." in name or not user.isascii():
        raise BadName(kind="mailbox", name=user, rule=USER_RULE)
    return name


def folder_name(mailbox: str) -> str:
    """The folder of a mailbox: a user's, or that of a user of a domain with mailboxes of its own
    (user@domain). BadName."""
    user, at, domain = mailbox.lower().partition("@")
    if at and (_DOMAIN.fullmatch(domain) is None or ".." in domain):
        raise BadName(kind="mailbox", name=mailbox, rule=f"{USER_RULE}, and @domain")
    return f"{mailbox_name(user)}{at}{domain}"


def file_name(message_id: str, user: str, put_time_ns: int) -> str:
    """The name of a message's file in new/, the same at every delivery."""
    digest = hashlib.blake2b(user.encode(), digest_size=4).hexdigest()
    return f"{put_time_ns // 1_000_000_000}.{message_id}.{digest}.omq"


def maildir_root(setting: str, spool: Path) -> Path:
    """The folder of all mailboxes: the setting, or mail/ in the spool."""
    return Path(setting) if setting else spool / "mail"


@dataclass(frozen=True, slots=True)
class NewFile:
    """A message's file: where it is written, where it is published, of what it is made."""

    temporary: str
    target: str
    parts: Sequence[bytes]

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return sum(map(len, self.parts))


class Maildir:
    """The mailbox of one user under `root`; where it has an owner, all but `create` is done while
    acting as he (omq.services.mail.mailbox_owner)."""

    def __init__(self, root: Path, user: str, owner: Owner | None = None) -> None:
        self.root = root
        self.path = root / folder_name(user)
        self.owner = owner
        self._folder = f"{self.path}{os.sep}"  # of a mail's path only texts are made: they are many

    def exists(self) -> bool:
        """Whether the user has a mailbox, complete."""
        return all(os.path.isdir(self._folder + each) for each in _FOLDERS)

    def create(self) -> None:
        """Make the mailbox, durably; what is there already stays."""
        disk = durable.current()
        _made(disk, self.path)
        if self.owner is not None:
            give(self.path, self.owner)
        with acting_as(self.owner):
            for name in _FOLDERS:
                _made(disk, self.path / name)
            disk.sync_directory(str(self.path))
        disk.sync_directory(str(self.root))

    def deliver(self, name: str, parts: Sequence[bytes], *, again: bool) -> bool:
        """Write a message of these parts; False when it is there already.

        `again` says that it may have been handed out before: only then cur/ is listed, which costs
        time in a large mailbox, and what an earlier delivery left in tmp/ is removed."""
        file = self.prepare(name, parts, again=again)
        if file is None:
            return False
        (error,) = publish(durable.current(), [file])
        if error is not None:
            raise error
        return True

    def prepare(self, name: str, parts: Sequence[bytes], *, again: bool) -> NewFile | None:
        """The file to `publish`; None when the message is there already, on disk."""
        folder = self._found(name, again=again)
        if folder is not None:
            durable.current().sync_directory(folder)
            return None
        if again:
            self._remove_leftovers(name)
        temporary = f"{self._folder}tmp/{name}.{os.getpid()}"
        return NewFile(temporary, f"{self._folder}new/{name}", parts)

    def _found(self, name: str, *, again: bool) -> str | None:
        if os.path.lexists(f"{self._folder}new/{name}"):
            return f"{self._folder}new"
        cur = f"{self._folder}cur"
        if again and any(entry == name or entry.startswith(f"{name}:")
                         for entry in durable.current().listdir(cur)):
            return cur
        return None

    def _remove_leftovers(self, name: str) -> None:
        # Whoever still writes one of them has lost its lease: its rename fails and we write.
        disk, tmp = durable.current(), self.path / "tmp"
        for entry in disk.listdir(str(tmp)):
            if entry.startswith(f"{name}."):
                with suppress(FileNotFoundError):
                    disk.unlink(str(tmp / entry))


def _made(disk: Disk, folder: Path) -> None:
    with suppress(FileExistsError):  # another reader makes it at this moment, or did
        disk.mkdir(str(folder), FOLDER_MODE)


def publish(disk: Disk, files: Sequence[NewFile]) -> list[OSError | None]:
    """Write, sync, rename, and sync each folder once; what went wrong with each file.

    All are written before the first is synced, and their writing is begun, so that a journaling
    file system syncs them together (the later calls find little to do). After an error of a file
    neither of its names is left."""
    errors: list[OSError | None] = [None] * len(files)
    opened: dict[int, int] = {}
    try:
        for number, file in enumerate(files):
            errors[number] = _attempt(disk, file.temporary,
                                      partial(_open_written, disk, file, opened, number))
        if len(opened) > 1:
            for descriptor in opened.values():
                disk.begin_write(descriptor)
        for number, descriptor in opened.items():
            errors[number] = _attempt(disk, files[number].temporary,
                                      partial(disk.fsync, descriptor))
    finally:
        for descriptor in opened.values():
            disk.close(descriptor)
    folders: dict[str, list[int]] = {}
    for number, file in enumerate(files):
        if errors[number] is None:
            fault.point("local.before_rename")
            errors[number] = _attempt(disk, file.temporary,
                                      partial(disk.rename, file.temporary, file.target))
        if errors[number] is None:
            fault.point("local.after_rename")
            folders.setdefault(os.path.dirname(file.target), []).append(number)
    for folder, numbers in folders.items():
        error = _attempt(disk, "", partial(disk.sync_directory, folder))
        for number in numbers if error is not None else ():
            errors[number] = error
            _remove(disk, files[number].target)
    return errors


def _attempt(disk: Disk, path: str, work: Callable[[], object]) -> OSError | None:
    """Do it; after an error `path` is removed."""
    try:
        work()
    except OSError as error:
        if path:
            _remove(disk, path)
        return error
    return None


def _remove(disk: Disk, path: str) -> None:
    with suppress(OSError):  # the first error is the one to tell
        disk.unlink(path)


def _open_written(disk: Disk, new: NewFile, opened: dict[int, int], number: int) -> None:
    """Put the descriptor of a new file that has its bytes, not synced, into `opened`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        file = disk.open(new.temporary, flags, FILE_MODE)
    except FileExistsError:
        disk.unlink(new.temporary)  # of an earlier process with this pid
        file = disk.open(new.temporary, flags, FILE_MODE)
    try:
        offset = 0
        for part in new.parts:
            rest = memoryview(part)
            while rest:
                count = disk.pwritev(file, [rest], offset)
                rest, offset = rest[count:], offset + count
    except BaseException:
        disk.close(file)
        raise
    opened[number] = file
