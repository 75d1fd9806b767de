"""Where omqdump's facts come from: the index of the queue manager, or the files alone.

    index              s T l, t q    attached read-only; a dead manager's is used too, and said so
    poolctrl           L             works with no manager
    pool files         t m           work with no manager

Nothing here asks the queue manager anything or writes in the spool. Errors: ManagerUnavailable,
SpoolMissing, SpoolOwner, NeedsRepair, Damaged, NewerFormat, DiskError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from omq.base import clock, config
from omq.base.errors import ConfigError, Damaged, NeedsRepair, NewerFormat
from omq.base.names import SPECIAL_QUEUES, escape
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.cli.common import Location
from omq.core.index_view import IndexView
from omq.core.item_refs import ItemRefs
from omq.core.pool_dump import pool_lines
from omq.core.text_dump import memory_lines
from omq.format import poolctrl
from omq.format.findings import Finding, Kind
from omq.storage import control
from omq.storage.pool import PoolFiles
from omq.storage.spool import open_spool


class Sources:
    """The facts of one instance. `note` takes what the operator should know beside the answer."""

    def __init__(self, location: Location, note: Callable[[str], None]) -> None:
        self.paths: SpoolPaths = location.paths
        self._conf_dir = location.conf_dir
        self._note = note

    @contextmanager
    def index(self) -> Iterator[IndexView]:
        """A look at the index, let go at the end."""
        with IndexView.attach(self.paths) as view:
            if not view.alive:
                self._note("the queue manager does not run; this is what its memory held")
            yield view

    def configured_queues(self) -> list[str]:
        """Names of the configured queues, sorted; the special ones are not among them."""
        found, findings = control.load(self.paths)
        if found is None:
            raise self._no_control(findings)
        names = (escape(name) for name in found.queues.values())
        return sorted(name for name in names if name not in SPECIAL_QUEUES)

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
        """The lines of `t q`."""
        period_s = self._settings().load_sample_period_s
        with self.index() as view:
            yield memory_lines(view, clock.wall_ns(), period_s)

    def _settings(self) -> Settings:
        try:
            return config.load_settings(self._conf_dir)
        except ConfigError as error:
            # The dump is for trouble: a broken conf must not be in its way.
            self._note(f"{error}; default settings are used")
            return Settings()

    @contextmanager
    def pool_text(self) -> Iterator[Iterator[str]]:
        """The lines of `t m`."""
        info = open_spool(self.paths.root)
        found, findings = control.load(self.paths)
        if found is None:
            for finding in findings:
                self._note(f"{finding}; queues are shown by number")
        pool = PoolFiles(self.paths, info.uuid, write=False)
        refs = ItemRefs(self.paths)
        try:
            queues = {} if found is None else found.queues
            yield pool_lines(pool, {number: escape(queues[number]) for number in queues}, refs)
        finally:
            pool.close()
            refs.close()
