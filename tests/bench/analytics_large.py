"""A large run, step by step, on one core behind `taskset -c 0`:

    python -m tests.bench.analytics_large MESSAGES [chosen|duckdb|spark]

`chosen`: by the engine that the product takes for so many. In the environment: MEMORY, as --memory
(without: what the command takes); FILES (200), as --files-per-batch; FRAMES (100000) of an archive
file; MADE, a folder in which an archive is made, or was, instead of one that goes.
Prints a line of JSON a step: seconds of the clock, of processor (this process with the JVM and its
workers), and the highest sum of their resident memory; at the end bytes of each table, as they were
written and behind `compact --keep-days 0`, and of the archive. Judges nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from omqtools.omqspark.audit import audit
from omqtools.omqspark.compact import compact
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.out_directory import Out
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.report import drawn
from omqtools.omqspark.session import Later, end, session
from tests.bench.analytics_session import processor_s
from tests.made.generate import generate
from tests.made.generator import Load

SAMPLE_S = 0.5
FROM = {"chosen": None, "duckdb": 1 << 40, "spark": 0}
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(root: int) -> int:
    """Bytes of a process and its descendants."""
    parent: dict[int, int] = {}
    pages: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_text()
                rest = text[text.rindex(")") + 2 :].split()
            except OSError:
                continue  # it has just ended
            parent[int(name)], pages[int(name)] = int(rest[1]), int(rest[21])
    mine = {root}
    for _ in range(4):  # launcher, JVM, daemon, worker
        mine |= {pid for pid, of in parent.items() if of in mine}
    return PAGE * sum(pages.get(pid, 0) for pid in mine)


class Steps:
    """What each step took."""

    def __init__(self) -> None:
        self._wall, self._used, self._peak = time.perf_counter(), processor_s(os.getpid()), 0
        self._end = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._end.wait(SAMPLE_S):
            self._peak = max(self._peak, resident(os.getpid()))

    def told(self, step: str) -> None:
        """`step` is at its end."""
        wall, used = time.perf_counter(), processor_s(os.getpid())
        sys.stdout.write(json.dumps({
            "step": step, "clock_s": round(wall - self._wall, 1),
            "processor_s": round(used - self._used, 1), "peak_mb": self._peak >> 20}) + "\n")
        sys.stdout.flush()
        self._wall, self._used, self._peak = wall, used, 0


def bytes_of(folder: Path) -> dict[str, int]:
    return {each.name: sum(path.stat().st_size for path in each.rglob("*") if path.is_file())
            for each in folder.iterdir() if each.is_dir()}


def main(argv: list[str]) -> int:
    messages, engine = int(argv[0]), argv[1]
    memory = os.environ.get("MEMORY")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        base, steps = Path(os.environ.get("MADE", name)), Steps()
        if not (base / "truth.json").exists():
            generate(base, messages, faults=0, load=Load(),
                     file_frames=int(os.environ.get("FRAMES", "100000")))
            steps.told("generated")
        later: Any = Later(lambda: session(
            {"spark.driver.memory": memory} if memory else None, source=False),
            FROM[engine], memory or "1g")
        lake = Lake(later, str(Path(name) / "tables"))
        run(later, str(base / "archive"), lake.out, incremental=False, say=steps.told,
            files_per_batch=int(os.environ.get("FILES", "200")))
        steps.told("answers, and commits")
        assert audit(lake, str(base / "archive"), pool=base)["clean"]
        if later.made:  # or tasks that nobody waits for go on
            end(later.spark)
        steps.told("audit with the pool")
        drawn(Out(lake.out))
        steps.told("pictures")
        archive = sum(path.stat().st_size for path in (base / "archive").iterdir())
        before = bytes_of(Path(name) / "tables")
        compact(Out(lake.out), 0)
        steps.told("compact")
        after = bytes_of(Path(name) / "tables")
        sys.stdout.write(json.dumps({
            "archive": archive, "written": before, "compacted": after,
            "times": [round(sum(each.values()) / archive, 3) for each in (before, after)]}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
