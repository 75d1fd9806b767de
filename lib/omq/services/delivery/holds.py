"""Which peers and channels an operator holds: nothing is sent there until they are released.

SERVICE.held.json in the spool, a list of names, written by `omq peers`, read when its time has
changed: one system call a message. It is part of the spool and not of run/, so that what is held
stays held over a reboot.

A list that is damaged, or that cannot be read by a process that has not read it before, releases
nobody: until it can be used, all are held, and `unknown` says why. One that is not there holds
nobody.

In the middle of a crash: the old list or the new one is there, whole, and the new one is on the
disk when `change` returns.

Errors: of writing SpoolFull, DiskError; HoldsUnknown of `change` where there is a list that cannot
be used: what it held would be lost.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from omq.base import side_files
from omq.base.errors import HoldsUnknown
from omq.services.delivery.mlist import Cause, Wait
from omq.storage import durable
from omq.storage.files import create_file

HELD_S: Final = 300.0
"""What is held is looked at again then, at the latest: a release calls it back at once."""


class Holds:
    """The file, as far as it is known. Of the last look, empty if it is known: `unknown`: why it is
    not; `denied`: the same where this process may not read it, which says nothing of the service's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None
        self._names: frozenset[str] | None = None
        self.unknown = self.denied = ""

    @property
    def state(self) -> tuple[frozenset[str], str]:
        """`names` and `unknown`, of one look."""
        names = self.names
        return names, self.unknown

    @property
    def names(self) -> frozenset[str]:
        """Peers and channels that are held, as far as it is known. While the file cannot be looked
        at, those that were: a sick disk sends nothing that an operator holds."""
        try:
            found = side_files.calls.stat(str(self.path))
            seen = found.st_ino, found.st_mtime_ns
            if seen != self._seen:
                self._names = _decoded(side_files.calls.read(str(self.path), -1))
                self._seen, self.unknown, self.denied = seen, "", ""
        except FileNotFoundError:
            self._seen, self._names, self.unknown, self.denied = None, frozenset(), "", ""
        except OSError as error:
            side_files.unseen(self.path, error)
            why = error.strerror or str(error) if self._names is None else ""
            denied = isinstance(error, PermissionError)
            self.unknown, self.denied = ("", why) if denied else (why, "")
        except (ValueError, RecursionError) as error:
            self._seen, self._names, self.denied = seen, None, ""
            self.unknown = f"it is not a list of names: {error}"
        return self._names or frozenset()

    def of(self, channel: str, peer: str) -> Wait | None:
        """Whether this is held."""
        names = self.names
        if why := self.unknown or self.denied:
            return Wait(HELD_S, f"whom an operator holds is not known: {why}", Cause.HELD)
        if names and (channel in names or peer in names):
            return Wait(HELD_S, f"an operator holds {peer if peer in names else channel}",
                        Cause.HELD)
        return None

    def change(self, add: frozenset[str] = frozenset(), remove: frozenset[str] = frozenset()
               ) -> None:
        """Hold these, release those."""
        before, unknown = self.state
        if unknown:
            raise HoldsUnknown(path=self.path, reason=unknown)
        names = sorted((before | add) - remove)
        new = self.path.with_suffix(".new")
        file = create_file(new, replace=True)
        try:
            file.write([(json.dumps(names) + "\n").encode("ascii")], 0, new=True)
            if os.geteuid() == 0:  # the service reads it, whoever root is
                owner = os.stat(self.path.parent)
                os.fchown(file.fd, owner.st_uid, owner.st_gid)
            file.sync_all(new=True)
            durable.rename(new, self.path, new=True)
        finally:
            file.close()


def _decoded(data: bytes) -> frozenset[str]:
    found = json.loads(data)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError("something else is in it")
    return frozenset(found)
