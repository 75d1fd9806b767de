"""The pipeline: archive -> bronze events -> messages and stays -> tables of answers.

    OUT/bronze/batch=N/day=D     every event, Parquet; damaged ones with `bad`
    OUT/names/batch=N            names and texts
    OUT/messages/batch=N/ended=E/day=D  messages that ended in this batch, those open at its end
    OUT/stays/batch=N/ended=E/day=D     stays of those messages
    OUT/open/batch=N             events of messages that are still open: the next batch begins here
    OUT/known/batch=N/TABLE      merged parts of the answers, of all that has ended (answers.py)
    OUT/TABLE/batch=N            the answers as of this batch, with the open ones
    OUT/current.json             which files were read, which batches count (manifest.py)
    OUT/tables.json, */_delta_log  the same for people, as Delta tables (tables.py)

A batch is some archive files in the order of their numbers, which is that of their LSNs. A file
that comes late takes its place in that order: the batches that tell files behind it are void, and
all their files are told once more, with it, from the events that bronze already has. They go on
from the last batch before it whose state (`open`, `known`) is still there, so tables are always
those of one run over the same files; to read some files again by command is the same.

A run that was killed begins the batch that does not count yet once more under its number; every
table is written with overwrite, so it comes to the same rows. What readers look at changes with the
rename of current.json only, and never to less than before. A non-incremental run begins with an
empty OUT. (The streaming reader of the data source would do as well; it starts a Python process
that must answer within ten seconds, which a busy host does not promise.)
Errors: NoArchive, MixedArchives, BadRequest (OUT is not ours; a file to be read again is gone).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from omq.base.errors import BadRequest
from omq.format.archive import ArchiveHeader
from omqtools.omqspark import bronze, columns, gold, plan, tables
from omqtools.omqspark.answers import Basis
from omqtools.omqspark.lake import Lake, event_schema
from omqtools.omqspark.lifecycle import Ends, lifecycle, stays, with_work
from omqtools.omqspark.manifest import Batch, FileRecord, Manifest, missing
from omqtools.omqspark.older import upgraded
from omqtools.omqspark.plan import Listed
from omqtools.omqspark.source import Task, Work
from omqtools.omqspark.words import lived, named, queue_names

FILES_PER_BATCH = 200
EXAMPLES_MAX = 100
New = dict[int, tuple[Listed, ArchiveHeader]]


@dataclass(frozen=True)
class Job:
    """What a run has to do: `todo`: files to tell, in order; `new`: those of them to read first."""

    archive: str
    new: New
    todo: list[int]
    passed_over: list[dict[str, Any]]


def run(spark: SparkSession, archive: str, out: str, *, incremental: bool,
        files_per_batch: int = FILES_PER_BATCH, again: str = "") -> dict[str, Any]:
    """Everything that is new; what was done. `again`: what to read once more (`chosen`)."""
    lake = Lake(spark, out)
    known = Manifest()
    if incremental:
        known = upgraded(lake)
        if known.batches:  # of a run that was killed before it could
            tables.commit(lake, known)
    listed = plan.listing(archive)
    found = plan.heads(archive, [item for item in listed if again or _unknown(known, item)],
                       bytes.fromhex(known.uuid))  # mixed instances: before anything is written
    if not incremental:
        lake.clear()
    before, first = known.counted(), known.next_number
    job = _job(known, lake, archive, found, again)
    done: list[int] = []
    for at in range(0, len(job.todo), files_per_batch):
        number = _process(lake, known, job, job.todo[at : at + files_per_batch],
                          first + len(done))
        done.append(number)
        if before <= known.counted():
            lake.publish(known)
            tables.commit(lake, known)
    gaps = missing(list(known.files))
    return {"batches": done, "current": known.current, "files": len(known.files),
            "missing": [list(gap) for gap in gaps], "passed_over": job.passed_over}


def _unknown(known: Manifest, item: Listed) -> bool:
    record = known.files.get(item.number)
    return record is None or not record.size or record.size != item.size


def _job(known: Manifest, lake: Lake, archive: str, found: Sequence[tuple[Listed, Any]],
         again: str) -> Job:
    """What is to be done, with the batches that become void taken out of `known`."""
    new: New = {}
    over: list[dict[str, Any]] = []
    valid = {item.number: (item, header) for item, header in found
             if isinstance(header, ArchiveHeader)}
    wanted = chosen(known, valid, again) if again else set()
    for item, header in found:
        record = known.files.get(item.number)
        if not isinstance(header, ArchiveHeader):
            over.append({"file": item.number, "kind": header.kind.value, "reason": header.reason})
        elif record is None or item.number in wanted or (
                record.crc and record != FileRecord.of(header, item.size, record.batch)):
            new[item.number] = (item, header)
            known.uuid = known.uuid or header.uuid.hex()
        elif not record.crc:  # of tables that were upgraded
            known.files[item.number] = FileRecord.of(header, item.size, record.batch)
    untold = known.files.keys() - known.counted()
    first = min([*new, *untold], default=0)
    if not first:
        return Job(archive, new, [], over)
    stay = known.base(first, lake.snapshots())
    behind = {number for batch in known.batches[stay:] for number in batch.files}
    del known.batches[stay:]
    return Job(archive, new, sorted({*behind, *new, *untold}), over)


def chosen(known: Manifest, there: New, again: str) -> set[int]:
    """The files that "42" (a number), "2026-01-31" (a day, UTC) or "batch:3" names. BadRequest:
    there is none, or one is not in the archive any more."""
    if re.fullmatch(r"[0-9]{1,10}", again):
        wanted = {int(again)}
    elif re.fullmatch(r"batch:[0-9]{1,9}", again):
        wanted = {number for batch in known.batches if batch.number == int(again[6:])
                  for number in batch.files}
    else:
        try:
            start = int(datetime.fromisoformat(again).replace(tzinfo=UTC).timestamp()) * 10**9
        except ValueError as error:
            raise BadRequest(reason="--again takes the number of a file, a day like 2026-01-31 or "
                                    f"batch:3, not {again!r}") from error
        wanted = {record.number for record in known.files.values() if record.frames
                  and record.time_min < start + bronze.DAY_NS and record.time_max >= start}
    gone = sorted(wanted - there.keys())
    if gone or not wanted:
        raise BadRequest(reason=f"files {', '.join(map(str, gone)) or again} are not in the "
                                "archive, or cannot be read")
    return wanted


def _process(lake: Lake, known: Manifest, job: Job, files: list[int], number: int) -> int:
    """One batch: see the module. Repeating it gives the same."""
    spark, before = lake.spark, known.current
    reading = [job.new[file] for file in files if file in job.new]
    findings = _read(lake, job.archive, reading, number)
    for item, header in reading:
        known.take(FileRecord.of(header, item.size, number))
    told = lake.rows("bronze", known, files)
    good = told.where("bad IS NULL").select(*columns.EVENTS)
    events = good
    if before >= 0:
        events = good.unionByName(
            spark.read.schema(event_schema(spark)).parquet(lake.path("open", before)))
    counted = sorted({*known.counted(), *files})
    names = lake.rows("names", known, files)
    _lives(lake, events, number, before, known.epoch_ends(counted), queue_names(names))
    end_ns = max((known.files[file].time_max for file in counted), default=0)
    write_gold(lake, number, before, good, names, end_ns)
    counts: dict[str, int] = {}
    for each in findings:
        counts[each["kind"]] = counts.get(each["kind"], 0) + 1
    known.batches.append(Batch(number, files, findings[:EXAMPLES_MAX], counts))
    return number


def _read(lake: Lake, archive: str, reading: Sequence[tuple[Listed, ArchiveHeader]], number: int
          ) -> list[dict[str, Any]]:
    """Files into bronze; what is wrong with them."""
    work = Work({"path": archive}, list(columns.EVENTS))
    tasks = [Task(splits) for splits in plan.splits(reading, work.split_bytes)]
    return bronze.write(lake.spark, work, tasks, lake.path("bronze", number),
                        lake.path("names", number))


def _lives(lake: Lake, events: DataFrame, number: int, before: int, ends: Ends,
           queues: DataFrame) -> None:
    """Messages and stays, apart by whether the message has ended; the events of the open ones."""
    spark = lake.spark
    _write_ended(lived(lifecycle(events, ends), "messages", queues).withColumn(
        "ended", F.col("end_lsn").isNotNull().cast("int")), lake.path("messages", number))
    still = spark.read.parquet(lake.path("messages", number)).where("ended = 0").select("qpool")
    (events.join(still, "qpool", "left_semi").select(*columns.EVENTS)
     .write.mode("overwrite").parquet(lake.path("open", number)))
    readers = spark.read.parquet(f"{lake.path('known', before)}/readers") if before >= 0 else None
    marked = lived(with_work(stays(events, ends), readers), "stays", queues).join(
        still.withColumn("open", F.expr("true")), "qpool", "left")
    _write_ended(marked.withColumn("ended", F.col("open").isNull().cast("int")).drop("open"),
                 lake.path("stays", number))


def _write_ended(frame: DataFrame, path: str) -> None:
    frame.write.mode("overwrite").partitionBy("ended", "day").parquet(path)


def write_gold(lake: Lake, number: int, before: int, events: DataFrame, names: DataFrame,
               end_ns: int) -> None:
    """What is known, with the part of this batch; and the answers, with what is open.
    `events`, `names`: those of this batch alone; `before`: the batch that it goes on from."""
    spark = lake.spark
    spans, messages = (spark.read.parquet(lake.path(table, number))
                       for table in ("stays", "messages"))
    new, still = (Basis(spans.where(ended), messages, events, names, end_ns)
                  for ended in ("ended = 1", "ended = 0"))
    queues = queue_names(names)
    for answer in gold.ANSWERS:
        known = f"{lake.path('known', number)}/{answer.name}"
        parts = [answer.part(new)]
        if before >= 0:
            parts.append(spark.read.parquet(f"{lake.path('known', before)}/{answer.name}"))
        _write(answer.merged(parts), known)
        parts = [spark.read.parquet(known)] + ([] if answer.by_event else [answer.part(still)])
        _write(named(answer.finish(answer.merged(parts)), queues), lake.path(answer.name, number))


def _write(frame: DataFrame, path: str) -> None:
    frame.write.mode("overwrite").parquet(path)
