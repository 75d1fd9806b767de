"""The audit: is every message accounted for, in order, once, and is the archive itself whole?

    crc            bytes of archive files are damaged, cut, foreign, newer or cannot be read
    missing_file   a number between the first and the last file is not there
    gap            LSNs are missing inside a file or between two that follow each other
    lost           persistent, put, without an end, not in the pool that was given, and not ended in
                   the journal behind the archive (pool.py)
    duplicated     two PUTs, or two ends, of one QPoolId
    resurrected    a frame of a message behind its end
    out_of_order   handed out for the first time after a later one of the same queue, priority and
                   producer; not judged where the message was put off, held, delayed, or a manager
                   was started in between
    attempts       more attempts than the limit

Damage, a missing file or a gap may be the cause of other findings: a message whose end stood there
is called lost. `uncertain` then says so, of the verdict as a whole: look at the damage first.

What is judged ends with the last file in the tables (`data_to`). `not_judged` says what was left
out and why: "clean" is said of the rest only. What is wrong with files was found when they were
read, and comes from the manifest; files that could not be read are looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from omq.base.clock import NS_PER_S
from omq.format.archive import ArchiveHeader
from omqtools.omqspark import plan
from omqtools.omqspark.lake import Lake, all_messages, all_stays
from omqtools.omqspark.manifest import Manifest, missing
from omqtools.omqspark.pool import Beside, beside

KINDS: Final = ("crc", "missing_file", "gap", "lost", "duplicated", "resurrected", "out_of_order",
                "attempts")
EXAMPLES_MAX: Final = 100
ATTEMPTS_MAX: Final = 3
Finding = dict[str, Any]


def file_findings(known: Manifest, passed_over: Sequence[Finding]) -> tuple[list[Finding],
                                                                            dict[str, int]]:
    """What is wrong with files: some findings, and how many there are of each kind."""
    gaps = known.lsn_gaps()
    counts = {"crc": len(passed_over), "gap": len(gaps), "missing_file": 0}
    found = [*passed_over, *gaps[:EXAMPLES_MAX]]
    room = EXAMPLES_MAX
    for first, last in missing(list(known.files)):
        counts["missing_file"] += last - first + 1
        shown = range(first, min(last + 1, first + room))
        found += [{"kind": "missing_file", "file": number} for number in shown]
        room -= len(shown)
    for batch in known.batches:
        found += batch.findings
        for kind, count in batch.found.items():
            counts[kind] = counts.get(kind, 0) + count
    return found, counts


def passed_over(known: Manifest, archive: str) -> tuple[list[Finding], list[int]]:
    """Files that are there and not in the tables: those without a valid head, as findings, and
    numbers of those that the next run will read."""
    items = [item for item in plan.listing(archive) if item.number not in known.files]
    found, waiting = [], []
    for item, header in plan.heads(archive, items, bytes.fromhex(known.uuid)):
        if isinstance(header, ArchiveHeader):
            waiting.append(item.number)
        else:
            found.append({"kind": "crc", "file": item.number, "detail": plan.bad_text(header)})
    return found, waiting


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


def lost(messages: DataFrame, found: Beside) -> DataFrame:
    """Persistent, put, no end, not in the pool, and not ended behind the archive."""
    spark = messages.sparkSession
    there = spark.createDataFrame(
        [(int(q),) for q in np.array(sorted(found.there | found.ended), dtype="<i8").tolist()],
        "qpool bigint")
    judged = messages if found.checkpoint is None else messages.where(
        F.col("born_lsn") <= found.checkpoint)
    return (judged.where("puts > 0 AND ends = 0 AND persistent").join(there, "qpool", "left_anti")
            .select(F.lit("lost").alias("kind"), "qpool", F.col("last_lsn").alias("lsn")))


def audit(lake: Lake, archive: str, *, pool: Path | None, attempts_max: int = ATTEMPTS_MAX
          ) -> dict[str, Any]:
    """The verdict: counts by kind, examples, what was judged, and what not."""
    known = lake.known()
    messages, spans = all_messages(lake), all_stays(lake)
    over, waiting = passed_over(known, archive)
    found, counted = file_findings(known, over)
    counts = dict.fromkeys(KINDS, 0) | counted
    rows = message_findings(messages, attempts_max).unionByName(out_of_order(spans, messages))
    not_judged = {"files": f"not in the tables yet: {_some(waiting)}; run --incremental"
                  } if waiting else {}
    if pool is None:
        not_judged["lost"] = "no --pool was given"
    else:
        last = max((record.last_lsn for record in known.files.values()), default=0)
        pool_state = beside(pool, bytes.fromhex(known.uuid), max(known.files), last)
        if pool_state.unknown:
            not_judged["lost"] = pool_state.unknown
        else:
            rows = rows.unionByName(lost(messages, pool_state))
    uncertain = any(counts[kind] for kind in ("crc", "missing_file", "gap"))
    rows = rows.persist()
    for row in rows.groupBy("kind").count().collect():
        counts[row["kind"]] += row["count"]
    examples = [row.asDict() for kind in KINDS if counts[kind]
                for row in rows.where(F.col("kind") == kind).orderBy("lsn").limit(EXAMPLES_MAX)
                .collect()]
    rows.unpersist()
    total = messages.agg(F.count("*"), F.count("end_lsn"), F.sum("puts")).first()
    assert total is not None
    return {"clean": not any(counts.values()), "counts": counts, "findings": found + examples,
            "messages": total[0], "ended": total[1], "puts": int(total[2] or 0),
            "open": total[0] - total[1], "files": len(known.files), "pool": pool is not None,
            "uncertain": uncertain, "judged": [kind for kind in KINDS if kind not in not_judged],
            "not_judged": not_judged, **_span(known)}


def _some(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:10]))
    return text if len(numbers) <= 10 else f"{text} and {len(numbers) - 10} more"


def _span(known: Manifest) -> dict[str, Any]:
    """When the audit is made, and from when to when its data are (UTC)."""
    whole = [record for record in known.files.values() if record.frames]
    return {"audited": datetime.now(UTC).isoformat(timespec="seconds"),
            "data_from": _iso(min((r.time_min for r in whole), default=0)),
            "data_to": _iso(max((r.time_max for r in whole), default=0)),
            "last_lsn": max((r.last_lsn for r in whole), default=0)}


def _iso(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).isoformat()
