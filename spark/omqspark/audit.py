"""The audit: is every message accounted for, in order, once, and is the archive itself whole?

    crc, torn, cut, newer   damage of archive files, as found while reading (bronze `bad`)
    missing_file   a number between the first and the last file is not there
    gap            LSNs are missing inside a file or between two that follow each other
    lost           persistent, put, without an end, and not in the pool that was given
    duplicated     two PUTs, or two ends, of one QPoolId
    resurrected    a frame of a message behind its end
    out_of_order   handed out for the first time after a later one of the same queue, priority and
                   producer; not judged where the message was put off, held, delayed, or a manager
                   was started in between
    attempts       more attempts than the limit

Damage, a missing file or a gap may be the cause of other findings: a message whose end stood there
is called lost. `uncertain` then says so, of the verdict as a whole: look at the damage first.
Without --pool open messages are no findings.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from omq.base.errors import MixedArchives, NoArchive
from omq.base.paths import SpoolPaths
from omq.format.archive import ArchiveHeader
from omq.format.pool import FILE_HEADER as POOL_HEADER
from omq.storage.files import open_file
from omq.storage.pool import PoolFiles
from omqspark import plan
from omqspark.pipeline import Lake, all_messages, all_stays

KINDS: Final = ("crc", "missing_file", "gap", "lost", "duplicated", "resurrected", "out_of_order",
                "attempts")
EXAMPLES_MAX: Final = 100
ATTEMPTS_MAX: Final = 3
Finding = dict[str, Any]


def pool_messages(spool: Path, uuid: bytes) -> set[int]:
    """QPoolIds of the messages in a pool. MixedArchives for another instance's, NoArchive."""
    paths = SpoolPaths(spool)
    pool = PoolFiles(paths, uuid, write=False)
    found: set[int] = set()
    if not paths.msgpool.is_dir():
        raise NoArchive(path=paths.msgpool)
    try:
        for number in pool.files():
            file = open_file(paths.msgpool / f"{number}QP")
            try:
                head = POOL_HEADER.as_dict(file.read(POOL_HEADER.size, 0).ljust(64, b"\0"))
            finally:
                file.close()
            if head["uuid"] != uuid:
                raise MixedArchives(file=file.path, uuid=head["uuid"].hex(), expected=uuid.hex())
            for chunk in pool.scan(number):
                found |= set(chunk.records["qpool"][chunk.live].tolist())
    finally:
        pool.close()
    return found


def file_findings(heads: Iterable[tuple[plan.Listed, ArchiveHeader | Any]]) -> list[Finding]:
    """Missing numbers, and LSNs that are missing between files."""
    out: list[Finding] = []
    before: ArchiveHeader | None = None
    last = 0
    for item, header in heads:
        for number in range(last + 1, item.number) if last else ():
            out.append({"kind": "missing_file", "file": number})
        last = item.number
        if not isinstance(header, ArchiveHeader):
            before = None
            continue
        if before is not None and header.follows_lsn > before.last_lsn:
            out.append({"kind": "gap", "lsn": before.last_lsn + 1, "file": item.number,
                        "count": header.follows_lsn - before.last_lsn})
        if header.frames:
            before = header
    return out


def block_gaps(blocks: DataFrame) -> list[Finding]:
    """LSNs missing inside files: one row a block is compared with the one before it."""
    order = Window.partitionBy("file").orderBy("block")
    found = blocks.where("bad IS NULL").withColumn("before", F.lag("last_lsn").over(order)).where(
        "before IS NOT NULL AND first_lsn > before + 1 OR last_lsn - first_lsn + 1 > count")
    return [{"kind": "gap", "file": row["file"], "lsn": row["first_lsn"], "count": 0}
            for row in found.limit(EXAMPLES_MAX).collect()]


def damage(bronze: DataFrame) -> list[Finding]:
    """Everything that was read as damaged; a missing number is told by file_findings."""
    rows = bronze.where("bad IS NOT NULL AND file >= 0").select("file", "bad").distinct()
    return [{"kind": "crc", "file": row["file"], "detail": row["bad"]}
            for row in rows.limit(EXAMPLES_MAX).collect()]


def message_findings(messages: DataFrame, attempts_max: int) -> DataFrame:
    """duplicated, resurrected, attempts: rows (kind, qpool, lsn)."""
    by_id = messages.groupBy("qpool").agg(
        F.sum("puts").alias("puts"), F.sum("ends").alias("ends"),
        F.min("end_lsn").alias("end_lsn"), F.max("last_lsn").alias("last_lsn"),
        F.max("attempts_max").alias("attempts_max"))
    checks = {
        "duplicated": (F.col("puts") > 1) | (F.col("ends") > 1),
        "resurrected": (F.col("last_lsn") > F.col("end_lsn")) & (F.col("puts") <= 1)
        & (F.col("ends") <= 1),
        "attempts": F.col("attempts_max") > attempts_max}
    parts = F.array(*(F.when(test, F.lit(kind)) for kind, test in checks.items()))
    return (by_id.withColumn("kind", F.explode(parts)).where("kind IS NOT NULL")
            .select("kind", "qpool", F.col("last_lsn").alias("lsn")))


def out_of_order(stays: DataFrame, messages: DataFrame) -> DataFrame:
    """First hand-outs that came after a later arrival's: rows (kind, qpool, lsn)."""
    lines = stays.join(messages.select("qpool", "producer_pid"), "qpool").where(
        "given_lsn IS NOT NULL AND put_off = 0 AND until_s = 0 AND queue != 2 "
        "AND first_epoch = given_epoch AND producer_pid IS NOT NULL AND gives = 1")
    before = Window.partitionBy("queue", "priority", "producer_pid").orderBy("given_lsn"
        ).rowsBetween(Window.unboundedPreceding, -1)  # fmt: skip
    return (lines.withColumn("latest", F.max("arrived_lsn").over(before))
            .where("arrived_lsn < latest")
            .select(F.lit("out_of_order").alias("kind"), "qpool", F.col("given_lsn").alias("lsn")))


def lost(messages: DataFrame, pool: set[int]) -> DataFrame:
    """Persistent, put, no end, not in the pool."""
    spark = messages.sparkSession
    there = spark.createDataFrame(
        [(int(q),) for q in np.array(sorted(pool), dtype="<i8").tolist()], "qpool bigint")
    return (messages.where("puts > 0 AND ends = 0 AND persistent").join(there, "qpool", "left_anti")
            .select(F.lit("lost").alias("kind"), "qpool", F.col("last_lsn").alias("lsn")))


def audit(lake: Lake, archive: str, *, pool: Path | None, attempts_max: int = ATTEMPTS_MAX
          ) -> dict[str, Any]:
    """The verdict: counts by kind, examples, and what was looked at."""
    spark, number = lake.spark, lake.current()
    if number < 0:
        raise NoArchive(path=lake.out)
    heads = plan.heads(archive, plan.listing(archive))
    first = next((h for _, h in heads if isinstance(h, ArchiveHeader)), None)
    messages, spans = all_messages(lake, number), all_stays(lake, number)
    blocks = (spark.read.format("omqj").option("path", archive).option("table", "blocks").load())
    found = [*file_findings(heads), *block_gaps(blocks), *damage(lake.read("bronze"))]
    rows = message_findings(messages, attempts_max).unionByName(out_of_order(spans, messages))
    if pool is not None and first is not None:
        rows = rows.unionByName(lost(messages, pool_messages(pool, first.uuid)))
    counts = dict.fromkeys(KINDS, 0)
    for each in found:
        counts[each["kind"]] += 1
    uncertain = any(each["kind"] in ("crc", "missing_file", "gap") for each in found)
    rows = rows.persist()
    for row in rows.groupBy("kind").count().collect():
        counts[row["kind"]] += row["count"]
    examples = [row.asDict() for kind in counts
                for row in rows.where(F.col("kind") == kind).orderBy("lsn").limit(EXAMPLES_MAX)
                .collect()] if any(counts.values()) else []
    rows.unpersist()
    total = messages.agg(F.count("*"), F.count("end_lsn"), F.sum("puts")).first()
    assert total is not None
    return {"clean": not any(counts.values()), "counts": counts, "findings": found + examples,
            "messages": total[0], "ended": total[1], "puts": int(total[2] or 0),
            "open": total[0] - total[1], "files": len(heads), "pool": pool is not None,
            "uncertain": uncertain}


