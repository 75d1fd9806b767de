"""A file system of few bytes, for what happens when it is full."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(root: Path, megabytes: int, inodes: int = 0) -> Iterator[Path]:
    """A tmpfs on `root`, gone behind the block; skips where mounting is not allowed. `inodes` 0:
    as many as the kernel gives it."""
    root.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("no mount: apt-get install mount")
    options = f"size={megabytes}m,mode=0755" + (f",nr_inodes={inodes}" if inodes else "")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root)],
                          check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("mounting needs root")
    try:
        yield root
    finally:
        try:
            subprocess.run(["umount", str(root)], check=True)
        except subprocess.CalledProcessError:  # a file is open there: an error, but no mount stays
            subprocess.run(["umount", "--lazy", str(root)], check=True)
            raise
