"""A machine for tests: a real systemd in namespaces, made by the program `sandbox`.

Waiting is always for a condition that is asked for again and again, with one generous bound: a test
that fails says what it waited for.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

SANDBOX = Path(__file__).with_name("sandbox")
CANNOT = 77  # exit code of `sandbox`: this machine cannot make the namespaces
WAIT_S = 120.0
END_S = 300
PREFIX = "/opt/omq"
REQUIRED = "OMQ_SYSTEM_TESTS"
"""`required` makes a machine that cannot boot a sandbox a failure; .ci/run sets it."""


class Box:
    """One sandbox."""

    def __init__(self, state: Path, binds: dict[Path, str] | None = None) -> None:
        self._state = state
        words = [word for source, goal in (binds or {}).items()
                 for word in ("--bind", f"{source}:{goal}")]
        result = subprocess.run([SANDBOX, state, "start", *words], check=False, timeout=END_S,
                                capture_output=True, text=True)
        if result.returncode == CANNOT:
            _cannot(result.stderr)
        assert result.returncode == 0, result.stderr

    def run(self, *words: object, code: int | None = 0, given: str = "") -> str:
        """Run a command as root; its stdout and stderr together. `code` None: any exit code."""
        command = [str(SANDBOX), str(self._state), "exec", *map(str, words)]
        result = subprocess.run(command, check=False, input=given, timeout=END_S,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if code is not None:
            assert result.returncode == code, f"{words}: {result.returncode}\n{result.stdout}"
        return result.stdout

    def sh(self, script: str, code: int | None = 0) -> str:
        """Run a shell script as root."""
        return self.run("sh", "-euc", script, code=code)

    def write(self, path: str, text: str, mode: str = "644") -> None:
        """Make a file and the directories to it."""
        self.run("sh", "-euc", 'mkdir -p "$(dirname "$1")"; cat > "$1"; chmod "$2" "$1"', "-",
                 path, mode, given=text)

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit).strip()

    def show_each(self, units: Sequence[str], name: str) -> list[str]:
        """The same property of several units, in their order."""
        said = self.run("systemctl", "show", f"--property={name}", *units)
        return re.findall(rf"^{name}=(.*)$", said, re.MULTILINE)

    def pid(self, unit: str) -> int:
        return int(self.show(unit, "MainPID"))

    def kill(self, signal: str, pid: int) -> None:
        """Send a signal to one process inside."""
        assert pid > 1, f"pid {pid} would be a group, or the init"
        self.run("kill", f"-{signal}", pid)

    def active(self, unit: str) -> str:
        return self.show(unit, "ActiveState")

    def journal(self, *words: str) -> list[dict[str, Any]]:
        """Journal entries, oldest first: also what a unit said that has ended just now."""
        self.run("journalctl", "--sync")
        text = self.run("journalctl", "--no-pager", "-o", "json", "--all", *words)
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def messages(self, *words: str) -> list[str]:
        return [str(entry.get("MESSAGE")) for entry in self.journal(*words)]

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Until the condition holds. Each look takes the time of a process or more, and the
        processor is left to what is waited for twice as long."""
        deadline = time.monotonic() + WAIT_S
        while (begin := time.monotonic()) < deadline:
            if condition():
                return
            select.select([], [], [], 2 * (time.monotonic() - begin))
        pytest.fail(f"waited in vain for: {what}\n" + self.run(
            "sh", "-c", "systemctl --no-pager --all list-units 'omq*'; journalctl -n 60 --no-pager",
            code=None))

    def stop(self, *, in_order: bool = True) -> None:
        """Power-off, or a pulled plug; nothing is left behind."""
        environ = os.environ if in_order else os.environ | {"STOP_TIMEOUT": "0"}
        subprocess.run([SANDBOX, self._state, "stop"], check=True, timeout=END_S, env=environ)
        assert not self._state.exists()


def _cannot(reason: str) -> None:
    text = f"THE TESTS UNDER A REAL SYSTEMD DID NOT RUN: {reason.strip()}"
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(text)
    pytest.skip(text)
