"""What few new events cost: `python -m tests.bench.analytics_small [BATCHES]`.

An archive of files with some 160 events each. Half of them are there at first; of the others each
is a batch of one `follow` that stays, BATCHES of them (20). Then one is new to an `omq-spark run
--incremental` and one to an `omq-spark refresh`, each a process of its own. Prints a line of JSON:
seconds of processor (of a batch the median and the most, with the first one apart, which reads the
modules), memory of the process that stays, bytes of the archive, of OUT at the end and of OUT after
`compact --keep-days 0`, and the load of the machine.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from omqtools.omqspark import main as commands
from omqtools.omqspark.failures import quiet
from omqtools.omqspark.follow import Following, Pace
from omqtools.omqspark.following import _Session
from omqtools.omqspark.options import parser
from tests.made.generate import generate
from tests.made.generator import Load

FILE_FRAMES, FRAMES_OF_ONE = 160, 5
RATE = 0.05  # messages a second: a file is some ten minutes


def size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def alone(*words: str) -> float:
    """Processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "omqtools.omqspark.main", *words], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: list[str]) -> int:
    batches = int(argv[0]) if argv else 20
    with tempfile.TemporaryDirectory(prefix="omq-bench-") as name:
        base = Path(name)
        generate(base, 2 * (batches + 4) * FILE_FRAMES // FRAMES_OF_ONE, faults=0, stories=0,
                 load=Load(rate=RATE), file_frames=FILE_FRAMES)
        files, here, out = sorted((base / "archive").glob("*.oma")), base / "here", base / "out"
        here.mkdir()
        new = files[-batches - 3:]
        for path in files[:-batches - 3]:
            shutil.copy(path, here)
        options = parser().parse_args(["follow", "--archive", str(here), "--out", str(out)])
        lake = _Session(options).lake
        told: list[float] = []

        def batch() -> None:
            with Path(os.devnull).open("w") as nothing:
                said, sys.stdout = sys.stdout, nothing
                try:
                    commands._run(lake, options)
                finally:
                    sys.stdout = said

        following = Following(str(here), str(out), Pace(audit_s=1e9), batch, lambda: None)
        with quiet():
            for copied in ([], *([each] for each in new[:-2])):
                for each in copied:
                    shutil.copy(each, here)
                before = time.process_time()
                following.look()
                told.append(time.process_time() - before)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        where = ("--archive", str(here), "--out", str(out))
        found = {"first": told[0], "batches": len(told) - 1, "median": statistics.median(told[1:]),
                 "most": max(told[1:]), "memory": memory}
        shutil.copy(new[-2], here)
        found["run"] = alone("run", *where, "--incremental")
        shutil.copy(new[-1], here)
        found["refresh"] = alone("refresh", *where)
        basis = size(here)
        shutil.rmtree(out / "report")
        found |= {"archive": basis, "out": size(out)}
        alone("compact", "--out", str(out), "--keep-days", "0")
        found |= {"compacted": size(out), "load": os.getloadavg()[0]}
        sys.stdout.write(json.dumps({key: round(value, 3) for key, value in found.items()}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
