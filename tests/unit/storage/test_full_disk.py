"""A disk that is really full: a small tmpfs in a mount namespace of its own (needs root)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
from omq.base.errors import DiskError, SpoolFull
from omq.storage import disk_usage
from omq.storage import containers, durable, files, journal
from omq.storage.spool import create_spool
from tests.unit.storage.world import SETTINGS, Journal

spool = create_spool(Path(sys.argv[1]) / "spool")
writer = Journal(spool)                      # 256 KiB of zeros
full = 0
while not full:                              # containers eat the rest
    try:
        containers.create(spool.paths, [bytes(40_000)])
    except SpoolFull as error:
        assert error.fields["detail"], error
        full = 1
assert durable.latched() is None
assert disk_usage.free(spool.paths, SETTINGS).low
try:
    journal.prepare_next(spool.paths, SETTINGS)
    raise SystemExit("a journal file was made on a full disk")
except SpoolFull:
    pass
assert not list(spool.paths.journal.glob("*.tmp"))
for _ in range(20):                          # done, move, delete: the filled file takes them
    writer.put(b"x" * 100)
try:
    files.open_file(spool.paths.uuid, write=True).write([bytes(1 << 20)], 4096)
    raise SystemExit("written beyond the end of the disk")
except DiskError:
    assert durable.latched() is not None
print("survived")
"""


def test_full_disk(tmp_path: Path) -> None:
    inside = f"mount -t tmpfs -o size=1m none {tmp_path} && exec {sys.executable} - {tmp_path}"
    for program in ("unshare", "mount"):
        if shutil.which(program) is None:
            pytest.skip(f"NOT TESTED: a full disk (no {program} here)")
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        command, input=SCRIPT, capture_output=True, text=True, timeout=300, check=False,
        env={"PYTHONPATH": f"{root}/lib:{root}", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})
    if "permitted" in done.stderr or "must be superuser" in done.stderr:
        pytest.skip("a full disk needs root")
    assert done.stdout == "survived\n", done.stderr
