"""The features of other task queues that TASKS's table says were tried. Each library has a process
of its own, for it leaves threads behind."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys

import pytest

from tests.bench.instance import BenchError
from tests.bench.peers import software
from tests.bench.tasks.tried.trials import LIBRARIES
from tests.tidy.tree import ROOT

WAIT_S = 600


def _redis() -> bool:
    try:
        software.program("usr/bin/redis-server")
    except BenchError:
        return False
    return True


def _there(library: str) -> bool:
    if library == "bullmq":
        return (software.HOME / "node/node_modules/bullmq").is_dir() and _redis()
    if library == "river":
        return (software.HOME / "river/go.mod").is_file() and shutil.which("go") is not None
    return importlib.util.find_spec(library) is not None and (library != "rq" or _redis())


@pytest.mark.parametrize("library", LIBRARIES)
def test_it_does(library: str) -> None:
    if not _there(library):
        pytest.skip("the extra `peers` is not installed (make setup-peers; for BullMQ also npm "
                    "install --prefix build/peers/node bullmq ioredis; for River a Go module, see "
                    "river_tried.py)")
    done = subprocess.run([sys.executable, "-m", "tests.bench.tasks.tried.trials", library],
                          cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) > 5
