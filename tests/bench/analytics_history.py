"""What a batch costs behind a history: one file after the other becomes a batch of its own, each
with as many messages, over days. `python tests/bench/analytics_history.py [BATCHES [MESSAGES]]`

Prints a line of JSON a batch (seconds of processor, of this process with its JVM), and last how the
last ten compare with the first ten behind WARM, in which the JVM is still warming up.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from omqtools.omqspark import tables
from omqtools.omqspark.audit import audit
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import session
from tests.bench.analytics_session import processor_s
from tests.made.generate import generate
from tests.made.generator import Load

WARM = 5
TEN = 10
RATE = 0.04  # messages a second: 300 in about two hours, as a quiet host has


def main(argv: list[str]) -> int:
    batches, messages = (int(each) for each in [*argv, *("40", "300")[len(argv):]])
    scratch = Path(tempfile.mkdtemp(prefix="omq-bench-"))
    used: dict[str, list[float]] = {"run": [], "audit": []}
    try:
        generate(scratch, batches * messages, faults=0, load=Load(rate=RATE), stories=0,
                 file_frames=messages * 5)
        files = sorted((scratch / "archive").glob("*.oma"))
        archive, out = scratch / "here", str(scratch / "tables")
        archive.mkdir()
        spark = session(quick=True)
        spark.sparkContext.setLogLevel("ERROR")
        lake = Lake(spark, out)
        for number, path in enumerate(files[:batches]):
            shutil.move(path, archive)
            before = processor_s(os.getpid())
            run(spark, str(archive), out, incremental=number > 0)
            tables.vacuum(lake, 7)
            between = processor_s(os.getpid())
            audit(lake, str(archive), pool=None)
            used["run"].append(between - before)
            used["audit"].append(processor_s(os.getpid()) - between)
            sys.stdout.write(json.dumps({"batch": number, **{
                name: round(each[-1], 2) for name, each in used.items()}}) + "\n")
            sys.stdout.flush()
        spark.stop()
    finally:
        shutil.rmtree(scratch)
    for name, each in used.items():
        first, last = median(each[WARM : WARM + TEN]), median(each[-TEN:])
        sys.stdout.write(json.dumps({"what": name, "first": round(first, 2),
                                     "last": round(last, 2), "times": round(last / first, 2)})
                         + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
