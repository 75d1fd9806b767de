"""The features of other task queues that TASKS's table says were tried. Each library has a process
of its own, for it leaves threads behind."""

from __future__ import annotations

import importlib.util
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


@pytest.mark.parametrize("library", LIBRARIES)
def test_it_does(library: str) -> None:
    if importlib.util.find_spec(library) is None or (library == "rq" and not _redis()):
        pytest.skip("the extra `peers` is not installed (make setup-peers)")
    done = subprocess.run([sys.executable, "-m", "tests.bench.tasks.tried.trials", library],
                          cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) > 5
