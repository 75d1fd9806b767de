"""An omq of an earlier day, from the history of this repository, unpacked and run beside this one:
what a rolling upgrade meets. Skips where there is no history (a source distribution, a clone
without depth)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omq.base.paths import SpoolPaths

COMMIT = "2baa55aec5f6b6b73245f673ca70b39553f9e35e"
"""Of 2026-11-28: the last one whose standbys noted every position with a sync of its own."""
ROOT = Path(__file__).parents[2]
_DURABLE = """
import sys
from pathlib import Path
from omq.base.paths import SpoolPaths
from omq.format.index import Counter
from omq.services.pool.live_index import LiveIndex
index = LiveIndex(SpoolPaths(Path(sys.argv[1])))
print(index.counter(Counter.DURABLE_LSN))
index.close()
"""


class OlderOmq:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("git") is None or subprocess.run(
                ["git", "-c", "safe.directory=*", "cat-file", "-e", COMMIT], cwd=ROOT, check=False,
                capture_output=True).returncode:
            pytest.skip("the history of the repository is not here")
        folder.mkdir()
        told = subprocess.run(["git", "-c", "safe.directory=*", "archive", COMMIT, "lib", "conf",
                               "units", "tools", "recovery"], cwd=ROOT, check=True,
                              capture_output=True)
        subprocess.run(["tar", "--extract", "--directory", str(folder)], input=told.stdout,
                       check=True)
        self._environment = dict(os.environ) | {"PYTHONPATH": str(folder / "lib")}
        self.command = ["env", f"PYTHONPATH={folder / 'lib'}", sys.executable, "-P", "-m",
                        "omq.cli.launch"]
        """Before the words of a program of it."""
        found = subprocess.run([sys.executable, "-P", "-c", "import omq; print(omq.__file__)"],
                               env=self._environment, capture_output=True, text=True, check=True)
        assert found.stdout.startswith(str(folder)), "another omq than the older one would run"

    def durable(self, paths: SpoolPaths) -> int:
        """LSN up to which the manager of this spool, an omq of that day, has acknowledged."""
        found = subprocess.run([sys.executable, "-P", "-c", _DURABLE, paths.root],
                               env=self._environment, capture_output=True, text=True, check=True)
        return int(found.stdout)
