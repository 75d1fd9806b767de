"""Services killed at their named points, while real mail goes through all of them.

The demo judges: every recipient has every message, byte for byte. Everything within omq happens
exactly once; what goes out by SMTP does so at least once, for a reader that dies between the peer's
250 and its `done` sends again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.test_fault_points import ELSEWHERE

ONCE = {
    "smtp.before_put": 11, "smtp.after_put": 30, "router.before_move": 2, "local.before_rename": 5,
    "local.after_rename": 9, "errmgr.before_move": 1,
    "idel.before_delete": 1, "idel.after_delete": 1, "container.before_unlink": 1,
}
"""Points and at which visit the process dies; a repetition must not show."""
AT_LEAST_ONCE = (
    {"unix.before_send": 3, "reader.before_done": 12},
    {"unix.after_send": 3, "reader.after_done": 14, "reader.after_next": 10},
)
"""One of the batch that was sent before is sent again: its `done` goes with the next request. The
scheduler of unix.out takes mail while other mail is on its way."""
OF_CLIENTS = {
    "client.before_request", "client.after_request", "client.after_reply",
    "container.before_sync", "container.after_sync",
}
"""tests/process/test_readers.py."""
OF_CHANNELS = {name for name in ELSEWHERE if name.startswith("channel.")}
"""tests/process/test_channels.py and test_channel.py."""
OF_MAILDROP = {"drop.after_file", "drop.after_put"}
"""tests/process/test_maildrop.py."""
OF_STANDBYS = {"put_again.after_put"}
"""tests/process/test_standby_aside.py."""
END_S = 600


def run(points: dict[str, int], tmp_path: Path) -> tuple[int, str]:
    """The demo with deaths at `points`; each of them must have happened. (exit code, output)"""
    log = tmp_path / "faults"
    faults = ";".join(f"{name}:kill:{visit}" for name, visit in points.items())
    own = ("OMQ_DEMO_MAIL", "CRASH", "SEED", "CONNECTIONS")
    environment = {name: text for name, text in os.environ.items() if name not in own}
    environment |= {"OMQ_FAULT": faults, "OMQ_FAULT_LOG": str(log), "N": "300", "KEEP": "0",
                    "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "tests.demo"], env=environment, check=False,
                          capture_output=True, text=True, timeout=END_S)
    fired = {line.split(":")[0] for line in log.read_text().splitlines()}
    assert fired == set(points), done.stdout
    return done.returncode, done.stdout + done.stderr


def test_deaths_of_services_do_not_show(tmp_path: Path) -> None:
    code, output = run(ONCE, tmp_path)
    assert code == 0, output


@pytest.mark.parametrize("points", AT_LEAST_ONCE, ids="+".join)
def test_deaths_around_a_delivery_lose_nothing(points: dict[str, int], tmp_path: Path) -> None:
    code, output = run(points, tmp_path)
    assert code == 0 or re.search(r"^FAILED: \d+ double$", output, re.MULTILINE), output
