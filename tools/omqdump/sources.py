"""Where omqdump's facts come from: the index of the queue manager, or the files alone.

    index              s T l v g G f, t q    see core.look.look: living, hung, left over, files
    poolctrl           L                     works with no manager
    pool files         t m                   works with no manager

Nothing here asks the queue manager anything or writes in the spool. What was read from the files is
kept for the session while they do not change. Errors: ManagerUnavailable, SpoolMissing, SpoolOwner,
NeedsRepair, Damaged, NewerFormat, DiskError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from omq.base import clock, config
from omq.base.errors import ConfigError, Damaged, ManagerUnavailable, NeedsRepair, NewerFormat
from omq.base.names import SPECIAL_NAMES, escape
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.cli.common import Location
from omq.cli.progress import Reading
from omq.core.index.item_refs import ItemRefs
from omq.core.index.view import IndexView
from omq.core.look.look import Look, Origin, Source, look
from omq.core.look.pool_dump import pool_lines
from omq.core.look.space import UNKNOWN
from omq.core.look.text_dump import memory_lines
from omq.core.look.tombstone_text import left_over_lines
from omq.format import poolctrl
from omq.format.findings import Finding, Kind
from omq.storage import poolctrl as control
from omq.storage.pool import PoolFiles
from omq.storage.spool import open_spool

Signature = list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which source the user wants; `segment`: the id of a System V segment."""

    source: Source = Source.AUTO
    segment: int | None = None


class Sources:
    """The facts of one instance. `note` takes what the operator should know besides the answer."""

    def __init__(self, location: Location, note: Callable[[str], None],
                 choice: Choice | None = None) -> None:
        self.paths: SpoolPaths = location.paths
        self.origin = Origin.LIVING  # of the last look
        self.space = UNKNOWN  # then
        self._conf_dir = location.conf_dir
        self._choice = choice or Choice()
        self._note = note
        self._noted = ""
        self._uuid = b""
        self._files: Look | None = None
        self._signature: Signature = []

    @property
    def uuid(self) -> bytes:
        if not self._uuid:
            self._uuid = open_spool(self.paths.root).uuid
        return self._uuid

    def close(self) -> None:
        """Let go of what was kept for the session."""
        if self._files is not None:
            self._files.close()
            self._files = None

    @contextmanager
    def index(self) -> Iterator[IndexView]:
        """A look at the index, let go at the end."""
        seen = self._look()
        self.origin, self.space = seen.origin, seen.space
        if seen.note and seen.note != self._noted:
            self._note(seen.note)
        self._noted = seen.note
        try:
            yield seen.view
        finally:
            if seen is not self._files:
                seen.close()

    def _look(self) -> Look:
        if self._choice.source is not Source.FILES:
            try:
                return look(self.paths, Source.SEGMENT, self._choice.segment)
            except ManagerUnavailable:
                if self._choice.source is Source.SEGMENT or self._choice.segment is not None:
                    raise
        signature = self._look_at_files()
        if self._files is None or signature != self._signature:
            self.close()
            self._signature = signature
            reading = Reading("omqdump")
            self._files = look(self.paths, Source.FILES, progress=reading)
            reading.end()
        return self._files

    def _look_at_files(self) -> Signature:
        """Size and time of what the state is read from."""
        found = []
        for folder in (self.paths.journal, self.paths.msgpool):
            for path in sorted(folder.iterdir()) if folder.is_dir() else []:
                status = path.lstat()
                found.append((path.name, status.st_size, status.st_mtime_ns))
        return found

    def configured_queues(self) -> list[str]:
        """Names of the configured queues, sorted; the special ones are not among them."""
        found, findings = control.load(self.paths)
        if found is None:
            raise self._no_control(findings)
        names = (escape(name) for name in found.queues.values())
        return sorted(name for name in names if name not in SPECIAL_NAMES)

    def _no_control(self, findings: list[Finding]) -> Exception:
        path = self.paths.msgpool / control.NAME
        if any(finding.kind is Kind.NEWER for finding in findings):
            return NewerFormat(file=path, version="newer", known=poolctrl.VERSION)
        for finding in findings:
            if finding.kind is not Kind.END:
                return Damaged(file=path, offset=finding.offset, reason=finding.reason)
        return NeedsRepair(path=path, reason="no checkpoint was written yet",
                           command="omrc --embedded, once")

    @contextmanager
    def memory_text(self) -> Iterator[Iterator[str]]:
        """The lines of `t q`; of a left-over segment, with the head of a tombstone."""
        period_s = self.settings().load_sample_period_s
        with self.index() as view:
            lines = memory_lines(view, clock.wall_ns(), period_s)
            if self.origin is Origin.LEFT_OVER and view.header is not None:
                counters = dict(view.counters())
                lines = chain(left_over_lines(view.header.pid, counters["heartbeat"], counters),
                              lines)
            yield lines

    def settings(self) -> Settings:
        """omq.conf; a broken one is not in the way of looking."""
        try:
            return config.load_settings(self._conf_dir)
        except ConfigError as error:
            self._note(f"{error}; default settings are used")
            return Settings()

    @contextmanager
    def pool_text(self) -> Iterator[Iterator[str]]:
        """The lines of `t m`."""
        found, findings = control.load(self.paths)
        if found is None:
            for finding in findings:
                self._note(f"{finding}; queues are shown by number")
        pool = PoolFiles(self.paths, self.uuid, write=False)
        refs = ItemRefs(self.paths)
        try:
            queues = {} if found is None else found.queues
            yield pool_lines(pool, {number: escape(queues[number]) for number in queues}, refs)
        finally:
            pool.close()
            refs.close()
