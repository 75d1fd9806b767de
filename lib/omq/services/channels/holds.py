"""Which peers and channels an operator holds: nothing is sent there until they are released.

run/SERVICE.held.json, written by `omq peers`, read when its time has changed: one system call a
message. It outlives restarts of the service; a reboot may empty run/.

Errors: OSError of writing; a file that is none counts as empty.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from omq.base import side_files
from omq.services.channels.service import Wait

HELD_S: Final = 300.0
"""What is held is looked at again then; a release makes it ready at once."""


class Holds:
    """The file, as far as it is known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._names: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Peers and channels that are held."""
        try:
            found = os.stat(self._path)
            seen = found.st_ino, found.st_mtime_ns
        except OSError:
            self._seen, self._names = None, frozenset()
            return self._names
        if seen != self._seen:
            self._seen, self._names = seen, _decoded(self._path)
        return self._names

    def of(self, channel: str, peer: str) -> Wait | None:
        """Whether this is held."""
        names = self.names
        if names and (channel in names or peer in names):
            return Wait(HELD_S, f"an operator holds {peer if peer in names else channel}")
        return None

    def change(self, add: frozenset[str] = frozenset(), remove: frozenset[str] = frozenset()
               ) -> bool:
        """Hold these, release those. False: the file could not be written now."""
        names = sorted((self.names | add) - remove)
        return side_files.replace(self._path, (json.dumps(names) + "\n").encode("ascii"))


def _decoded(path: Path) -> frozenset[str]:
    try:
        found = json.loads(path.read_bytes())
        return frozenset(map(str, found)) if isinstance(found, list) else frozenset()
    except (OSError, ValueError, RecursionError):
        return frozenset()
