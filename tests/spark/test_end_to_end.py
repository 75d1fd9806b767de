"""A real instance carries mail while its daemons are killed; its archive then accounts for all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omq.base.paths import SpoolPaths
from omq.cli import launch
from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.journal import numbers_in
from omq.storage.journal_retire import retire
from omqtools.omqspark.audit import audit
from omqtools.omqspark.lake import Lake, all_messages
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.report_tables import queue_names

MAILS = 80
END_S = 240


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[SpoolPaths, int]:
    """The spool of a demo with kills that ended well, all of its journal archived; how many mails
    it accepted."""
    base = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "tests.demo", "--count", str(MAILS), "--crash"]
    done = subprocess.run(command, env=os.environ | {"TMPDIR": str(base)}, timeout=END_S,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    accepted = re.search(rf"(\d+) accepted of {MAILS}\b", done.stdout)
    assert accepted is not None and int(accepted[1]) > MAILS / 2  # unknown users are refused
    assert "killed queue.manager" in done.stdout
    durable.use(Disk())
    (root,) = base.glob("omq-demo-*/spool")
    paths = SpoolPaths(root)
    for number in numbers_in(paths.journal):  # no daemon runs: the last one, too
        retire(paths, number, keep=True)
    code = launch.run("omq-archive", ["--spool", str(root), "--quiet"])
    assert code == 0
    assert len(numbers_in(paths.archive, ".oma")) >= 2, "each start of the manager begins a file"
    return paths, int(accepted[1])


def test_everything_is_accounted_for(spark: Any, demo: tuple[SpoolPaths, int], tmp_path: Path
                                     ) -> None:
    spool, mails = demo
    archive, out = str(spool.archive), str(tmp_path / "tables")
    run(spark, archive, out, incremental=False)
    lake = Lake(spark, out)
    verdict = audit(lake, archive, pool=spool.root)
    assert verdict["clean"], verdict["findings"]
    queues = {name: number for number, name in queue_names(lake).items()}
    events = lake.read("bronze").where("bad IS NULL")
    first = ", ".join(str(queues[name]) for name in ("ROUTER", "LOCAL", "UNIX"))  # smtp_straight
    accepted = events.where(f"type = 1 AND queue IN ({first}) AND unit = 0")
    assert accepted.select("qpool").distinct().count() == accepted.count() == mails
    messages = all_messages(lake)
    assert messages.where("ended = 0 AND persistent").count() == 0
    assert events.select("epoch").distinct().count() >= 2
