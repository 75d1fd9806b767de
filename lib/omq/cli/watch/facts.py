"""All that is known of an instance at one moment without asking anybody: the index in shared
memory, the files in run/, the folders. Metrics, alarms and the console are made of it.

Invariants: 1. an instance that does not run, whose index is another version's, or whose
configuration is wrong gives facts too: `state` and `note` say how it is; 2. the cost of a look is
bounded by the size of the index: its entries are walked once, in pieces.

Errors: AccessDenied (who may not look).
"""

from __future__ import annotations

import os
import time
from collections import Counter as Count
from dataclasses import dataclass, field
from typing import Final

from omq.base import clock
from omq.base.errors import ConfigError, ManagerUnavailable, OmqError
from omq.base.paths import SpoolPaths
from omq.cli.look.cause import Causes, Severity
from omq.cli.look.finding_causes import find
from omq.cli.look.gateways import Gateway, gateways
from omq.cli.look.instance_causes import wrong_configuration
from omq.cli.look.service_status import Status, all_status
from omq.core.index.histograms import Journal, Spent, of_journal, of_queues
from omq.core.index.rows import QueueRow
from omq.core.look.look import Look, Source, look
from omq.core.look.space import Space, space
from omq.format.index import EntryState
from omq.services.daemon.options import Location
from omq.services.ship import shown
from omq.services.ship.shown import ShipState
from omq.services.standby import lease_file
from omq.services.standby.lag import Protected, StandbyState, protection, standbys
from omq.services.standby.lease_file import LeaseState
from omq.storage import archiver, disk_usage, recycled_containers
from omq.storage.disk_usage import NOTHING, Filled
from omq.storage.journal import file_name

LIVE: Final = "live"
ABSENT: Final = "absent"
STATES: Final = (LIVE, "hung", "segment", ABSENT)
"""Of the queue manager: it works; it does not move; it is dead and left its index; no index."""
WAITING: Final = (EntryState.READY, EntryState.DEFERRED, EntryState.HELD, EntryState.ACTIVE)


_REST: Final = 20  # times as long as a look at the folders took, its answer is given again
_looked: dict[str, tuple[float, Filled]] = {}
STILL: Final = frozenset(("no_reader", "group", "reader_stopped", "reader_silent", "selector",
                         "waits_for_others", "reader_idle", "in_doubt", "authority"))
"""Causes for which messages stand still on their queue."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue. `oldest_ns`: when its oldest message was put there, 0: it has none."""

    row: QueueRow
    readers: int
    oldest_ns: int
    spent: Spent | None = None  # None: it has handed out nothing
    stuck: bool = False  # something holds it up that nobody meant to
    put_off: int = 0  # deferred messages that a reader had, and deferred

    def oldest_s(self, now_ns: int) -> float:
        """The age of its oldest message."""
        return max(0.0, (now_ns - self.oldest_ns) / clock.NS_PER_S) if self.oldest_ns else 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """See the module. Without an index `counters` and `queues` are empty."""

    time_ns: int
    state: str  # of STATES
    note: str
    counters: dict[str, int]
    queues: tuple[QueueFacts, ...]
    messages_max: int  # that the index has room for
    space: Space
    services: tuple[Status, ...]
    gateways: tuple[Gateway, ...]
    archive_pending: int | None  # retired journal files that wait for omq-archive; None: unknown
    configured: bool  # the configuration can be read
    disk_bytes: int = 0  # size of the spool's file system; 0: unknown
    journal: Journal | None = None  # its histograms
    busy: frozenset[int] = frozenset()  # pids of readers with a message in their hands
    filled: Filled = NOTHING  # the parts of the spool, with their bytes
    archive_lag_s: float | None = None  # how long the first of the pending files waits
    causes: Causes = field(default_factory=Causes)
    standbys: tuple[StandbyState, ...] = ()
    protection: Protected | None = None  # None: nothing waits for standbys
    lease: LeaseState | None = None  # None: there is none
    shipping: ShipState | None = None  # None: it is not to be shipped
    resting: tuple[int, int] = (0, 0)  # containers for the next bodies: how many, their bytes

    @property
    def standby_lag_s(self) -> float | None:
        """Of the standby that is furthest behind; None: there is none, or nobody knows."""
        return max((each.lag_s for each in self.standbys if each.lag_s is not None), default=None)

    @property
    def standbys_away(self) -> int:
        """Those that do not follow."""
        return sum(not each.following for each in self.standbys)

    @property
    def standbys_differ(self) -> int:
        """Those whose configuration is not that of the primary."""
        return sum(bool(each.conf) for each in self.standbys)

    @property
    def unprotected(self) -> float | None:
        """1: fewer standbys answer than `standby_sync` wants, or it is not in force, or the lease
        is over; None: replies wait for nothing, and are to wait for nothing."""
        return None if self.protection is None else float(
            self.protection.state not in ("synced", "leased"))

    @property
    def lease_trouble(self) -> float | None:
        """1: this member could not take part in a failover; None: there is no lease."""
        return None if self.lease is None else float(bool(self.lease.trouble))

    @property
    def ship_lag_s(self) -> float | None:
        """For so long the oldest waits that no object store has; None: none is to have it, or
        nobody knows."""
        return None if self.shipping is None else self.shipping.waits_s

    @property
    def ship_trouble(self) -> float | None:
        """1: the journal is not shipped as it should be; None: it is not to be shipped."""
        return None if self.shipping is None else float(bool(self.shipping.trouble))

    @property
    def alive(self) -> bool:
        """Whether a queue manager works."""
        return self.state == LIVE

    @property
    def checkpoint_lag(self) -> int:
        """Frames that a restart would have to replay."""
        c = self.counters
        return max(0, c["last_lsn"] - c["checkpoint_lsn"]) if c else 0


def gather(location: Location) -> Facts:
    """Look now."""
    now_ns = clock.wall_ns()
    services, gates, wrong = _told(location)
    rest = (services, gates, _pending(location.paths), not wrong,
            _disk_bytes(str(location.paths.journal)))
    members, guard = standbys(location.paths), protection(
        location.paths, location.conf_dir)
    lease = lease_file.watched(location.paths, location.conf_dir)
    shipping = shown.watched(location.paths, location.conf_dir)
    parts, lag = sizes(location.paths), _lag(location.paths, now_ns)
    rest_now = recycled_containers.resting(location.paths)
    try:
        with look(location.paths, Source.SEGMENT) as seen:
            causes = find(location, seen, now_ns, services, gates, wrong)
            return Facts(now_ns, seen.origin.value, "; ".join(filter(None, (seen.note, wrong))),
                         seen.view.counters(), _queues(seen, causes), seen.view.message_slots,
                         seen.space, *rest, of_journal(seen.view.copies),
                         frozenset(each.pid for each in seen.view.readers() if each.active),
                         parts, lag, causes, members, guard, lease, shipping, rest_now)
    except ManagerUnavailable as error:
        note = "; ".join(filter(None, (str(error), wrong)))
        return Facts(now_ns, ABSENT, note, {}, (), 0, space(location.paths, None), *rest,
                     filled=parts, archive_lag_s=lag,
                     causes=find(location, None, now_ns, services, gates, wrong, str(error)),
                     standbys=members, protection=guard, lease=lease, shipping=shipping,
                     resting=rest_now)


def _queues(seen: Look, causes: Causes) -> tuple[QueueFacts, ...]:
    readers = Count(reader.queue for reader in seen.view.readers())
    oldest = seen.view.oldest(WAITING)
    spent = of_queues(seen.view.copies)
    put_off = seen.view.copies.put_off()
    return tuple(QueueFacts(row, readers[row.name], oldest.get(row.number, 0),
                            spent.get(row.number), any(
                                cause.severity is not Severity.NOTE and cause.code in STILL
                                for cause in causes.queues.get(row.name, ())),
                            put_off.get(row.number, 0))
                 for row in seen.view.queues())


def _told(location: Location) -> tuple[tuple[Status, ...], tuple[Gateway, ...], str]:
    """Services and gateways, and what is wrong with the configuration."""
    try:
        services, gates = tuple(all_status(location)), tuple(gateways(location))
    except ConfigError as error:
        return (), (), str(error)
    return services, gates, wrong_configuration(location)


def _pending(paths: SpoolPaths) -> int | None:
    try:
        return len(archiver.pending(paths))
    except OmqError:
        return None


def _lag(paths: SpoolPaths, now_ns: int) -> float | None:
    """Since when the first file waits; 0: none does. None: nobody knows."""
    try:
        waiting = archiver.pending(paths)
        if not waiting:
            return 0.0
        since = os.stat(paths.archive / file_name(waiting[0])).st_mtime_ns
    except (OmqError, OSError):
        return None
    return max(0.0, (now_ns - since) / clock.NS_PER_S)


def sizes(paths: SpoolPaths) -> Filled:
    """What the parts of the spool take. Who looks often does not walk often."""
    root, now = str(paths.root), time.monotonic()
    until, found = _looked.get(root, (0.0, NOTHING))
    if now >= until:
        found = disk_usage.filled(paths)
        took = time.monotonic() - now
        _looked[root] = (now + took * _REST, found)
    return found


def _disk_bytes(path: str) -> int:
    """The size of the file system, without what only root may use."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_frsize * (found.f_blocks - found.f_bfree + found.f_bavail)
