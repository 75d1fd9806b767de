"""The fuzzer on a build with gcc's address and undefined-behaviour sanitizers.

    python -m tests.forms.sanitized COUNT [SEED [RUN]]

COUNT requests are made in runs of RUN (default 100,000), each a process with a server and a seed of
its own, one after the other from SEED (default 1): what is found is repeated by one seed, and many
beginnings see more than one long life. Each run that has ended is a line, which says with which
seed the next goes on, so a cut search is continued with that and what is left.

Exit code 0: nothing was found; 77: there is no compiler with sanitizers; else that of the run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.forms.running import ROOT

ABSENT: Final = 77
RUN: Final = 100_000


def library() -> str:
    """The sanitizer's own library; empty: there is none."""
    if shutil.which("gcc") is None:
        return ""
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], text=True, check=True,
                           stdout=subprocess.PIPE).stdout.strip()
    return found if Path(found).is_absolute() else ""


def runs(count: int, seed: int, most: int) -> Iterator[tuple[int, int]]:
    """How many requests each run makes, and its seed."""
    while count > 0:
        yield min(count, most), seed
        count, seed = count - most, seed + 1


def main(arguments: list[str]) -> int:
    """Build and fuzz."""
    preload = library()
    if not preload:
        return ABSENT
    count, seed, most = map(int, (*arguments, *("1", RUN)[len(arguments) - 1 :]))
    with tempfile.TemporaryDirectory(prefix="omq-sanitized-") as folder:
        copy = Path(folder) / "omq"
        shutil.copytree(ROOT / "lib" / "omq", copy,
                        ignore=shutil.ignore_patterns("__pycache__", "compiled"))
        subprocess.run([sys.executable, str(ROOT / "setup_compiled.py"), "--library", str(copy),
                        "--required", "--sanitize"], check=True)
        environment = os.environ | {
            "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0", "OMQ_FAST": "compiled",
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONMALLOC": "malloc",
            "PYTHONDONTWRITEBYTECODE": "1"}
        left = count
        for requests, number in runs(count, seed, most):
            code = subprocess.run(
                [sys.executable, "-m", "tests.forms.fuzzing", str(requests), str(number)],
                cwd=ROOT, env=environment, check=False).returncode
            if code:
                print(f"seed {number}: exit code {code}", flush=True)
                return code
            left -= requests
            print(f"seed {number}: nothing found in {requests:,}; go on: {left} {number + 1}",
                  flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
