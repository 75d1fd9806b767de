"""Who may open what: the modes and groups of everything that omq makes, in one table.

    the service user   owns the spool; root and it alone read and write the files
    clients            one group: may connect and do what authority.conf says
    operators          one group: may look at the index; no body is there

Invariants: 1. no file of the spool is open to anybody but its owner, but for those of TABLE;
2. groups and others never get a right to write, but to connect to a socket; 3. the spool's own
directory is the administrator's to open: omq only takes rights away there. The umask of every
daemon is UMASK, so that a file that some library makes is the owner's alone as well.

The groups are named in omq.conf: omq.base.groups.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import Final

UMASK: Final = 0o077
FILE: Final = 0o600
DIRECTORY: Final = 0o700
PASSAGE: Final = 0o711
"""The spool and run/: anybody may pass, to what is open to him further in; nobody may list."""
PUBLIC: Final = 0o644
"""What the host tells everybody by itself: the uuid, which is in every message id; ids and
pids, which ipcs and ps list."""
SOCKET: Final = 0o660
"""Connecting to a socket needs the right to write. It has the clients' group."""
DROP: Final = 0o666
"""The socket at which any user of the host may hand in mail; drop_users says who is taken."""
WEB: Final = 0o666
"""The socket of the REST interface: the kernel says who asks, authority.conf what he may."""
INDEX: Final = 0o640
"""The index segment: with the operators' group; without one FILE."""
REQUESTS: Final = 0o600
"""The request queue, for the owner and root: clients ask over their connection (ADR 0020)."""
CHANNEL: Final = 0o600
"""Segment and semaphore of one client: they are given to its uid."""
SPECIAL_BITS: Final = 0o7000
GIVEN_OUT: Final = 0o1000
"""Set in the mode of a container whose path or descriptor was given out: its file is not used again
(storage.recycled_containers). On a file Linux gives the bit no meaning."""

TABLE: Final[dict[str, int]] = {
    ".": PASSAGE,
    "run": PASSAGE,
    "instance.json": PUBLIC,
    "run/qmgr.sock": SOCKET,
    "run/drop.sock": DROP,
    "run/web.sock": WEB,
    "run/*.json": PUBLIC,
    "run/*.pid": PUBLIC,
}
"""Paths in the spool that are not FILE or DIRECTORY; the first that fits counts."""


def wanted(relative: str, *, directory: bool) -> int:
    """The mode of a path of the spool (`.` is the spool itself)."""
    for pattern, mode in TABLE.items():
        if fnmatchcase(relative, pattern) and relative.count("/") == pattern.count("/"):
            return mode
    return DIRECTORY if directory else FILE


def publish(descriptor: int) -> None:
    """Let everybody read a file that has just been made. OSError."""
    os.fchmod(descriptor, PUBLIC)
