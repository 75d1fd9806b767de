"""How late a stream sees what happens: `python -m tests.bench.analytics_lag [PUTS]`.

An instance runs, a message is put twice a second, and `readStream` over its spool tells each in
`foreachBatch`: with processingTime of half a second and of two, and with availableNow, started anew
from its checkpoint each time. Then the archive: from the rename that makes a file appear. Prints a
line of JSON each: seconds from put (the journal's own time) or rename to `foreachBatch`. The first
query of a JVM is slow; what it sees is told apart (`first_s`).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from omq.storage import durable
from omq.storage.disk import Disk
from omqtools.omqspark.session import session
from tests.made.generate import generate
from tests.made.generator import Load
from tests.process.operator_world import Instance

EACH_S = 0.5
WAIT_S = 120.0


class Seen:
    """LSN or file -> when it came out first."""

    def __init__(self, column: str) -> None:
        self.column, self.came = column, dict[int, tuple[float, float]]()
        self.news = threading.Condition()

    def take(self, frame: Any, _number: int) -> None:
        found = frame.select(self.column, "time_ns").collect()
        now = time.time()
        with self.news:
            for row in found:
                self.came.setdefault(row[self.column], (now, row["time_ns"] / 1e9))
            self.news.notify_all()

    def wait(self, count: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.came) >= count, WAIT_S), self.came


def said(what: str, lags: list[float]) -> None:
    first, *others = lags
    others.sort()
    sys.stdout.write(json.dumps({
        "what": what, "first_s": round(first, 2), "median_s": round(median(others), 2),
        "p95_s": round(others[int(len(others) * 0.95)], 2), "longest_s": round(others[-1], 2),
        "of": len(others), "load": round(os.getloadavg()[0], 1)}) + "\n")
    sys.stdout.flush()


def stream(spark: Any, seen: Seen, where: Path, trigger: dict[str, Any], **source: str) -> Any:
    reader = spark.readStream.format("omqj").options(**source).load()
    if "spool" in source:
        reader = reader.where("type = 1")
    return (reader.writeStream.trigger(**trigger).option("checkpointLocation", str(where))
            .foreachBatch(seen.take).start())


def ended(query: Any) -> None:
    query.stop()
    query.awaitTermination(WAIT_S)


def of_the_spool(spark: Any, instance: Instance, scratch: Path, puts: int) -> None:
    pace = threading.Event()
    for every in ("500 milliseconds", "2 seconds"):
        seen = Seen("lsn")
        query = stream(spark, seen, scratch / every[:3].strip(), {"processingTime": every},
                       spool=str(instance.root))
        instance.put("A", b"the first")
        seen.wait(1)
        before = len(seen.came)
        for _ in range(puts):
            instance.put("A", b"x" * 100)
            pace.wait(EACH_S)
        seen.wait(before + puts)
        ended(query)
        lags = [came - put for came, put in seen.came.values()]
        said(f"spool, processingTime {every}", [lags[before - 1], *lags[before:]])
    seen, lags = Seen("lsn"), []
    for number in range(10):
        instance.put("A", b"for availableNow")
        begun = time.time()
        stream(spark, seen, scratch / "now", {"availableNow": True}, spool=str(instance.root)
               ).awaitTermination(WAIT_S)
        assert seen.came, number
        lags.append(time.time() - begun)
    said("spool, availableNow, start to end", lags)


def of_the_archive(spark: Any, scratch: Path) -> None:
    generate(scratch / "made", 12_000, faults=0, load=Load(), stories=0, file_frames=5_000)
    files = sorted((scratch / "made" / "archive").glob("*.oma"))
    there = scratch / "there"
    there.mkdir()
    shutil.move(files[0], there)
    seen, lags = Seen("file"), []
    query = stream(spark, seen, scratch / "files", {"processingTime": "2 seconds"}, path=str(there))
    seen.wait(1)
    for number, path in enumerate(files[1:], 2):
        begun = time.time()
        path.rename(there / path.name)
        seen.wait(number)
        lags.append(max(came for came, _ in seen.came.values()) - begun)
    ended(query)
    said("archive, processingTime 2 seconds, 5,000 events a file", lags)


def main(argv: list[str]) -> int:
    puts = int(argv[0]) if argv else 40
    scratch = Path(tempfile.mkdtemp(prefix="omq-bench-"))
    durable.use(Disk())
    spark = session(quick=True)
    spark.sparkContext.setLogLevel("ERROR")
    instance = Instance(scratch / "spool")
    try:
        of_the_archive(spark, scratch)
        instance.start()
        of_the_spool(spark, instance, scratch, puts)
    finally:
        instance.end()
        spark.stop()
        shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
