"""The examples of PYTHON.md run, one behind the other, on one instance."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import omq
import omq.aio
from tests.process.instance import Instance
from tests.process.processes import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "lib/omq/docs/PYTHON.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
QUEUES = "[*]\n\n[ORDERS]\n\n[AUDIT]\n\n[REPLIES]\n\n[SHIPPED]\n"


def test_the_examples_of_the_guide_run(omq_instance: Instance) -> None:
    omq_instance.queues(QUEUES)
    omq_instance.start()
    omq_instance.ready()
    assert len(BLOCKS) >= 10
    for number, block in enumerate(BLOCKS):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block], capture_output=True, text=True,
            timeout=WAIT_S, check=False,
            env={"OMQ_SPOOL": str(omq_instance.root), "PYTHONPATH": str(ROOT / "lib")})
        assert done.returncode == 0, f"example {number}:\n{block}\n{done.stderr}"
    for queue in ("ORDERS", "AUDIT", "SHIPPED"):
        omq_instance.drain(queue)


def test_the_guide_names_every_class_and_the_errors_that_it_tells_of() -> None:
    classes = {name for name in omq.__all__ if name in (
        "Browsed", "Connection", "Message", "Outgoing", "Reader", "Unit")}
    assert all(f"`omq.{name}`" in GUIDE for name in classes)
    told = set(re.findall(r"\b(?:Connection(?:Busy|Closed|Forked)|[A-Z][a-z]+(?:[A-Z][a-z]+)+)\b",
                          GUIDE))
    known = {*omq.__all__, *omq.aio.__all__, "ValueError", "KeyboardInterrupt", "SystemExit",
             "OpenTelemetry", "TracerProvider"}
    assert told <= known, told - known
