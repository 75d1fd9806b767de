"""Checkpoint: the pool is brought up to what redo has applied, then poolctrl says so.

Order, and the crash argument: 1. the changed records, in batches that are written all or nothing
(core.redo.pool_batches says in which order), every pool file that was dirtied synced (forgetting
one is IBM's APAR IC86846); 2. the other poolctrl slot, with what each pool file holds now, synced:
from here on the journal before this LSN is not needed for records; 3. free space at the end of pool
files is cut: what is all zero IN THE POOL, never what an index believes to be free, for the index
may be ahead of the disk. A zero slot and one after the end of the file read the same, so step 3
may be cut or left out.

A cut in step 1, or before 2 is durable, leaves the old poolctrl slot in force: redo starts at the
older LSN and finds records that are newer, which it skips by their own LSN.

Needs the pool lock and nothing else: the manager's recovery uses it with nothing running.
Errors: DiskError (latched); SpoolFull before anything counts: nothing is forgotten, take it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.redo.last_requests import bounded
from omq.core.redo.pool_batches import batches
from omq.core.redo.redo import Redo
from omq.format.pool import RECORD_BYTES
from omq.format.poolctrl import ControlFlag, PoolControl
from omq.storage import poolctrl
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
                 settings: Settings, progress: Callable[[], None] = lambda: None) -> None:
        """`progress` is called between batches: a large checkpoint takes seconds."""
        self._pool = pool
        self._redo = redo
        self._paths = paths
        self._uuid = uuid
        self._settings = settings
        self._progress = progress
        newest, _ = poolctrl.load(paths)
        self.generation = newest.generation if newest is not None else 0

    def take(self, epoch: int, journal_number: int, journal_offset: int, time_ns: int
             ) -> CheckpointResult:
        """Write everything that redo changed, then the checkpoint; see the module. The journal goes
        on at `journal_offset` of file `journal_number` behind what was applied."""
        began = time.monotonic()
        redo = self._redo
        redo.settled = False  # from here on the pool may hold more than the checkpoint says
        generation = max(self.generation + 1, self._pool.checkpoint)
        self._pool.checkpoint = generation
        records, freed = self._write_batches()
        redo.clients = bounded(redo.clients, self._settings.dedupe_clients_max)
        flags = int(ControlFlag.CLEAN) if redo.clean_stop else 0
        poolctrl.store(self._paths, PoolControl(
            self._uuid, generation, redo.lsn, epoch, journal_number, journal_offset,
            redo.next_qpool, time_ns, len(self._pool.files()), redo.queues, redo.clients, flags,
            self._pool.contents(), redo.definitions))
        self.generation = generation
        redo.checkpointed()
        for file in sorted(freed):
            self._pool.cut_tail(file)
        return CheckpointResult(redo.lsn, records, records * RECORD_BYTES,
                                time.monotonic() - began)

    def _write_batches(self) -> tuple[int, set[int]]:
        """How many records were written, and in which pool files slots may be free."""
        records = 0
        freed = {slot >> 32 for slot in self._redo.clears}
        for batch in batches(self._redo):
            self._pool.write_images(batch)
            records += len(batch)
            self._progress()
        return records, freed


def settle_changes(paths: SpoolPaths, pool: PoolFiles,
                   changes: Mapping[tuple[int, int], bytes | None]) -> None:
    """Write records outside of a checkpoint (a repair, a record that counts no more), and let
    poolctrl know what the files hold then. Behind `pool.recover_double_write`; changes nothing else
    that poolctrl says, and nothing at all where there are no changes."""
    control, _ = poolctrl.load(paths)
    if not changes or control is None:
        pool.write(changes)
        return
    pool.checkpoint = max(control.generation + 1, pool.checkpoint)
    pool.write(changes)
    poolctrl.store(paths, replace(control, generation=pool.checkpoint, contents=pool.contents()))
    pool.checkpoint += 1
