"""Make, open and lock a spool: the directories of one instance and the file that says whose it is.

    instance.json := {"format": 1, "uuid": "32 hexadecimal digits"}

Invariants: 1. instance.json is written last and appears by rename: a spool that has one is
complete;
2. its uuid never changes, and stands in every durable file, so that files of another instance are
noticed; 3. a lock is an flock on a file, held by a descriptor: it ends with its process.

Errors: SpoolMissing, SpoolOwner, SpoolLocked, NewerFormat, NeedsRepair, DiskError, SpoolFull.
"""

from __future__ import annotations

import json
import os
import re
import stat
import uuid as uuid_module
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base import modes, side_files
from omq.base.access import user_name
from omq.base.errors import NeedsRepair, NewerFormat, SpoolLocked, SpoolMissing, SpoolOwner
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.files import File, create_file, open_file, read_file, write_new_file

FORMAT: Final = 1
_INSTANCE_BYTES_MAX: Final = 4096
_LOCK_BYTES_MAX: Final = 200
_UUID: Final = re.compile(r"[0-9a-fA-F]{32}")


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
        if not identity:
            refuse_headless(paths)
        for directory in paths.directories():
            _make(paths, directory)
        write_identity(paths, identity or uuid_module.uuid4().bytes)
    info = open_spool(path, writer=True)
    for directory in paths.directories():  # run/ and temp/ may be lost at a reboot
        if durable.status(directory) is None:
            _make(paths, directory)
    return info


def _make(paths: SpoolPaths, directory: Path) -> None:
    name = "." if directory == paths.root else directory.name
    durable.make_directory(directory, modes.wanted(name, directory=True))


def open_spool(path: Path, *, writer: bool = False) -> SpoolInfo:
    """An existing spool, checked. `writer`: for daemons, which must own it and keep others out;
    what they find there is then durable under its name."""
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
        data = read_file(paths.uuid, _INSTANCE_BYTES_MAX)
    except FileNotFoundError as error:
        refuse_headless(paths)
        raise SpoolMissing(path=path) from error
    return SpoolInfo(_decode(data, paths.uuid), paths)


def _decode(data: bytes, file: Path) -> bytes:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    version = found.get("format") if isinstance(found, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise NewerFormat(file=file, version=version, known=FORMAT)
    wrong = _wrong(data, found)
    if wrong:
        raise NeedsRepair(path=file, reason=wrong, command=identity_command(file.parent))
    return bytes.fromhex(found["uuid"])


def _wrong(data: bytes, found: object) -> str:
    """What is the matter with instance.json; empty for a whole one."""
    if not data.strip(b"\0 \r\n\t"):
        return "it is empty"
    if not isinstance(found, dict):
        return "it is no instance file (no JSON object)"
    version, text = found.get("format"), found.get("uuid")
    if type(version) is not int or version < 1:
        return "its format is no version number"
    if not isinstance(text, str) or _UUID.fullmatch(text) is None:
        return "its uuid is not 32 hexadecimal digits"
    return ""


def identity_command(root: Path) -> str:
    """What makes instance.json anew."""
    return f"omqrecover identity {escape(str(root))}"


def write_identity(paths: SpoolPaths, uuid: bytes) -> None:
    """Make instance.json: from now on the spool is that instance."""
    text = json.dumps({"format": FORMAT, "uuid": uuid.hex()}) + "\n"
    write_new_file(paths.uuid, [text.encode()]).close()


def refuse_headless(paths: SpoolPaths) -> None:
    """A spool that lost its instance.json must not become a new instance: everything in it would
    be a stranger's. NeedsRepair."""
    for folder in (paths.journal, paths.msgpool, paths.archive):
        held = [name for name in durable.list_directory(folder) if name != paths.pool_lock.name]
        if held:
            raise NeedsRepair(path=paths.uuid, reason=f"it is missing, but {folder.name}/ holds "
                              f"{escape(held[0])}", command=identity_command(paths.root))


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
    # For people: a disk that refuses it does not refuse the lock.
    side_files.attempt(path, lambda: _write_text(file, text.ljust(_LOCK_BYTES_MAX)))
    return file


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
