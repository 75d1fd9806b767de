"""`standbys.json`: which journal files the standbys of this primary still need.

    {"b": 12}       member -> number of the journal file in which it goes on

Written when a standby comes to another file, read by pool.writer before it retires one, under the
same lock (`still`): a copy that begins names the oldest file there is, which must not go behind its
back. It is part of the spool and not of run/: after a reboot of the primary a standby that was away
still finds what it lacks. A member that is more than `standby_files_kept` files behind holds
nothing any more, and needs a new base.

Several processes write it: each `omq standby send`, the threads of `omq standby listen`, `omq
ship`, `omq standby forget`. Two of them that read, changed and wrote it at the same time would lose
an entry, and with it the journal files of a standby that is away; and both write the same temporary
file. So each change is made under paths.standbys_lock, from what is there then.

Invariants: 1. a change of one member leaves all other entries as they are; 2. a file that is none
counts as one that holds everything, and is left as it is: an entry in its place would say that
nobody else needs anything.

In the middle of a crash: the file before, or the new one. An old one keeps more than is needed.

Errors: DiskError, SpoolFull, SpoolLocked of `note`: who has the lock keeps it for LOCK_S.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Final

from omq.base.errors import SpoolFull, SpoolLocked
from omq.base.paths import SpoolPaths
from omq.storage import spool
from omq.storage.files import File, read_file, write_new_file

NAME: Final = "standbys.json"
_BYTES_MAX: Final = 65536
STANDBYS_MAX: Final = 16
LOCK_S: Final = 10.0  # a change takes two syncs
_RETRY_S: Final = 0.01


def load(paths: SpoolPaths) -> dict[str, int] | None:
    """Member -> file; None: what is there is no such file."""
    try:
        found = json.loads(read_file(paths.root / NAME, _BYTES_MAX))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or any(type(number) is not int for number in found.values()):
        return None
    return found


def note(paths: SpoolPaths, member: str, number: int | None, *, patience_s: float = LOCK_S) -> bool:
    """The member goes on in that file; None: it is no longer a standby. False: nothing has
    changed, or what is there is not such a file."""
    if not _changes(load(paths), member, number):
        return False  # as nearly always: no lock for it
    held = _alone(paths, member, patience_s)
    try:
        found = load(paths)
        if found is None or not _changes(found, member, number):
            return False
        if number is None:
            del found[member]
        else:
            found[member] = number
        data = (json.dumps(found, sort_keys=True) + "\n").encode()
        write_new_file(paths.root / NAME, [data]).close()
    finally:
        held.close()
    return True


def _changes(found: dict[str, int] | None, member: str, number: int | None) -> bool:
    return found is not None and found.get(member) != number


def note_if_free(paths: SpoolPaths, member: str, number: int) -> None:
    """The same at once, or not at all: where the disk has no room for it, or somebody else has the
    lock, the note before counts, which keeps more. Whoever says where it is again and again notes
    it the next time; a client may wait for what it does meanwhile."""
    with suppress(SpoolFull, SpoolLocked):
        note(paths, member, number, patience_s=0.0)


def still(paths: SpoolPaths, what: str) -> File | None:
    """Until that is closed nobody changes an entry; None: somebody does at this moment."""
    try:
        return spool.lock(paths.standbys_lock, what)
    except SpoolLocked:
        return None


def _alone(paths: SpoolPaths, member: str, patience_s: float) -> File:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return spool.lock(paths.standbys_lock, f"standby {member}")
        except SpoolLocked:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_S)


def needed(paths: SpoolPaths, newest: int, files_max: int) -> int:
    """The first journal file that must stay for a standby; `newest` + 1 where none must. At most
    `files_max` stay after the newest."""
    found = load(paths)
    if found is None:
        return max(0, newest - files_max)
    behind = [number for number in found.values() if number >= newest - files_max]
    return min([*behind, newest + 1])
