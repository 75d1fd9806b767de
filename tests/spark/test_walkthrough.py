"""What `make analytics` runs, line by line, each in a process of its own as people have it: the
session of another test once hid that a command needed one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import needs
from tests.tidy.tree import ROOT

MESSAGES = 2000
ENDS_S = 240


def recipe(target: str) -> list[str]:
    """The lines of a target of the Makefile, as make gives them to the shell."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert found is not None
    return found[1].replace("\\\n", " ").replace("\t", "").splitlines()


@needs.java
def test_make_analytics_does_what_it_says(tmp_path: Path) -> None:
    python = f"{sys.executable} -m"
    words = {"$(ANALYTICS)": str(tmp_path / "made"), "$(BIN)/python -m": python, "$$": "$",
             "$(BIN)/omq-spark": f"{python} omq.cli.launch omq-spark",
             "--messages 100000": f"--messages {MESSAGES}"}
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    for line in recipe("analytics"):
        for word, meant in words.items():
            line = line.replace(word, meant)
        assert "$(" not in line, line
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False,
            env=environment | {"SPARK_LOCAL_DIRS": str(tmp_path), "HOME": str(tmp_path)},
            timeout=ENDS_S)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        assert "Traceback" not in done.stderr and "ERROR" not in done.stderr, done.stderr[-3000:]
    page = (tmp_path / "made/tables/report/report.html").read_text(encoding="utf-8")
    assert "What was unusual" in page and "lost messages" in page
