"""Who needs history: holds on the archive, one file each in archive/holds/.

    NAME.hold   {"from": 42, "who": "...", "lives": false}

From file number `from` on nothing is removed while the hold is there.

    lives false  a base: a copy of the spool, or of its message pool, from which media recovery goes
                 forward with the journal since then; or whatever an operator wants to keep. It
                 stays until somebody releases it (omq-archive --hold NAME, --release NAME).
    lives true   a reader: an analysis, a dump, a scan. It holds the lock of the file; when its
                 process has ended, however it did, the lock is free and the hold is void.

Invariants: 1. a hold is made, moved and released under `changing` of storage.history, as history is
removed: who has one finds everything from its number on that was there when it was made; 2. a hold
that cannot be read holds everything; 3. only the spool's owner makes holds (root's would be files
that pool.writer may not read): others go on without.

In the middle of a crash: a hold of a reader that is void is removed by the next look.
Errors: DiskError, SpoolFull, SpoolLocked; BadRequest for a name that is none.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.errors import BadRequest, DiskError
from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.files import File, open_file, read_file, write_new_file

SUFFIX: Final = ".hold"
NOTHING: Final = 1 << 62  # needed_from: everything may go
HOLD_BYTES_MAX: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Hold:
    """One hold; `first` 0: everything."""

    name: str
    first: int
    who: str
    lives: bool


def folder(paths: SpoolPaths) -> Path:
    return paths.archive / "holds"


def make(paths: SpoolPaths, hold: Hold) -> File:
    """Make it, or move it; the caller has `changing`. The file of one that lives is locked: keep
    it open for as long as it is needed. BadRequest, DiskError, SpoolFull."""
    if _NAME.fullmatch(hold.name) is None:
        raise BadRequest(reason=f"{hold.name!r} is not the name of a hold: letters, digits, _ . -")
    durable.make_directory(folder(paths))
    text = json.dumps({"from": hold.first, "who": hold.who, "lives": hold.lives}) + "\n"
    file = write_new_file(folder(paths) / f"{hold.name}{SUFFIX}", [text.encode()])
    if hold.lives:
        durable.current().lock(file.fd)
    return file


def release(paths: SpoolPaths, name: str) -> bool:
    """False: there is none of this name. The caller has `changing`."""
    if _NAME.fullmatch(name) is None:
        raise BadRequest(reason=f"{name!r} is not the name of a hold: letters, digits, _ . -")
    return durable.unlink(folder(paths) / f"{name}{SUFFIX}")


def may_hold(paths: SpoolPaths) -> bool:
    """Is this the owner's process?"""
    found = durable.status(paths.root)
    return found is not None and found.st_uid == os.geteuid()


def holds(paths: SpoolPaths) -> list[Hold]:
    """Those that count, by name."""
    found = (_read(folder(paths) / name) for name in _names(paths))
    return [hold for hold in found if hold is not None]


def needed_from(paths: SpoolPaths) -> int:
    """The lowest number that is held; void holds are removed. The caller has `changing`."""
    first = NOTHING
    for name in _names(paths):
        path = folder(paths) / name
        hold = _read(path)
        if hold is None:
            durable.unlink(path)
        else:
            first = min(first, hold.first)
    return first


def _names(paths: SpoolPaths) -> list[str]:
    return [name for name in durable.list_directory(folder(paths)) if name.endswith(SUFFIX)]


def _read(path: Path) -> Hold | None:
    """None: it is void, or gone."""
    name = path.name.removesuffix(SUFFIX)
    try:
        found = json.loads(read_file(path, HOLD_BYTES_MAX))
        hold = Hold(name, int(found["from"]), str(found["who"]), found["lives"] is True)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, DiskError):
        return Hold(name, 0, "a hold that cannot be read", lives=False)
    return None if hold.lives and _free(path) else hold


def _free(path: Path) -> bool:
    """Has nobody locked it?"""
    try:
        file = open_file(path)
    except FileNotFoundError:
        return True
    try:
        durable.current().lock(file.fd, shared=True)
    except BlockingIOError:
        return False
    finally:
        file.close()
    return True


def reader_name(what: str) -> str:
    """Of a hold of this process."""
    return f"{what}-{os.getpid()}"
