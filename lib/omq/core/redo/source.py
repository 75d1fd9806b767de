"""The pool as redo reads it: one record, or many at once."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from omq.base.arrays import Rows
from omq.format.findings import Finding
from omq.format.pool import Message
from omq.storage.pool_scan import DTYPE


class RecordSource(Protocol):
    """What redo needs of storage.pool.PoolFiles."""

    def read_record(self, file: int, record: int) -> Message | Finding | None:
        """The message whose first record is in this slot."""

    def read_rows(self, file: int, records: Rows) -> tuple[Rows, Rows]:
        """The records in these slots (ascending) as rows of pool_scan.DTYPE; mask of those that are
        valid first records of messages. A row of zeros is a free slot, the others say nothing."""


class NoPool:
    """Redo over nothing: what the journal alone says."""

    def read_record(self, file: int, record: int) -> Message | Finding | None:
        del file, record
        return None

    def read_rows(self, file: int, records: Rows) -> tuple[Rows, Rows]:
        del file
        return np.zeros(len(records), dtype=DTYPE), np.zeros(len(records), dtype=bool)
