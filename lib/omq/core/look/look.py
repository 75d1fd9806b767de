"""Look at an instance: the index of a manager, living or dead, or one made from the files.

    living     the segment of a manager that runs            hung       it has not moved for a while
    left over  the segment of a manager that died            files      core.load.offline_index

Looking asks the manager nothing, takes no lock and changes nothing. Chosen by default:
the segment, whoever left it, else the files. A tool tells its user which it was (`note`).

Errors: ManagerUnavailable (a segment was asked for and there is none), SpoolMissing, SpoolOwner,
Damaged, NewerFormat, DiskError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from omq.base import clock
from omq.base.amounts import duration
from omq.base.errors import ManagerUnavailable
from omq.base.paths import SpoolPaths
from omq.core.index.view import IndexView
from omq.core.look.space import UNKNOWN, Space, space
from omq.format.findings import Finding
from omq.format.index import IndexFlag

if TYPE_CHECKING:
    from omq.core.load.offline_index import OfflineIndex, Told

HUNG_AFTER_S: Final = 20
"""A manager with nothing to do still takes a load sample every few seconds, and says so."""


class Origin(Enum):
    """Where the figures come from."""

    LIVING = "live"
    HUNG = "hung"
    LEFT_OVER = "segment"
    FILES = "files"


class Source(Enum):
    """What the user asks for."""

    AUTO = "auto"
    SEGMENT = "segment"
    FILES = "files"


@dataclass(slots=True)
class Look:
    """A view with its origin. A context manager; `close` lets go of the segment."""

    view: IndexView
    origin: Origin
    note: str = ""  # what the user should know; empty for a manager that works
    space: Space = UNKNOWN
    findings: list[Finding] = field(default_factory=list)  # damage that was met in the files
    files: OfflineIndex | None = None

    def close(self) -> None:
        self.view.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def look(paths: SpoolPaths, source: Source = Source.AUTO, segment: int | None = None,
         progress: Told = lambda done: None) -> Look:
    """See the module. `segment`: the id of a System V segment, instead of the one that the last
    manager published. `progress`: see read_files."""
    if source is not Source.FILES:
        try:
            return _segment(paths, IndexView.attach(paths, segment))
        except ManagerUnavailable:
            if source is Source.SEGMENT or segment is not None:
                raise
    return _files(paths, progress)


def _segment(paths: SpoolPaths, view: IndexView) -> Look:
    if not view.alive:
        return Look(view, Origin.LEFT_OVER,
                    "the queue manager does not run; this is what its memory held")
    origin, note = Origin.LIVING, ""
    header = view.header
    state = clock.process_state(header.pid) if header is not None else ""
    counters = view.counters()
    still_s = still_ns(counters) // clock.NS_PER_S
    if header is not None and state in clock.STOPPED:
        origin, note = Origin.HUNG, f"the queue manager (pid {header.pid}) is stopped by a signal"
    elif header is not None and counters["heartbeat"] > 0 and still_s > HUNG_AFTER_S:
        origin = Origin.HUNG
        note = f"the queue manager (pid {header.pid}) has not moved for {duration(still_s)}"
    elif header is not None and header.flags & IndexFlag.POOL_NOT_READ:
        note = "the messages of the pool were not read at the start (option 't m' shows them)"
    found = space(paths, view)
    return Look(view, origin, "; ".join(filter(None, (note, found.note))), found)


def still_ns(counters: dict[str, int]) -> int:
    """How long the manager has not moved: by the clock that nobody sets, if it is one with ours
    (a container may have a time namespace of its own) and the manager tells it."""
    if counters["boot_beat"] and counters["time_namespace"] == clock.time_namespace():
        return clock.monotonic_ns() - counters["boot_beat"]
    return clock.wall_ns() - counters["heartbeat"]


def _files(paths: SpoolPaths, progress: Told) -> Look:
    from omq.core.load.offline_index import read_files  # a living index needs none of it

    found = read_files(paths, clock.wall_ns(), progress)
    note = f"read from the files, up to LSN {found.lsn}; there is no segment to look at"
    if found.moved:
        note += "; they changed meanwhile"
    if found.findings:
        note += (f"; {len(found.findings)} places are damaged, the first: {found.findings[0]} "
                 "(option 't m', omqcheck)")
    return Look(IndexView.of(found.tables, paths), Origin.FILES, note, space(paths, None),
                found.findings, found)
