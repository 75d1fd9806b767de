"""QPoolIds on their way from this process to whatever engine judges with them: files in OUT/beside.

A pool has as many messages as its queues hold; eight bytes of each in the driver, and once more in
the JVM, were all that an audit had to have at once. Now the driver has GROUP of them, and the
engine reads the files where it works.

    OUT/beside/NAME/part-00000.parquet     of one audit, whose name is its own: two may run at once

In the middle of a crash: what a killed audit left is in nobody's way, and goes when the next one
begins that is a day younger.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from omq.base.arrays import Vector
from omqtools.omqspark import plan
from omqtools.omqspark.encodings import DELTA
from omqtools.omqspark.out_directory import BESIDE, Out

GROUP: Final = 1 << 20
"""QPoolIds that are held until they are written."""
LEFT_S: Final = 86_400
SCHEMA: Final = pa.schema([("qpool", pa.int64())])


class Ids:
    """What is written by calls with some of them; `where`: the folder of its file."""

    def __init__(self, where: str) -> None:
        self.where = where
        fs, path = plan.filesystem(where)
        fs.create_dir(path)
        self._writer = pq.ParquetWriter(
            f"{path}/part-00000.parquet", SCHEMA, filesystem=fs, compression="zstd",
            use_dictionary=False, column_encoding={"qpool": DELTA})
        self._held: list[Vector] = []
        self._count = 0

    def __call__(self, ids: Vector) -> None:
        self._held.append(ids)
        self._count += len(ids)
        if self._count >= GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            rows = pa.array(np.concatenate(self._held), pa.int64())
            self._writer.write_table(pa.Table.from_arrays([rows], schema=SCHEMA), GROUP)
        self._held, self._count = [], 0

    def close(self) -> None:
        """From now on the file can be read."""
        self._flush()
        self._writer.close()


def swept(lake: Out) -> None:
    """What killed audits left and nobody has gone on with for a day goes."""
    fs, path = plan.filesystem(lake.path(BESIDE))
    for info in fs.get_file_info(pafs.FileSelector(path, allow_not_found=True)):
        if info.mtime is not None and info.mtime.timestamp() < time.time() - LEFT_S:
            fs.delete_dir(info.path)


@contextmanager
def ids(lake: Out) -> Iterator[Ids]:
    """A place for them, which is gone after it."""
    swept(lake)
    fs, _ = plan.filesystem(lake.path(BESIDE))
    kept = Ids(f"{lake.path(BESIDE)}/{uuid.uuid4().hex}")
    try:
        yield kept
    finally:
        try:
            kept.close()
        finally:
            fs.delete_dir(plan.filesystem(kept.where)[1])
