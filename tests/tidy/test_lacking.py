"""Where something is missing that a test needs, it is skipped with the reason, and never fails.

What most machines lack: each is taken away from a pytest of its own. Without root, a compiler and
most of these everything runs in CI's minimal Debian; this says sooner which one it was.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.daemons import world
from tests.needs import NO_JAVA, NO_TERMINAL
from tests.tidy.tree import ROOT

PROGRAMS: list[tuple[str, str, int, *tuple[str, ...]]] = [
    ("java", NO_JAVA, 2, "tests/spark/test_walkthrough.py",
     "tests/spark/test_failures.py::test_a_jvm_that_is_killed_is_told_in_a_line"),
    ("strace", "install strace", 1, "tests/crash/sim/test_trace.py"),
    ("groff", "install groff-base", 1, "tests/unit/cli/test_manual.py"),
    ("zsh", "install zsh", 1, "tests/unit/cli/test_manual.py"),
    ("promtool", "promtool is absent", 1, "tests/unit/watch/test_metrics.py"),
    ("prometheus", "prometheus", 1, "tests/process/test_prometheus.py"),
    ("unshare", "no unshare here", 1, "tests/unit/storage/test_full_disk.py"),
    ("mount", "no mount", 1, "tests/unit/storage/test_full_disk.py"),
    ("mount", "no mount", 1, "tests/process/test_full_disk_embedded.py"),
    ("chromium", "no browser", 1, "tests/process/test_web_browser_trouble.py"),
    ("wapiti", "wapiti", 1, "tests/process/test_web_scanner.py"),
    ("node", "rhea", 1, "tests/process/test_amqp_rhea.py"),
]
TERMINALS = ["tests/unit/cli/test_manual.py", "tests/unit/omqdump/test_terminal.py",
             "tests/process/test_omtop.py"]
END_S = 600


def without(program: str, folder: Path) -> str:
    """A PATH that has all but this program, and those whose names begin so."""
    for place in os.environ["PATH"].split(":"):
        for path in sorted(Path(place).glob("*")):
            link = folder / path.name
            if not path.name.startswith(program) and not link.is_symlink():
                link.symlink_to(path)
    return str(folder)


def run(words: list[str], tests: list[str] | tuple[str, ...], **environ: str) -> str:
    """The end of a pytest, which must be good."""
    known = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    done = subprocess.run(
        [*words, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], cwd=ROOT,
        env=known | environ, capture_output=True, text=True, check=False, timeout=END_S)
    assert done.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout[-6000:]
    return done.stdout


@pytest.mark.parametrize("case", PROGRAMS, ids=lambda case: f"{case[0]}-{Path(case[3]).stem}")
def test_a_program_that_is_missing(tmp_path: Path, case: tuple[str, str, int, *tuple[str, ...]]
                                   ) -> None:
    program, reason, least, *tests = case
    if "spark" in tests[0]:
        pytest.importorskip("pyspark", reason="make setup-spark installs it")
    said = run([], tests, PATH=without(program, tmp_path))
    told = sum(int(count) for count, why in re.findall(r"^ *(\d+)  (.+)$", said, re.MULTILINE)
               if reason in why)
    # Something else may be missing, too, which is said first.
    assert told >= least or "did not run" in said, said


def test_terminals_that_are_not_mounted(tmp_path: Path) -> None:
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("mounting needs root")
    hide = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
            'mount -t tmpfs none /dev/pts && exec "$@"', "hide"]
    said = run(hide, [*TERMINALS, "-k", "terminal or zsh"])
    told = re.findall(rf"^ +(\d)  (?:{re.escape(NO_TERMINAL)}|install zsh)$", said, re.MULTILINE)
    assert sum(map(int, told)) == 5 and NO_TERMINAL in said, said


def test_fuse_that_is_missing_and_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path
                                                 ) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(world, "FUSE", tmp_path / "fuse")
    monkeypatch.setattr(os, "mknod", refused)
    with pytest.raises(pytest.skip.Exception, match="NO FUSE TESTS"):
        world.need_fuse()
