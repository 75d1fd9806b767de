"""The pipeline: archive -> bronze events -> messages and stays -> tables of answers.

    OUT/bronze/batch=N/day=D     every event, Parquet; damaged ones with `bad`
    OUT/names/batch=N            names and texts
    OUT/messages/batch=N/ended=E messages that ended in this batch, and those open at its end
    OUT/stays/batch=N/ended=E    stays of those messages
    OUT/open/batch=N             events of messages that are still open: the next batch begins here
    OUT/known/batch=N/TABLE      merged parts of the answers, of all that has ended (answers.py)
    OUT/gold/batch=N/TABLE       the answers as of this batch, with the open ones
    OUT/current.json             {"batch": N, "file": F}: which batch counts, last file in it

A batch is some archive files in order. A run that was killed begins the batch that does not count
yet once more under its number; every table is written with overwrite, so it comes to the same rows.
What readers look at changes with the rename of current.json only. A non-incremental run begins with
an empty OUT. (The streaming reader of the data source would do as well; it starts a Python process
that must answer within ten seconds, which a busy host does not promise.)
Errors: NoArchive, MixedArchives, ArchivePruned, BadRequest (OUT is not ours).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from omq.base.errors import ArchivePruned, BadRequest, NoArchive
from omqspark import bronze, columns, gold, plan
from omqspark.answers import Basis
from omqspark.lifecycle import lifecycle, stays, with_work
from omqspark.source import Work

TABLES = ("bronze", "names", "messages", "stays", "open", "known", "gold", "report")
FILES_PER_BATCH = 200


@dataclass
class Lake:
    """The tables of one OUT directory."""

    spark: SparkSession
    out: str

    def path(self, table: str, batch: int | None = None) -> str:
        tail = "" if batch is None else f"/batch={batch}"
        return f"{self.out.rstrip('/')}/{table}{tail}"

    def exists(self, path: str) -> bool:
        fs, where = plan.filesystem(path)
        return bool(fs.get_file_info([where])[0].type != pafs.FileType.NotFound)

    def read(self, table: str) -> DataFrame:
        """A table of all batches that count."""
        batch = self.current()
        if batch < 0:
            raise NoArchive(path=self.out)
        frame = self.spark.read.option("mergeSchema", "false").parquet(self.path(table))
        return frame.where(F.col("batch") <= batch)

    def gold(self, name: str) -> DataFrame:
        return self.spark.read.parquet(f"{self.path('gold', self.current())}/{name}")

    def position(self) -> tuple[int, int]:
        """The batch that counts and the last file in it; (-1, 0) for none."""
        fs, where = plan.filesystem(self.path("current.json"))
        try:
            with fs.open_input_stream(where) as stream:
                found = json.loads(stream.read())
        except FileNotFoundError:
            return -1, 0
        return int(found["batch"]), int(found["file"])

    def current(self) -> int:
        """The batch that counts; -1 for none."""
        return self.position()[0]

    def publish(self, batch: int, file: int) -> None:
        """From now on this batch counts; what earlier ones said of the whole goes."""
        self.put("current.json", json.dumps({"batch": batch, "file": file}).encode())
        for table in ("gold", "known", "open"):
            fs, where = plan.filesystem(self.path(table))
            for info in fs.get_file_info(pafs.FileSelector(where, allow_not_found=True)):
                if info.base_name != f"batch={batch}":
                    fs.delete_dir(info.path)

    def put(self, name: str, data: bytes) -> None:
        """A small file, by rename."""
        fs, where = plan.filesystem(self.path(name))
        with fs.open_output_stream(where + ".tmp") as stream:
            stream.write(data)
        fs.move(where + ".tmp", where)

    def clear(self) -> None:
        """Begin anew; only what a run has made is removed. BadRequest for anything else."""
        fs, where = plan.filesystem(self.out)
        found = fs.get_file_info(pafs.FileSelector(where, allow_not_found=True))
        names = {info.base_name for info in found}
        strange = names - {*TABLES, "current.json", "current.json.tmp", "audit.json"}
        if strange:
            raise BadRequest(reason=f"{self.out} holds {', '.join(sorted(strange))}, which no run "
                                    "has made; name an empty directory")
        fs.create_dir(where)
        if "current.json" in names:
            fs.delete_file(f"{where}/current.json")
        for info in found:
            if info.type == pafs.FileType.Directory:
                fs.delete_dir(info.path)


def event_schema(spark: SparkSession) -> StructType:
    """The schema of bronze: the event table's."""
    return spark.createDataFrame([], columns.ddl("events")).schema


def run(spark: SparkSession, archive: str, out: str, *, incremental: bool,
        files_per_batch: int = FILES_PER_BATCH) -> dict[str, Any]:
    """Everything that is new; what was done."""
    lake = Lake(spark, out)
    numbers = [item.number for item in plan.listing(archive)]
    plan.heads(archive, plan.listing(archive))  # mixed instances: before anything is written
    if not incremental:
        lake.clear()
    batch, last = lake.position()
    new = [number for number in numbers if number > last]
    if new and last and numbers[0] > last + 1:
        raise ArchivePruned(number=last + 1, oldest=numbers[0])
    done: list[int] = []
    for at in range(0, len(new), files_per_batch):
        batch += 1
        files = new[at : at + files_per_batch]
        process(lake, archive, batch, last + 1 if last else files[0], files[-1])
        last = files[-1]
        done.append(batch)
    return {"batches": done, "current": lake.current()}


def process(lake: Lake, archive: str, number: int, first: int, last: int) -> None:
    """One batch, the files `first` to `last`: see the module. Repeating it gives the same."""
    spark = lake.spark
    span = {"path": archive, "first": str(first), "last": str(last)}
    work = Work(span, list(columns.EVENTS))
    latest = bronze.write(spark, work, work.tasks(work.listing()), lake.path("bronze", number),
                          lake.path("names", number))
    new = spark.read.schema(event_schema(spark)).parquet(lake.path("bronze", number))
    good = new.where("bad IS NULL").select(*columns.EVENTS)
    events = good
    if number > 0:
        events = good.unionByName(
            spark.read.schema(event_schema(spark)).parquet(lake.path("open", number - 1)))
    _lives(lake, events, number)
    write_gold(lake, number, good, latest)
    lake.publish(number, last)


def _lives(lake: Lake, events: DataFrame, number: int) -> None:
    """Messages and stays, apart by whether the message has ended; the events of the open ones."""
    spark = lake.spark
    _write_ended(lifecycle(events).withColumn("ended", F.col("end_lsn").isNotNull().cast("int")),
                 lake.path("messages", number))
    still = spark.read.parquet(lake.path("messages", number)).where("ended = 0").select("qpool")
    (events.join(still, "qpool", "left_semi").select(*columns.EVENTS)
     .write.mode("overwrite").parquet(lake.path("open", number)))
    before = (spark.read.parquet(f"{lake.path('known', number - 1)}/readers") if number > 0
              else None)
    marked = with_work(stays(events), before).join(
        still.withColumn("open", F.expr("true")), "qpool", "left")
    _write_ended(marked.withColumn("ended", F.col("open").isNull().cast("int")).drop("open"),
                 lake.path("stays", number))


def _write_ended(frame: DataFrame, path: str) -> None:
    frame.write.mode("overwrite").partitionBy("ended").parquet(path)


def _last(lake: Lake, table: str, number: int) -> DataFrame:
    """Of a table in two parts: what has ended in all batches, and what is open in the last."""
    found = lake.spark.read.parquet(lake.path(table)).where(F.col("batch") <= number)
    return found.where((F.col("ended") == 1) | (F.col("batch") == number)).drop("batch")


def all_stays(lake: Lake, number: int) -> DataFrame:
    """Stays of ended messages of all batches, and those of the messages open now."""
    return _last(lake, "stays", number).drop("ended")


def all_messages(lake: Lake, number: int) -> DataFrame:
    """Every message once: ended ones of all batches, open ones of the last."""
    return _last(lake, "messages", number)


def write_gold(lake: Lake, number: int, events: DataFrame, end_ns: int) -> None:
    """What is known, with the part of this batch; and the answers, with what is open.
    `events`: those of this batch alone."""
    spark = lake.spark
    spans, messages, names = (spark.read.parquet(lake.path(table, number))
                              for table in ("stays", "messages", "names"))
    new, still = (Basis(spans.where(ended), messages, events, names, end_ns)
                  for ended in ("ended = 1", "ended = 0"))
    for answer in gold.ANSWERS:
        known = f"{lake.path('known', number)}/{answer.name}"
        parts = [answer.part(new)]
        if number > 0:
            parts.append(spark.read.parquet(f"{lake.path('known', number - 1)}/{answer.name}"))
        _write(answer.merged(parts), known)
        parts = [spark.read.parquet(known)] + ([] if answer.by_event else [answer.part(still)])
        _write(answer.finish(answer.merged(parts)), f"{lake.path('gold', number)}/{answer.name}")


def _write(frame: DataFrame, path: str) -> None:
    frame.coalesce(4).write.mode("overwrite").parquet(path)
