"""What a refresh costs by its stages: `python -m tests.bench.analytics_refresh [ROUNDS]`.

A first refresh makes tables of some 100,000 events, and the file of the JVM's classes, if nobody
has; then one file of some 10,000 is new, and `omq-spark refresh` runs in a process of its own on a
copy of these tables, ROUNDS times (2). Prints a line of JSON a round: seconds of processor of all
its processes together, by stage, and the clock's. SCRATCH names a folder to be kept for more runs.
"""

from __future__ import annotations

import functools
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

from tests.bench.analytics_session import processor_s
from tests.made.generate import generate
from tests.made.generator import Load

MESSAGES, FILE_FRAMES = 22_000, 10_000
RATE = 2.0  # messages a second: a file is some 17 minutes


def staged(archive: str, out: str) -> None:
    """A refresh in this process, watched; the stages are of this run, so they stand here."""
    begun, clock = processor_s(os.getpid()), time.perf_counter()
    found: dict[str, float] = {"imports": begun}

    def watched(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def inner(*args: Any, **named: Any) -> Any:
            before = processor_s(os.getpid())
            try:
                return work(*args, **named)
            finally:
                found[name] = found.get(name, 0.0) + processor_s(os.getpid()) - before
        return inner

    from omqtools.omqspark import audit, daily, main, pipeline, report, session, tables

    for where, name, stage in (
            (session, "session", "session"), (pipeline, "run", "run, all of it"),
            (pipeline, "_read", "bronze"), (pipeline, "queue_names", "names"),
            (pipeline, "_lives", "life cycle"), (daily.Telling, "tell", "answers"),
            (tables, "commit", "commits"), (audit, "audit", "audit"),
            (report, "make", "report")):
        setattr(where, name, watched(stage, getattr(where, name)))
    code = main.main(["refresh", "--archive", archive, "--out", out, "--fail-on", "none"])
    assert code == 0
    found["all"] = processor_s(os.getpid())
    found["clock"] = time.perf_counter() - clock
    sys.stderr.write(json.dumps({name: round(value, 2) for name, value in found.items()}) + "\n")


def main(argv: list[str]) -> int:
    if len(argv) == 2:
        staged(*argv)
        return 0
    rounds = int(argv[0]) if argv else 2
    scratch = Path(os.environ.get("SCRATCH") or tempfile.mkdtemp(prefix="omq-bench-"))
    base, archive = scratch / "base", scratch / "here"
    try:
        if not base.exists():
            generate(scratch, MESSAGES, faults=0, load=Load(rate=RATE), stories=0,
                     file_frames=FILE_FRAMES)
            archive.mkdir()
            files = sorted((scratch / "archive").glob("*.oma"))
            for path in files[:10]:
                shutil.copy(path, archive)
            subprocess.run([sys.executable, "-m", "omqtools.omqspark.main", "refresh", "--archive",
                            str(archive), "--out", str(base), "--fail-on", "none"], check=True,
                           stdout=subprocess.DEVNULL)
            shutil.copy(files[10], archive)
        for _ in range(rounds):
            shutil.copytree(base, scratch / "tables")
            done = subprocess.run([sys.executable, "-m", "tests.bench.analytics_refresh",
                                   str(archive), str(scratch / "tables")], check=True,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            sys.stdout.write(done.stderr.splitlines()[-1] + "\n")
            sys.stdout.flush()
            shutil.rmtree(scratch / "tables")
    finally:
        if "SCRATCH" not in os.environ:
            shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
