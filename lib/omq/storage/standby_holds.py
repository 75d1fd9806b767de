"""`standbys.json`: which journal files the standbys of this primary still need.

    {"b": 12}       member -> number of the journal file in which it goes on

Written when a standby comes to another file, read by pool.writer before it retires one. It is part
of the spool and not of run/: after a reboot of the primary a standby that was away still finds what
it lacks. A member that is more than `standby_files_kept` files behind holds nothing any more, and
needs a new base.

In the middle of a crash: the file before, or the new one. An old one keeps more than is needed.

Errors: DiskError, SpoolFull of `note`. A file that is none counts as one that holds everything:
nothing goes that a standby may need.
"""

from __future__ import annotations

import json
from typing import Final

from omq.base.paths import SpoolPaths
from omq.storage.files import read_file, write_new_file

NAME: Final = "standbys.json"
_BYTES_MAX: Final = 65536
STANDBYS_MAX: Final = 16


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


def note(paths: SpoolPaths, member: str, number: int | None) -> bool:
    """The member goes on in that file; None: it is no standby any more. False: as it was."""
    found = load(paths) or {}
    if found.get(member) == number:
        return False
    if number is None:
        del found[member]
    else:
        found[member] = number
    write_new_file(paths.root / NAME, [(json.dumps(found, sort_keys=True) + "\n").encode()]).close()
    return True


def needed(paths: SpoolPaths, newest: int, files_max: int) -> int:
    """The first journal file that must stay for a standby; `newest` + 1 where none must. At most
    `files_max` stay behind the newest."""
    found = load(paths)
    if found is None:
        return max(0, newest - files_max)
    behind = [number for number in found.values() if number >= newest - files_max]
    return min([*behind, newest + 1])
