"""Runs of tests.forms.workload in a process of its own, and where two of them part."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Run:
    """What one form did: a line a group, and its last words."""

    lines: tuple[str, ...]
    code: int
    said: str

    @property
    def fast(self) -> int:
        """Requests that the fast path took."""
        return int(self.said.rpartition("fast ")[2].split()[0])

    @property
    def requests(self) -> int:
        return int(self.said.split()[1])

    @property
    def full(self) -> int:
        """Turns that did all that time may bring."""
        return int(self.said.split()[3])

    @property
    def form(self) -> str:
        return self.said.rpartition("form ")[2].split()[0]


def begin(folder: Path, form: str, *arguments: str, library: Path = ROOT / "lib"
          ) -> subprocess.Popen[str]:
    """A workload in its own process, on a spool in `folder`."""
    folder.mkdir(parents=True)
    environment = os.environ | {"OMQ_FAST": form, "PYTHONPATH": f"{library}{os.pathsep}{ROOT}",
                                "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.forms.workload", str(folder / "spool"), *arguments],
        cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end(process: subprocess.Popen[str]) -> Run:
    """What came of it."""
    out, said = process.communicate()
    return Run(tuple(out.splitlines()), process.returncode, said)


def end_beside(process: subprocess.Popen[str], known: Run) -> Run:
    """The same of one that need not go on where it parts from a known run: there it is killed."""
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if (lines[-1],) != known.lines[len(lines) - 1 : len(lines)]:
            process.kill()
            break
    _, said = process.communicate()
    return Run(tuple(lines), process.returncode, said)


WHAT: Final = ("the index", "what was written", "what was answered", "the engine's memory")


def parting(one: Run, other: Run) -> str:
    """Where two runs part; empty: nowhere."""
    for number, (a, b) in enumerate(zip(one.lines, other.lines, strict=False)):
        if a != b:
            apart = [what for what, x, y in zip(WHAT, a.split(), b.split(), strict=True) if x != y]
            return f"group {number}: {', '.join(apart)}"
    if (one.code, len(one.lines)) != (other.code, len(other.lines)):
        failed = one if one.code else other
        return f"after {min(len(one.lines), len(other.lines))} groups: {failed.said[-300:]}"
    return ""
