"""Tables that an older omq-spark made: their events stay, everything else is computed anew.

Version 7 stored columns that follow from others (derived.py). Version 6 had columns named as words
of SQL (`left`, `end`), no waits without the sender's delay, and sketches that differed from run to
run. Version 5 forgot, of a message on two queues, what its
reader had done before it in an earlier batch, and the names that queues had then. Version 4 took
idel.server's frame for the end of a message with a large body, version 3 kept what it knew of the
answers as a whole, version 2 had no Delta tables, and answers in `gold`: their files stay known, no
batch counts, and the tables begin anew, without the versions of before. In the middle of a crash:
the manifest of before is there until the new tables are, so the next run does it again.

Version 1 knew its progress as a position ({"batch": N, "file": F}). Its bronze has the same
columns, so the manifest is made from it, and the run that follows tells every message anew. What a
head says and bronze does not (the LSN that a file follows) comes from the archive, as far as its
files are still there.
"""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from omq.base.errors import BadRequest
from omqtools.omqspark import parquet
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.manifest import VERSION, FileRecord, Manifest
from omqtools.omqspark.out_directory import CURRENT

TOLD_ANEW: Final = (2, 3, 4, 5, 6, 7)


def upgraded(lake: Lake) -> Manifest:
    """The manifest of OUT, made from version 1 if it is that. BadRequest: of a newer omq-spark."""
    data = lake.get(CURRENT)
    if data is None:
        return Manifest()
    found = json.loads(data)
    if found.get("version") in TOLD_ANEW:
        lake.forget()
        known = Manifest.decode(json.dumps(found | {"version": VERSION}).encode(), lake.out)
        known.batches.clear()
        return known
    if "version" in found or "file" not in found:
        return Manifest.decode(data, lake.out)
    events = parquet.load(lake.spark, [lake.path("bronze")], parquet.schema_of("events").add(
        "batch", IntegerType())).where(
        (F.col("batch") <= found["batch"]) & (F.col("file") >= 0))
    rows = events.groupBy("batch", "file").agg(
        F.max("epoch").alias("epoch"), F.min("lsn").alias("first"), F.max("lsn").alias("last"),
        F.count("lsn").alias("frames"), F.min("time_ns").alias("low"),
        F.max("time_ns").alias("high")).orderBy("file", "batch").collect()
    known = Manifest()
    for row in rows:
        if row["file"] in known.files:
            raise BadRequest(reason=f"{lake.out} has file {row['file']} twice; run without "
                                    "--incremental to rebuild the tables")
        known.files[row["file"]] = FileRecord(
            row["file"], row["batch"], row["epoch"] or 0, row["first"] or 0, row["last"] or 0,
            (row["first"] or 1) - 1, row["frames"], row["low"] or 0, row["low"] or 0,
            row["high"] or 0, 0, 0)
    return known
