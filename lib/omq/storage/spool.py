"""Make, open and lock a spool: the directories of one instance and the file that says whose it is.

    instance.json := {"format": 1, "uuid": "32 hexadecimal digits"}

Invariants: 1. instance.json is written last and appears by rename: a spool that has one is
complete;
2. its uuid never changes, and stands in every durable file, so that files of another instance are
noticed; 3. a lock is an flock on a file, held by a descriptor: it ends with its process.

Errors: SpoolMissing, SpoolOwner, SpoolLocked, NewerFormat, Damaged, DiskError, SpoolFull.
"""

from __future__ import annotations

import json
import os
import stat
import uuid as uuid_module
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.errors import Damaged, NewerFormat, SpoolLocked, SpoolMissing, SpoolOwner
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.files import File, create_file, open_file, read_file, write_new_file

FORMAT: Final = 1
_INSTANCE_BYTES_MAX: Final = 4096
_LOCK_BYTES_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class SpoolInfo:
    """An existing spool."""

    uuid: bytes  # 16 bytes
    paths: SpoolPaths


def create_spool(path: Path, identity: bytes = b"") -> SpoolInfo:
    """Make the spool, or complete one that a crash left unfinished; else leave it as it is.

    `identity`: the uuid to give it, for an instance that comes back on another disk."""
    paths = SpoolPaths(path)
    if durable.status(paths.uuid) is None:
        for directory in paths.directories():
            durable.make_directory(directory)
        chosen = identity.hex() or uuid_module.uuid4().hex
        text = json.dumps({"format": FORMAT, "uuid": chosen}) + "\n"
        write_new_file(paths.uuid, [text.encode()]).close()
    info = open_spool(path, writer=True)
    for directory in paths.directories():  # run/ and temp/ may be lost at a reboot
        if durable.status(directory) is None:
            durable.make_directory(directory)
    return info


def open_spool(path: Path, *, writer: bool = False) -> SpoolInfo:
    """An existing spool, checked. `writer`: for daemons, which must own it and keep others out;
    what they find there is then durable under its name."""
    paths = SpoolPaths(path)
    found = durable.status(path)
    if found is None or not stat.S_ISDIR(found.st_mode):
        raise SpoolMissing(path=path)
    wanted = "its own user" if writer and found.st_uid != os.geteuid() else ""
    if found.st_mode & 0o022:
        wanted = "no write permission for group and others"
    if wanted:
        mode = stat.S_IMODE(found.st_mode)
        raise SpoolOwner(path=path, owner=found.st_uid, mode=mode, expected=wanted)
    if writer:
        durable.sync_directory(path)  # who made instance.json may have been killed before that
    try:
        data = read_file(paths.uuid, _INSTANCE_BYTES_MAX)
    except FileNotFoundError as error:
        raise SpoolMissing(path=path) from error
    return SpoolInfo(_decode(data, paths.uuid), paths)


def _decode(data: bytes, file: Path) -> bytes:
    try:
        found = json.loads(data)
        version, text = int(found["format"]), str(found["uuid"])
        identity = bytes.fromhex(text)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"not an instance file: {escape(str(error))}"
        raise Damaged(file=file, offset=0, reason=reason) from error
    if version > FORMAT:
        raise NewerFormat(file=file, version=version, known=FORMAT)
    if version < 1 or len(identity) != 16:
        raise Damaged(file=file, offset=0, reason="not an instance file: wrong format or uuid")
    return identity


def lock(path: Path, what: str) -> File:
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
    text = f"{os.getpid()} {what}\n".encode()
    file.write([text.ljust(_LOCK_BYTES_MAX)], 0, new=True)
    return file


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
