"""The lines of START and TASKS run on the examples: in an instance a worker, then a client."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
TASKS = (ROOT / "lib/omq/docs/TASKS.md").read_text(encoding="utf-8")
START = (ROOT / "lib/omq/docs/START.md").read_text(encoding="utf-8")


def _lines(text: str) -> list[list[str]]:
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block.splitlines() for block in blocks]


LINES = _lines(TASKS)
FUNCTION = re.search(r"^```python\n(def .*?)^```$", TASKS, re.MULTILINE | re.DOTALL)
SPOOL = "/var/tmp/orders"  # what the examples use


def test_start_says_the_same() -> None:
    assert _lines(START) == LINES[:2]


def run_lines(instance: Instance, folder: Path, lines: list[str], shown: str) -> None:
    """A worker and its client; what is shown is said by one of the two."""
    worker, client = lines
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                   "OMQ_SPOOL": str(instance.root), "OMQ_CONF": str(instance.conf)}
    with subprocess.Popen(shlex.split(worker), cwd=folder, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True) as running:
        try:
            said = subprocess.run(["sh", "-c", client], cwd=folder, env=environment,
                                  capture_output=True, text=True, timeout=WAIT_S, check=True).stdout
            assert shown in said or heard(running, shown)
        finally:
            running.terminate()
            running.communicate(timeout=WAIT_S)


def heard(running: subprocess.Popen[bytes], shown: str) -> bool:
    """Whether the worker says it, in time and before it ends."""
    assert running.stdout is not None
    ends, said = time.monotonic() + WAIT_S, b""
    while shown.encode() not in said:
        left_s = max(0.0, ends - time.monotonic())
        assert select.select([running.stdout], [], [], left_s)[0], said
        more = os.read(running.stdout.fileno(), 65536)
        assert more, said
        said += more
    return True


@pytest.mark.parametrize(("library", "lines", "shown"), [
    ("celery", LINES[0], "8"), ("dramatiq", LINES[1], "3 words")])
def test_the_examples_run(omq_instance: Instance, tmp_path: Path, library: str, lines: list[str],
                          shown: str) -> None:
    pytest.importorskip(library, reason=f"the extra `{library}` is not installed")
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    folder = shutil.copytree(ROOT / "examples" / library, tmp_path / "example")
    for file in folder.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert SPOOL in text
        file.write_text(text.replace(SPOOL, str(omq_instance.root)), encoding="utf-8")
    run_lines(omq_instance, folder, lines, shown)
    for name in ("CELERY.RESULTS",) if library == "celery" else ():
        omq_instance.drain(name)


def test_a_function_runs(omq_instance: Instance, tmp_path: Path) -> None:
    omq_instance.queues("[*]\n\n[ORDERS]\n")
    omq_instance.start()
    omq_instance.ready()
    assert FUNCTION is not None
    (tmp_path / "tasks.py").write_text(FUNCTION[1], encoding="utf-8")
    run_lines(omq_instance, tmp_path, LINES[2], "shipped 7")
