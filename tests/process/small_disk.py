"""A file system of few bytes, for what happens when it is full."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(root: Path, megabytes: int) -> Iterator[Path]:
    """A tmpfs on `root`, gone behind the block; skips where mounting is not allowed."""
    root.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("no mount: apt-get install mount")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs",
                           str(root)], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("mounting needs root")
    try:
        yield root
    finally:
        subprocess.run(["umount", str(root)], check=True)
