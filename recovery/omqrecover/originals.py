"""Originals: a copy of every file before a repair changes it, and the home of what is moved away.

    quarantine/repair-NAME/plan             the plan; it is there as soon as a repair has begun
    quarantine/repair-NAME/copy-DIR-FILE    the file as it was, complete
    quarantine/repair-NAME/moved-DIR-FILE   the file itself
    quarantine/repair-NAME/done             the repair is complete

Invariants: 1. a copy appears by rename, complete and synced, before the first change of its file;
2. a copy that is there is never made again, so it stays the original, however often a repair is
killed and run again; 3. what was
moved away is moved once: something new under the old name is the repair's own.

Errors: DiskError; SpoolFull before anything of the file was changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from omq.base.paths import SpoolPaths
from omq.storage import durable
from omq.storage.files import TEMPORARY, create_file, open_file, read_salvaged, write_new_file

_CHUNK: Final = 4 << 20
_SECTOR: Final = 512
_PLAN, _DONE = "plan", "done"


class Originals:
    """The folder of one repair."""

    def __init__(self, paths: SpoolPaths, name: str) -> None:
        self.folder = paths.quarantine / f"repair-{name}"
        self._root = paths.root

    @property
    def begun(self) -> bool:
        return durable.status(self.folder / _PLAN) is not None

    @property
    def done(self) -> bool:
        return durable.status(self.folder / _DONE) is not None

    def begin(self, plan: bytes) -> None:
        """From here on the repair counts as begun."""
        durable.make_directory(self.folder.parent)
        durable.make_directory(self.folder)
        if not self.begun:
            write_new_file(self.folder / _PLAN, [plan]).close()

    def finish(self, text: str) -> None:
        write_new_file(self.folder / _DONE, [text.encode()]).close()

    def keep(self, path: Path) -> None:
        """Copy a file that is about to be changed; nothing when it is not there."""
        target = self._home("copy", path)
        if durable.status(path) is None or durable.status(target) is not None:
            return
        copy_file(path, target)

    def set_aside(self, path: Path) -> bool:
        """Move whatever has this name; False when it is moved already."""
        target = self._home("moved", path)
        if durable.status(path) is None or durable.status(target) is not None:
            return False
        durable.rename(path, target)
        return True

    def _home(self, what: str, path: Path) -> Path:
        return self.folder / "-".join((what, *path.relative_to(self._root).parts))


def copy_file(path: Path, target: Path) -> None:
    """A complete, synced copy that appears by rename; sectors that cannot be read come as damage.
    FileNotFoundError, DiskError, SpoolFull."""
    source = open_file(path)
    try:
        copy = create_file(target.with_name(target.name + TEMPORARY), replace=True)
        try:
            size = source.size()
            for at in range(0, size, _CHUNK):
                part = read_salvaged(source, min(_CHUNK, size - at), at, _SECTOR)
                copy.write([part], at, new=True)
            copy.sync_all(new=True)
        finally:
            copy.close()
        durable.rename(copy.path, target, new=True)
    finally:
        source.close()
