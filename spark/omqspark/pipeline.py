"""The pipeline: archive -> bronze events -> messages and stays -> tables of answers.

    OUT/bronze/batch=N/day=D     every event, Parquet; damaged ones with `bad`
    OUT/names/batch=N            names and texts
    OUT/messages/batch=N/ended=E/day=D  messages that ended in this batch, those open at its end
    OUT/stays/batch=N/ended=E/day=D     stays of those messages
    OUT/open/batch=N             events of messages that are still open: the next batch begins here
    OUT/clients/batch=N          names of the programs in those events (clients.py)
    OUT/worked/batch=N           the work of stays that have left, of messages that are still open
    OUT/known/TABLE/batch=N/day=D  parts of the answers, of what ended in this batch
    (answer_tables.py) OUT/TABLE/batch=N/day=D      the answers of days in which this batch has
    changed something OUT/current.json             which files were read, which batches count
    (manifest.py) OUT/tables.json, */_delta_log  the same for people, as Delta tables (tables.py)

A batch is some archive files in the order of their numbers, which is that of their LSNs. A file
that comes late takes its place in that order: the batches with files after it are void, and
all their files are done once more, with it, from the events that bronze already has. They go on
from the last batch before it whose state (`open`, `worked`, `known`) is still there, so tables are
always those of one run over the same files; to read some files again by command is the same.

A run that was killed begins the batch that does not count yet once more under its number; every
table is written with overwrite, so it comes to the same rows. What readers look at changes with the
rename of current.json only, and never to less than before. A non-incremental run begins with an
empty OUT. (The streaming reader of the data source would do as well; it starts a Python process
that must answer within ten seconds, which a busy host does not promise.)
Errors: NoArchive, MixedArchives, BadRequest (OUT is not ours; a file to be read again is gone).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from omq.base.clock import NS_PER_S
from omq.format.archive import ArchiveHeader
from omq.format.frame_rules import numbers
from omqtools.omqspark import bronze, columns, parquet, plan, tables
from omqtools.omqspark.answer_tables import Basis, Index
from omqtools.omqspark.clients import CLIENTS, client_names, needed
from omqtools.omqspark.daily import DAY, News, Telling
from omqtools.omqspark.derived import packed, whole
from omqtools.omqspark.engine import F, is_columnar
from omqtools.omqspark.job import Job, refuse_another, unknown, what_to_do
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.lifecycle import Ends, given_out, lifecycle, stays, with_work
from omqtools.omqspark.manifest import Batch, FileRecord, Manifest, missing
from omqtools.omqspark.older_versions import upgraded
from omqtools.omqspark.out_directory import LIVES
from omqtools.omqspark.plan import Listed
from omqtools.omqspark.readable_columns import lived, names_told, queue_names
from omqtools.omqspark.session import Later
from omqtools.omqspark.source_read import Task, Work

FILES_PER_BATCH = 200
EXAMPLES_MAX = 100
SMALL_ROWS = 100_000
WORKED = StructType([StructField(name, LongType()) for name in (
    "epoch", "reader", "reader_pid", "last_lsn", "last_ns")])
STAY = ("qpool", "queue", "visit")
DONE = StructType([StructField(name, IntegerType() if name == "queue" else LongType())
                   for name in (*STAY, "worked_ns")])
APART = ("ended", "day")


def run(spark: SparkSession | Later, archive: str, out: str, *, incremental: bool,
        files_per_batch: int = FILES_PER_BATCH, again: str = "",
        say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Everything that is new; what was done. `again`: what to read once more (`chosen`); `say`: is
    told how far it is."""
    tables.refuse(out)
    lake = Lake(spark, out)
    known = Manifest()
    if incremental:
        known = upgraded(lake)
        if known.batches:  # of a run that was killed before it could
            tables.commit(lake, known)
    listed = plan.listing(archive)
    found = plan.heads(archive, [item for item in listed if again or unknown(known, item)],
                       bytes.fromhex(known.uuid))  # mixed instances: before anything is written
    refuse_another(known, archive, listed, found)
    if isinstance(spark, Later):
        for item, header in found:
            if isinstance(header, ArchiveHeader):
                spark.refuse(header.frames, f"file {item.number}")
    if not incremental:
        lake.clear()
    before, first, shown = known.counted(), known.next_number, lake.index(known.current)
    job = what_to_do(known, lake, archive, found, again)
    forced = shown.unlike(lake.index(known.current))  # of batches that are void now
    done: list[int] = []
    left = job.todo
    while left:
        say(f"{len(job.todo) - len(left)} of {len(job.todo)} files are done")
        files = _next(lake, known, job, left[:files_per_batch])
        left = left[len(files):]
        with lake.told_by(_frames(lake, known, job, files)):
            number = _process(lake, known, job, files, first + len(done), forced, say)
        forced = {}
        done.append(number)
        if before <= known.counted():
            lake.publish(known)
            tables.commit(lake, known)
    gaps = missing(list(known.files))
    return {"batches": done, "current": known.current, "files": len(known.files),
            "missing": [list(gap) for gap in gaps],
            "passed_over": job.passed_over, "replaced": job.replaced}


def _process(lake: Lake, known: Manifest, job: Job, files: list[int], number: int,
             forced: dict[str, set[str]], say: Callable[[str], None]) -> int:
    """One batch: see the module. Repeating it gives the same."""
    before, frames = known.current, _frames(lake, known, job, files)
    say(f"batch {number}: files {files[0]} to {files[-1]}, {frames:,} events")
    reading = [job.new[file] for file in files if file in job.new]
    read = _read(lake, job.archive, reading, number)
    for item, header in reading:
        known.take(FileRecord.of(header, item.size, number, item.modified_ns))
    say(f"batch {number}: the events are read")
    told = lake.rows("bronze", known, files)
    good = told.where("bad IS NULL").select(*columns.EVENTS)
    events = good
    if before >= 0:
        events = good.unionByName(parquet.load(
            lake.spark, [lake.path("open", before)], parquet.schema_of("events")))
    told_before = known.counted()
    counted = sorted({*told_before, *files})
    names = lake.rows("names", known, files)
    index = lake.index(before)
    names_now = names_told(names, index.names)
    if index.renamed(names_now):  # an answer has one name for a queue
        shown = index.everything()
        forced = {table: shown.get(table, set()) | forced.get(table, set())
                  for table in {*shown, *forced}}
    index.names = names_now
    queues = queue_names(lake.spark, names_now)
    ends, readers = known.epoch_ends(counted), _readers(lake, index, before)
    worked = None if before < 0 else parquet.load(lake.spark, [lake.path("worked", before)], DONE)
    before_names = [] if before < 0 else [lake.path("clients", before)]
    clients = client_names(
        names, parquet.load(lake.spark, before_names, CLIENTS) if before_names else None)
    called = Called(queues, clients, _small(clients, [
        *before_names, *lake.folders("names", known, files)]))
    lives = _lives(lake, with_work(stays(events, ends), readers, worked), events, number, ends,
                   called)
    say(f"batch {number}: messages and stays are written")
    for table, rows in zip(LIVES[::-1], lives, strict=True):  # known also where there are no rows
        index.schemas[table] = packed(rows, table).schema.json()
    end_ns = max((known.files[file].time_max for file in counted), default=0)
    # Minutes in which nothing happened, after the end of the batch before, have not been shown.
    since = [max(known.files[file].time_max for file in told_before)] if told_before else []
    news = News(min([known.files[file].begins[1] for file in files] + since),
                max((known.files[file].last_lsn for file in told_before), default=0), forced)
    Telling(lake, number, index, Basis(*lives, good, names, end_ns), queues, news).tell()
    findings = [*read.findings, *(
        {"kind": "replaced", "file": file, "detail": "it is another file than the one that was "
         "read before; the tables are of this one"} for file in files if file in job.replaced)]
    before_void, known_counts = job.known_of(files)
    counts = Counter(known_counts) + Counter(read.more) + Counter(
        each["kind"] for each in findings)
    findings += before_void
    known.batches.append(Batch(number, files, findings[:EXAMPLES_MAX], dict(counts)))
    return number


def _next(lake: Lake, known: Manifest, job: Job, files: list[int]) -> list[int]:
    """Those of these files that make one batch: as many as need no Spark; if not even the first
    is so small, all (ADR 0177)."""
    if not isinstance(lake.engine, Later):
        return files
    frames = _frames(lake, known, job, [])
    for place, file in enumerate(files):
        frames += _of_file(known, job, file)
        if not lake.engine.is_few(frames):
            if not place:
                lake.engine.refuse(frames, f"file {file}, with what is still open,")
            return files[:place] or files
    return files


def _frames(lake: Lake, known: Manifest, job: Job, files: list[int]) -> int:
    """How many a batch looks at: its own, and those of what was open before it."""
    own = sum(_of_file(known, job, file) for file in files)
    return own + (parquet.rows_in(lake.path("open", known.current)) if known.current >= 0 else 0)


def _of_file(known: Manifest, job: Job, file: int) -> int:
    return (job.new[file][1] if file in job.new else known.files[file]).frames


def _read(lake: Lake, archive: str, reading: Sequence[tuple[Listed, ArchiveHeader]], number: int
          ) -> bronze.Written:
    """Files into bronze; what is wrong with them."""
    work = Work({"path": archive}, list(columns.BRONZE))
    tasks = [Task(splits) for splits in plan.splits(reading, work.split_bytes)]
    return bronze.write(lake.spark, work, tasks, lake.path("bronze", number),
                        lake.path("names", number))


def _readers(lake: Lake, index: Index, before: int) -> DataFrame | None:
    """What readers had finished last (WORKED), of the days since the first hand-out of a message
    that was open at the end of the batch before: only such a message can have been taken together
    with one that ended until then."""
    if before < 0:
        return None
    fs, where = plan.filesystem(lake.path("open", before))
    schema = columns.arrow_schema("events", ["time_ns", "type"])
    given = ds.dataset(where, schema, filesystem=fs, format="parquet").to_table(
        ["time_ns"], filter=ds.field("type").isin(numbers(given_out)))
    first = pc.min(given["time_ns"]).as_py()
    if first is None:
        return None
    day = DAY.format(datetime.fromtimestamp(first // NS_PER_S, UTC))
    paths = [f"{lake.part('readers', number)}/day={one}"
             for one, parts in index.state["readers"].items() if one >= day for number in parts]
    return _small(parquet.load(lake.spark, paths, WORKED), paths) if paths else None


def _small(frame: DataFrame, paths: Sequence[str]) -> DataFrame:
    """The rows of some folders, which every task of a join gets as a whole if they are few: these
    pass through the driver. Programs that live for one message have as many names as there are
    messages."""
    few = sum(map(parquet.rows_in, paths)) <= SMALL_ROWS
    return F.broadcast(frame) if few else frame


@dataclass(frozen=True)
class Called:
    """Names of queues (words.queue_names) and of programs (clients.client_names); `joined`: the
    same, as it is to be joined."""

    queues: DataFrame
    clients: DataFrame
    joined: DataFrame


def _lives(lake: Lake, spent: DataFrame, events: DataFrame, number: int, ends: Ends,
           called: Called) -> tuple[DataFrame, DataFrame]:
    """Stays and messages, apart by whether the message has ended, as they are written; and the
    events of the open ones. Few stays are made at the same time as the messages, on another core:
    which of them are open is known after that."""
    told = lived(spent, "stays", called.queues, called.joined)
    with ThreadPoolExecutor(1) as beside:
        if is_columnar():
            told = parquet.local(lake.spark, told.toArrow(), told.schema)
        rows = beside.submit(told.toArrow) if lake.few and not is_columnar() else None
        messages = _saved(
            lake, lived(lifecycle(events, ends), "messages", called.queues, called.joined
                        ).withColumn("ended", F.col("end_lsn").isNotNull().cast("int")),
            "messages", number)
        still = messages.where("ended = 0").select("qpool")
        left = parquet.saved(events.join(still, "qpool", "left_semi").select(*columns.EVENTS),
                             lake.path("open", number), (), few=lake.few)
        parquet.save(needed(called.clients, left), lake.path("clients", number), few=lake.few)
        if rows is not None:
            told = parquet.local(lake.spark, rows.result(), told.schema)
    marked = told.join(still.withColumn("open", F.expr("true")), "qpool", "left")
    spans = _saved(lake, marked.withColumn("ended", F.col("open").isNull().cast("int")).drop(
        "open"), "stays", number)
    parquet.save(spans.where("ended = 0 AND work_ns IS NOT NULL").select(
        *STAY, F.col("work_ns").alias("worked_ns")), lake.path("worked", number), few=lake.few)
    return spans, messages


def _saved(lake: Lake, rows: DataFrame, table: str, number: int) -> DataFrame:
    """Messages or stays as they were written, with all columns."""
    return whole(parquet.saved(packed(rows, table), lake.path(table, number), APART,
                               few=lake.few), table)
