"""What an analysis needs of a spool's archive stays while it runs: holds of storage.holds.

`while_it_runs` is for a command: everything there is, until it ends. `keep` is for a stream: from
the file that it reads next; the hold moves with each commit, and ends with the process of the
stream's reader. An archive that is not a spool's own (a copy, an object store) has nobody who
removes anything; who may not write it goes on without, and a file that goes is ArchivePruned, never
a silent gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from omq.base.errors import DiskError, SpoolFull, SpoolLocked
from omq.base.paths import SpoolPaths
from omq.storage import history, holds
from omq.storage.files import File

NAME: Final = "omq-spark"
_held: dict[str, tuple[int, File]] = {}  # of this process; never sent to workers


def spool_of(archive: str) -> SpoolPaths | None:
    """The spool that this archive belongs to."""
    path = Path(archive.removeprefix("file://"))
    paths = SpoolPaths(path.parent)
    return paths if path.name == paths.archive.name and paths.uuid.is_file() else None


@contextmanager
def while_it_runs(archive: str | None) -> Iterator[None]:
    """See the module."""
    paths = spool_of(archive) if archive else None
    if paths is None:
        yield
        return
    with history.held(paths, NAME):
        yield


def keep(paths: SpoolPaths | None, stream: str, first: int) -> None:
    """From this file number on, for a stream of this name."""
    if paths is None or (stream in _held and _held[stream][0] == first):
        return
    if not holds.may_hold(paths):
        return
    name = holds.reader_name(f"{NAME}-{stream}")
    with suppress(DiskError, SpoolFull, SpoolLocked):
        with history.changing(paths, name, history.HOLD_WAIT_S):
            made = holds.make(paths, holds.Hold(name, first, "a stream of omq-spark", lives=True))
        before = _held.pop(stream, None)
        _held[stream] = first, made
        if before is not None:
            before[1].close()
