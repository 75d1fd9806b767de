"""Speed of the archive's analytics, as ratios within one run: `make bench-spark`.

MESSAGES (default 400,000: 2 million events) sets the size, ARCHIVE names an archive that is there
already; LONG=1 adds ten times as many and, for the life cycle in 1 GiB, 10 million messages.
Prints a table: goal, what was found, reached or not; and the figures as JSON. Judges nothing by its
exit code: a busy machine is no mistake of the programs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omq.format.archive import ArchiveHeader, Section
from omq.format.findings import Finding
from omqtools.omqspark import columns, decode, plan
from omqtools.omqspark.session import ARROW
from tests.bench.machine import describe
from tests.made.generate import generate
from tests.made.generator import Load

HERE = Path(__file__).resolve()
FILE_FRAMES = 400_000
FEW = ["lsn", "time_ns", "type", "queue", "qpool"]
Figures = dict[str, Any]
YEAR_EVENTS = 10_000 * 5 * 86_400 * 365  # at 10,000 messages/s, five events each
NODES, NODE_CORES = 16, 16


def frames_in(where: str) -> int:
    return sum(head.frames for _, head in plan.heads(where, plan.listing(where))
               if isinstance(head, ArchiveHeader))


def decoded(where: str) -> dict[str, float]:
    """Million frames a second of one core, without Spark, by processor time."""
    found = plan.heads(where, plan.listing(where)[:3])
    frames = sum(head.frames for _, head in found if isinstance(head, ArchiveHeader))
    splits = plan.splits(found, 1 << 40)
    fs, _ = plan.filesystem(where)

    def opened(use: Callable[[Any], Any]) -> None:
        for split in splits[0]:
            with plan.opened(fs, split) as file:
                assert not isinstance(file, Finding)
                use(file)

    def unpacked(file: Any) -> None:
        for index in file.section_frames(Section.FRAMES):
            file.frame(index)

    def checked(file: Any) -> None:
        for _ in file.blocks(Section.FRAMES):
            pass

    def batches(names: list[str]) -> None:
        for _ in decode.event_batches(splits[0], names, (), where):
            pass

    works: dict[str, Callable[[], None]] = {
        "zstd": lambda: opened(unpacked), "blocks": lambda: opened(checked),
        "arrow_5": lambda: batches(FEW), "arrow_all": lambda: batches(list(columns.EVENTS))}
    best = {}
    for name, work in works.items():
        times = []
        for _ in range(5):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
        best[name] = round(frames / min(times) / 1e6, 2)
    return best


def measured(where: str, scratch: str, names: list[str], *submit: str, **environment: str
             ) -> Figures:
    """What a session with these arguments of spark-submit says."""
    done = subprocess.run(
        [sys.executable, str(HERE.with_name("analytics_session.py")), where, scratch, *names],
        env=os.environ | environment | {"PYSPARK_SUBMIT_ARGS": " ".join(
            [*submit, "--driver-java-options", f"'{ARROW}'", "--conf",
             f"'spark.executor.extraJavaOptions={ARROW}'", "--conf",
             "spark.ui.showConsoleProgress=false", "pyspark-shell"])},
        stdout=subprocess.PIPE, text=True, check=True)
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def made(scratch: Path, messages: int) -> str:
    generate(scratch, messages, faults=0, load=Load(), file_frames=FILE_FRAMES)
    return str(scratch / "archive")


def rate(frames: int, times: list[float]) -> str:
    wall, used = times
    return (f"{frames / wall / 1e6:.2f} M events/s; {used / frames * 1e6:.2f} us of processor an "
            "event")


def report(found: Figures) -> list[tuple[str, str, str, str]]:
    """Rows (figure, goal, found, reached)."""
    n, two = found["events"], found["local[2]"]
    tuples = two["tuples"][0] / two["source"][0]

    def beside(way: str, columns: str = "") -> tuple[float, float]:
        """Times as fast as Parquet: by the clock, by processor time."""
        parquet, ours = two[f"parquet{columns}"], two[f"{way}{columns}"]
        return parquet[0] / ours[0], parquet[1] / ours[1]

    ours = n / two["bronze"][0] / 1e6
    rows = [
        ("decode, blocks checked, a core", "10 M frames/s", f"{found['decode']['blocks']} M",
         word(found["decode"]["blocks"] >= 10)),
        ("decode to Arrow, five columns / all", "", f"{found['decode']['arrow_5']} M / "
         f"{found['decode']['arrow_all']} M frames/s a core", ""),
        ("source into nothing, against tuples", "5 times", f"{tuples:.1f} times; by "
         f"processor time {two['tuples'][1] / two['source'][1]:.1f}", word(tuples >= 5)),
        ("source into nothing, against Parquet, both end at damage (FAILFAST), by processor time",
         "0.6", "{1:.2f}; by the clock {0:.2f}".format(*beside("failfast")),
         word(beside("failfast")[1] >= 0.6)),
        ("the same with a row for each damage (PERMISSIVE)", "",
         "{1:.2f}; by the clock {0:.2f}".format(*beside("source")), ""),
        ("five columns of it, FAILFAST / PERMISSIVE", "",
         f"{beside('failfast', '_5')[1]:.2f} / {beside('source', '_5')[1]:.2f} by processor time",
         ""),
        ("archive to bronze, two cores", "0.8 M events/s", rate(n, two["bronze"]),
         word(ours >= 0.8)),
        ("life cycle, two cores", "", rate(n, two["lifecycle"]), "")]
    one = found["local[1]"]
    for name in ("bronze", "lifecycle"):
        times = [found[master][name][0] for master in ("local[1]", "local[2]", "local-cluster")]
        rows.append((f"{name}: local[1], local[2], local-cluster[2,1,1024]", "",
                     " / ".join(f"{t:.1f} s" for t in times)
                     + f"; two cores {one[name][0] / two[name][0]:.1f} times as fast", ""))
    for label, each in found.get("long", {}).items():
        rows.append((label, "linear", "; ".join(
            f"{name} {rate(each['events'], each[name])}" for name in ("bronze", "lifecycle")), ""))
    used = sum(two[name][1] for name in ("bronze", "lifecycle")) / n
    hours = YEAR_EVENTS * used / (NODES * NODE_CORES) / 3600
    rows.append((f"a year at 10,000 messages/s, {NODES} nodes of {NODE_CORES} cores", "",
                 f"{hours:.0f} hours for bronze and life cycles, from the processor time above",
                 "on paper"))
    return rows


def word(reached: object) -> str:
    return "reached" if reached else "not reached"


def long_run(scratch: Path, messages: int) -> Figures:
    """Ten times as many events; and 10 million messages with an executor of 1 GiB."""
    found: Figures = {}
    for label, count, submit in (
            ("ten times as many events", messages * 10, ["--master", "local[2]"]),
            ("10 M messages, executor memory 1 GiB", 10_000_000, [
                "--master", "local-cluster[1,2,1024]", "--conf", "spark.executor.memory=1g"])):
        where = os.environ.get("ARCHIVE_LONG") or made(scratch / label.split(",")[0], count)
        found[label] = {"events": frames_in(where)} | measured(
            where, str(scratch), ["bronze", "lifecycle"], *submit, RUNS="1")
    return found


def main() -> int:
    scratch = Path(tempfile.mkdtemp(prefix="omq-bench-"))
    messages = int(os.environ.get("MESSAGES", "400000"))
    try:
        where = os.environ.get("ARCHIVE") or made(scratch / "made", messages)
        size = sum(item.size for item in plan.listing(where))
        frames = frames_in(where)
        found: Figures = {"events": frames, "bytes_per_event": round(size / frames, 1),
                          "machine": describe(scratch), "decode": decoded(where)}
        found["local[2]"] = measured(
            where, str(scratch), [
                "source", "source_5", "failfast", "failfast_5", "tuples", "bronze", "parquet",
                "parquet_5", "lifecycle"], "--master", "local[2]")
        for master in ("local[1]", "local-cluster[2,1,1024]"):
            found[master.split("[2,")[0]] = measured(
                where, str(scratch), ["bronze", "lifecycle"], "--master", master)
        if os.environ.get("LONG"):
            found["long"] = long_run(scratch, messages)
    finally:
        shutil.rmtree(scratch)
    for row in report(found):
        sys.stdout.write("| " + " | ".join(row) + " |\n")
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
