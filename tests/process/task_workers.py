"""Workers of a task library as processes, and programs that give them tasks: what the tests of
Celery, dramatiq and omq worker share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.process.instance import Instance
from tests.process.processes import WAIT_S

ROOT: Final = Path(__file__).resolve().parents[2]
LOOK_S: Final = 0.02
"""Between two looks at what other processes write."""


def _environment(instance: Instance) -> dict[str, str]:
    return {**os.environ, "OMQ_TEST_URL": f"omq://{instance.root}", "PYTHONPATH": str(ROOT)}


def log_path(instance: Instance) -> Path:
    return instance.root.parent / "worker.log"


def said(instance: Instance) -> str:
    """By the workers, until now."""
    return log_path(instance).read_text(errors="replace")


@contextmanager
def running_worker(instance: Instance, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A module of Python's with its processes; stopped in order at the end, if it still runs."""
    with log_path(instance).open("ab") as log, subprocess.Popen(
            [sys.executable, "-m", *words], cwd=ROOT, env=_environment(instance), stdout=log,
            stderr=log, start_new_session=True) as made:
        try:
            yield made
            if made.poll() is None:
                made.terminate()
                assert made.wait(WAIT_S) == 0, said(instance)
        finally:
            if made.poll() is None:
                os.killpg(made.pid, signal.SIGKILL)


def drive(instance: Instance, imports: Sequence[str], code: str) -> Any:
    """The client's side, in a process of its own; what it prints, as JSON."""
    head = "\n".join(["import json, sys", *imports, ""])
    done = subprocess.run([sys.executable, "-W", "error", "-c", head + code], cwd=ROOT,
                          env=_environment(instance), capture_output=True, text=True,
                          timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr + said(instance)
    return json.loads(done.stdout) if done.stdout else None


def until(found: Callable[[], object], instance: Instance) -> None:
    """Look, until it is so."""
    ends, look = time.monotonic() + WAIT_S, threading.Event()
    while not found():
        assert time.monotonic() < ends, said(instance)
        look.wait(LOOK_S)


def lines(path: Path) -> list[str]:
    """Words that tasks have written; none yet where there is no file."""
    return path.read_text().split() if path.exists() else []
