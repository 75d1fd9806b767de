"""instance.json made anew: which instance a spool is, from the files that carry its uuid.

Every journal file, archived journal file, pool file and both slots of poolctrl hold the uuid under
a CRC. When all of them name the same one it is the spool's; else files were mixed, and only the
operator knows which are right (--uuid).

Term and role are kept where the old file can be read. Else the term is the highest one in the
journal, and of an instance that had standbys only the operator knows what this spool was (--role):
taken for a primary by mistake it would serve alongside the real one.

Errors: NotRepairable, SpoolMissing, SpoolOwner, DiskError, SpoolFull.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from omq.base.errors import (
    DiskError,
    NeedsRepair,
    NotRepairable,
    OmqError,
    SpoolMissing,
    SpoolOwner,
)
from omq.base.paths import SpoolPaths
from omq.format.pool import FILE_HEADER, decode_file_header
from omq.storage import durable, home, instance_file
from omq.storage import poolctrl as control
from omq.storage.files import read_file, write_new_file
from omq.storage.instance_file import Instance, Role
from omq.storage.journal import numbers_in
from omq.storage.journal_reader import read_entry
from omq.storage.spool import SpoolInfo, identity_command
from omqtools.omqrecover.archive import all_numbers, open_archived

_POOL_FILE: Final = re.compile(r"([0-9]{1,2})QP")


def named(paths: SpoolPaths) -> dict[bytes, list[str]]:
    """uuid -> the files that name it."""
    found: dict[bytes, list[str]] = {}
    for folder in (paths.journal, paths.archive):
        for number in all_numbers(folder):
            with suppress(DiskError):  # a link, or what cannot be read: the scan names it
                archived = open_archived(folder, number)
                if archived.follows is not None:
                    found.setdefault(archived.follows.uuid, []).append(archived.path.name)
    stored, _ = control.load(paths)
    if stored is not None:
        found.setdefault(stored.uuid, []).append(control.NAME)
    for name in durable.list_directory(paths.msgpool):
        match = _POOL_FILE.fullmatch(name)
        if match is None:
            continue
        data = b""
        with suppress(DiskError):
            data = read_file(paths.msgpool / name, FILE_HEADER.size)
        uuid = FILE_HEADER.unpack_from(data)[5] if len(data) == FILE_HEADER.size else b""
        if uuid and decode_file_header(data, int(match[1]), uuid) is None:
            found.setdefault(uuid, []).append(name)
    return found


def check(info: SpoolInfo) -> None:
    """NeedsRepair when not one file is of the instance that instance.json names, and all are of
    another one: instance.json is what is wrong, and repair would set all of them aside."""
    found = named(info.paths)
    if len(found) == 1 and info.uuid not in found:
        (uuid, files), = found.items()
        raise NeedsRepair(
            path=info.paths.uuid, reason=f"it names the instance {info.uuid.hex()}, all "
            f"{len(files)} files are of {uuid.hex()}", command=identity_command(info.paths.root))


def restore(root: Path, wanted: str | None, role: Role | None = None) -> tuple[Instance, str]:
    """Write instance.json; what it says now, and the file in quarantine/ that holds the old one
    ("": there was none). `wanted`: 32 hexadecimal digits, and `role`, what the operator says."""
    paths = SpoolPaths(root)
    _check_owner(root)
    uuid = bytes.fromhex(wanted) if wanted is not None else _voted(paths)
    made = _made(paths, uuid, role)
    kept = ""
    before = durable.status(paths.uuid)
    if before is not None and stat.S_ISREG(before.st_mode):
        durable.make_directory(paths.quarantine)
        target = paths.quarantine / f"instance.json.{before.st_mtime_ns}"
        write_new_file(target, [read_file(paths.uuid, instance_file.BYTES_MAX)]).close()
        kept = target.name
    instance_file.write(paths, made)
    home.settle(paths)  # a copy that goes on instead of its original is at home here
    return made, kept


def _made(paths: SpoolPaths, uuid: bytes, role: Role | None) -> Instance:
    """What instance.json is to say."""
    before = None
    with suppress(OmqError, FileNotFoundError):
        before = instance_file.decode(read_file(paths.uuid, instance_file.BYTES_MAX), paths.uuid)
    if before is not None and before.uuid != uuid:
        before = None
    term = max(_term(paths, uuid), before.term if before is not None else 0)
    if before is None and term and role is None:
        raise NotRepairable(what=str(paths.uuid), reason=f"the instance had standbys (term {term}):"
                            " say --role primary only if no other member serves, else standby")
    if before is None:
        before = Instance(uuid)
    if not term and role in (None, Role.PRIMARY):
        return before
    return replace(before, term=term, role=role or before.role,
                   member=before.member or f"restored-{uuid.hex()[:6]}")


def _term(paths: SpoolPaths, uuid: bytes) -> int:
    """The highest term in the headers of the journal."""
    found = [read_entry(paths, number, uuid).header for number in numbers_in(paths.journal)]
    return max((header.term for header in found if header is not None), default=0)


def _voted(paths: SpoolPaths) -> bytes:
    found = named(paths)
    if len(found) == 1:
        return next(iter(found))
    if not found:
        reason = ("no file of it names an instance; say --uuid, or make a new spool elsewhere with "
                  "'omrc --embedded --spool DIR'")
    else:
        shown = ", ".join(f"{uuid.hex()} ({len(files)} files: {files[0]} ...)"
                          for uuid, files in sorted(found.items(), key=lambda item: -len(item[1])))
        reason = f"its files are of {len(found)} instances: {shown}; say --uuid"
    raise NotRepairable(what=str(paths.uuid), reason=reason)


def _check_owner(root: Path) -> None:
    found = durable.status(root)
    if found is None or not stat.S_ISDIR(found.st_mode):
        raise SpoolMissing(path=root)
    if found.st_uid != os.geteuid():  # the daemons could not read what another user writes
        raise SpoolOwner(path=root, owner=found.st_uid, mode=stat.S_IMODE(found.st_mode),
                         expected="its own user: run this as that user")
