"""Checkpoint: the pool is brought up to what redo has applied, then poolctrl says so.

Order, and the crash argument: 1. the changed records, through the double-write file, every pool
file that was dirtied synced (forgetting one is IBM's APAR IC86846); 2. the other poolctrl slot,
synced: from here on the journal before this LSN is not needed for records; 3. trailing free space
is cut. A cut between any two steps leaves the old poolctrl slot in force: redo starts at the older
LSN and finds records that are newer, which it skips by their own LSN.

Errors: DiskError (latched); SpoolFull before anything counts: take it again later.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.answers import bounded
from omq.core.redo import Redo
from omq.format.pool import RECORD_BYTES
from omq.format.poolctrl import ControlFlag, PoolControl
from omq.storage import control as poolctrl
from omq.storage.pool import PoolFiles


@dataclass(frozen=True, slots=True)
class CheckpointResult:
    """What a checkpoint cost."""

    lsn: int
    records: int
    bytes: int
    seconds: float


class Checkpointer:
    """Takes checkpoints of one pool. The caller holds the pool lock."""

    def __init__(self, pool: PoolFiles, redo: Redo, paths: SpoolPaths, uuid: bytes,
                 settings: Settings) -> None:
        self._pool = pool
        self._redo = redo
        self._paths = paths
        self._uuid = uuid
        self._settings = settings
        newest, _ = poolctrl.load(paths)
        self.generation = newest.generation if newest is not None else 0

    def take(self, epoch: int, journal_number: int, journal_offset: int, time_ns: int
             ) -> CheckpointResult:
        """Write everything that redo changed, then the checkpoint; see the module."""
        began = time.monotonic()
        redo = self._redo
        changes = redo.changes()
        self._pool.write(changes)
        self.generation += 1
        flags = int(ControlFlag.CLEAN) if redo.clean_stop else 0
        poolctrl.store(self._paths, PoolControl(
            self._uuid, self.generation, redo.lsn, epoch, journal_number, journal_offset,
            redo.next_qpool, time_ns, len(self._pool.files()), redo.queues,
            bounded(redo.clients, self._settings.dedupe_clients_max), flags))
        redo.checkpointed()
        for file in {file for (file, _), image in changes.items() if image is None}:
            self._pool.cut_tail(file)
        return CheckpointResult(redo.lsn, len(changes), len(changes) * RECORD_BYTES,
                                time.monotonic() - began)
