"""Which peers and channels an operator holds: nothing is sent there until they are released.

SERVICE.held.json in the spool, a list of names, written by `omq peers`, read when its time has
changed: one system call a message. It is part of the spool and not of run/, so that what is held
stays held over a reboot.

In the middle of a crash: the old list or the new one is there, whole, and the new one is on the
disk when `change` returns.

Errors: of writing SpoolFull, DiskError; a file that is none counts as empty.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from omq.base import side_files
from omq.services.delivery.mlist import Cause, Wait
from omq.storage import durable
from omq.storage.files import create_file

HELD_S: Final = 300.0
"""What is held is looked at again then, at the latest: a release calls it back at once."""


class Holds:
    """The file, as far as it is known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._names: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Peers and channels that are held. While the file cannot be looked at, those that were:
        a sick disk sends nothing that an operator holds."""
        try:
            found = side_files.calls.stat(str(self._path))
            seen = found.st_ino, found.st_mtime_ns
            if seen != self._seen:
                self._names = _decoded(side_files.calls.read(str(self._path), -1))
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._names = None, frozenset()
        except OSError as error:
            side_files.unseen(self._path, error)
        return self._names

    def of(self, channel: str, peer: str) -> Wait | None:
        """Whether this is held."""
        names = self.names
        if names and (channel in names or peer in names):
            return Wait(HELD_S, f"an operator holds {peer if peer in names else channel}",
                        Cause.HELD)
        return None

    def change(self, add: frozenset[str] = frozenset(), remove: frozenset[str] = frozenset()
               ) -> None:
        """Hold these, release those."""
        names = sorted((self.names | add) - remove)
        new = self._path.with_suffix(".new")
        file = create_file(new, replace=True)
        try:
            file.write([(json.dumps(names) + "\n").encode("ascii")], 0, new=True)
            if os.geteuid() == 0:  # the service reads it, whoever root is
                owner = os.stat(self._path.parent)
                os.fchown(file.fd, owner.st_uid, owner.st_gid)
            file.sync_all(new=True)
            durable.rename(new, self._path, new=True)
        finally:
            file.close()


def _decoded(data: bytes) -> frozenset[str]:
    try:
        found = json.loads(data)
        return frozenset(map(str, found)) if isinstance(found, list) else frozenset()
    except (ValueError, RecursionError):
        return frozenset()
