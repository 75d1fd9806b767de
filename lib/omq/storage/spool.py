"""Make, open and lock a spool: the directories of one instance and the file that says whose it is
(storage.instance_file).

Invariants: 1. instance.json is written last and appears by rename: a spool that has one is
complete;
2. its uuid never changes, and is in every durable file, so that files of another instance are
noticed; 3. a lock is an flock on a file, held by a descriptor: it ends with its process;
4. a spool that is not a primary's is opened as a writer only by those who say so.

Errors: SpoolMissing, SpoolOwner, SpoolLocked, NotPrimary, NewerFormat, NeedsRepair,
DiskError, SpoolFull.
"""

from __future__ import annotations

import os
import stat
import uuid as uuid_module
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base import modes, side_files
from omq.base.access import user_name
from omq.base.errors import NeedsRepair, NotPrimary, SpoolLocked, SpoolMissing, SpoolOwner
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.storage import durable, instance_file
from omq.storage.files import File, create_file, open_file, read_file
from omq.storage.instance_file import Instance, Role, identity_command

__all__ = ("Instance", "Role", "SpoolInfo", "create_spool", "identity_command", "lock",
           "lock_shared", "open_spool", "refuse_headless", "write_identity")
_LOCK_BYTES_MAX: Final = 200
_UNTOLD: Final = Instance(bytes(16))


@dataclass(frozen=True, slots=True)
class SpoolInfo:
    """An existing spool."""

    uuid: bytes  # 16 bytes
    paths: SpoolPaths
    instance: Instance = _UNTOLD  # its term and role


def create_spool(path: Path, identity: bytes = b"") -> SpoolInfo:
    """Make the spool, or complete one that a crash left unfinished; else leave it as it is.

    `identity`: the uuid to give it, for an instance that comes back on another disk."""
    paths = SpoolPaths(path)
    if durable.status(paths.uuid) is None:
        if not identity:
            refuse_headless(paths)
        durable.make_directories((each, _mode(paths, each)) for each in paths.directories())
        write_identity(paths, identity or uuid_module.uuid4().bytes)
    info = open_spool(path, writer=True)
    make_directories(paths)  # run/ and temp/ may be lost at a reboot
    return info


def make_directories(paths: SpoolPaths) -> None:
    """Those of a spool that are not there."""
    durable.make_directories((each, _mode(paths, each)) for each in paths.directories()
                             if durable.status(each) is None)


def _mode(paths: SpoolPaths, directory: Path) -> int:
    return modes.wanted("." if directory == paths.root else directory.name, directory=True)


def open_spool(path: Path, *, writer: bool = False, any_role: bool = False) -> SpoolInfo:
    """An existing spool, checked. `writer`: for who changes it, which must own it and keep others
    out; what is found there is then durable under its name. Unless `any_role` it must be the
    primary's: NotPrimary."""
    paths = SpoolPaths(path)
    found = durable.status(path)
    if found is None or not stat.S_ISDIR(found.st_mode):
        raise SpoolMissing(path=path)
    wanted = ""
    if writer and found.st_uid != os.geteuid():
        wanted = f"its own user (do it as {user_name(found.st_uid)})"
    if found.st_mode & 0o022:
        wanted = "no write permission for group and others"
    if wanted:
        mode = stat.S_IMODE(found.st_mode)
        raise SpoolOwner(path=path, owner=found.st_uid, mode=mode, expected=wanted)
    if writer:
        durable.sync_directory(path)  # who made instance.json may have been killed before that
    try:
        data = read_file(paths.uuid, instance_file.BYTES_MAX)
    except FileNotFoundError as error:
        refuse_headless(paths)
        raise SpoolMissing(path=path) from error
    found_there = instance_file.decode(data, paths.uuid)
    if writer and not any_role:
        refuse_others(paths, found_there)
    return SpoolInfo(found_there.uuid, paths, found_there)


def refuse_others(paths: SpoolPaths, instance: Instance) -> None:
    """NotPrimary, unless it is one that serves."""
    if instance.role is Role.PRIMARY:
        return
    raise NotPrimary(path=paths.root, role=instance.role.words, member=instance.member,
                     primary=instance.primary or "not known here")


def write_identity(paths: SpoolPaths, uuid: bytes) -> None:
    """Make instance.json: from now on the spool is that instance, without a standby."""
    instance_file.write(paths, Instance(uuid))


def refuse_headless(paths: SpoolPaths) -> None:
    """A spool that lost its instance.json must not become a new instance: everything in it would
    be a stranger's. NeedsRepair."""
    for folder in (paths.journal, paths.msgpool, paths.archive):
        held = [name for name in durable.list_directory(folder) if name != paths.pool_lock.name]
        if held:
            raise NeedsRepair(path=paths.uuid, reason=f"it is missing, but {folder.name}/ holds "
                              f"{escape(held[0])}", command=identity_command(paths.root))


class Lock(File):
    """An exclusive lock, held until it is closed or its process ends."""

    __slots__ = ()

    def close(self) -> None:
        """Its text, if the disk has refused it so far, is not wanted any more: nothing is owed to a
        descriptor that is another file's next."""
        side_files.forget(self.path)
        super().close()


def lock(path: Path, what: str) -> Lock:
    """Take the exclusive lock of a file; keep the result for as long as it is needed.

    `what` names the holder in the SpoolLocked that others get."""
    try:
        file = open_file(path, write=True)
    except FileNotFoundError:
        file = create_file(path, replace=True)
    try:
        durable.current().lock(file.fd)
    except BlockingIOError as error:
        raise _locked(file) from error
    held = Lock(file.fd, path)
    text = f"{os.getpid()} {what}\n".encode()
    # For people: a disk that refuses it does not refuse the lock.
    side_files.attempt(path, lambda: _write_text(held, text.ljust(_LOCK_BYTES_MAX)))
    return held


def _write_text(file: File, text: bytes) -> None:
    durable.current().pwritev(file.fd, [text], 0)


def lock_shared(path: Path) -> File | None:
    """For tools that only look: keeps an exclusive holder out, writes nothing. None when there is
    no lock file, so nobody holds it. SpoolLocked names the holder."""
    try:
        file = open_file(path)
    except FileNotFoundError:
        return None
    try:
        durable.current().lock(file.fd, shared=True)
    except BlockingIOError as error:
        raise _locked(file) from error
    return file


def _locked(file: File) -> SpoolLocked:
    """The error that names the holder; the file is closed."""
    pid, _, holder = file.read(_LOCK_BYTES_MAX, 0).decode("ascii", "replace").partition(" ")
    file.close()
    return SpoolLocked(path=file.path, pid=escape(pid), what=escape(holder.strip()))
