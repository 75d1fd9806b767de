"""Adding a frame type is adding a row: redo, ledger, history and text follow it (Spark's reading:
tests/spark/test_spark.py)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.tidy.tree import ROOT

GONE = list(range(1, 10, 2))
LEFT_ONE = list(range(11, 21, 2))  # of their two queues


@pytest.mark.parametrize("many", [1, 1 << 20], ids=["in bulk", "one by one"])
def test_readers_follow_a_new_row(many: int) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.unit.format.new_row", str(many)], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    there = [qpool for qpool in range(1, 21) if qpool not in GONE]
    assert found["queues"] == {
        str(qpool): [4] if qpool in LEFT_ONE else [3] if qpool < 11 else [3, 4]
        for qpool in there}
    assert found["ledger"] == there and found["changed"] == LEFT_ONE
    assert found["words"] == "expired on LOCAL; it is gone"
