"""`make run STANDBY=1`, small: the primary is lost with its spool in the middle, and every mail
that was accepted is at each of its recipients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.process.ipc_space import ipc_space

END_S = 600


def test_every_mail_survives_the_loss_of_the_primary(tmp_path: Path) -> None:
    own = ("OMQ_DEMO_MAIL", "CRASH", "SEED", "CONNECTIONS")
    environment = {name: text for name, text in os.environ.items() if name not in own}
    environment |= {"STANDBY": "1", "N": "120", "KEEP": "0", "TMPDIR": str(tmp_path)}
    with ipc_space() as space:
        done = subprocess.run([sys.executable, "-m", "tests.demo"], env=environment, check=False,
                              capture_output=True, text=True, timeout=END_S)
        left = space.objects() if space.own else set()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "and removed its spool" in done.stdout
    assert "the standby is the primary, and serves" in done.stdout
    assert "OK: every recipient has every message exactly once" in done.stdout
    assert not left, "nothing of the lost primary is left"
