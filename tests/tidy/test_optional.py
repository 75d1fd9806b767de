"""What is optional is built quietly, and named in a line when it could not be (tools/optional)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.tidy.tree import ROOT


def optional(folder: Path, *words: str) -> str:
    done = subprocess.run([ROOT / "tools/optional", folder, *words], capture_output=True,
                          text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_what_is_built_is_not_named(tmp_path: Path) -> None:
    assert optional(tmp_path, "try", "a good thing", "sh", "-c", "echo noise; echo more >&2") == ""
    assert optional(tmp_path, "told") == ""


def test_what_cannot_be_built_is_one_line_with_the_file_that_says_why(tmp_path: Path) -> None:
    for what in ("the first (apt-get install gcc)", "the second, too"):
        assert optional(tmp_path, "try", what, "sh", "-c", "seq 100; echo why >&2; false") == ""
    (line,) = optional(tmp_path, "told").splitlines()
    assert line.startswith("optional, and not built here: the first (apt-get install gcc), see ")
    logs = re.findall(r"see ([^;]+/log)", line)
    assert len(logs) == 2
    assert all("100\nwhy\n" in Path(log).read_text() for log in logs)
    optional(tmp_path, "try", "the first (apt-get install gcc)", "true")
    assert "the first" not in optional(tmp_path, "told")


def test_the_two_commands_end_with_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("run", "test", "test-all"):
        (recipe,) = re.findall(rf"^{target}:.*\n((?:(?:\t|if|else|endif).*\n)+)", makefile, re.M)
        lines = [line for line in recipe.splitlines() if line.startswith("\t")]
        assert lines and all(line.endswith("; $(TOLD)") for line in lines), lines
    assert not re.search(r"^\t-\$\(BIN\)/python -m pip", makefile, re.MULTILINE)
