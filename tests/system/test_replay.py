"""A long replay: it says how far it is, asks for more time, and is not killed half-way."""

from __future__ import annotations

import re
import time
from functools import partial

from tests.system.box import PREFIX, Box
from tests.system.conftest import CONF

UNIT = "omq-queue-manager"
MESSAGES = 20_000  # in blocks of 100 each
HELD_AT = (40, 80, 120, 160)  # blocks
TIMEOUT_S = 20  # for the start as a whole: no single step may take longer
HOLD_S = 5.5
LARGE = """\
[pool]
checkpoint_interval_s = 3600
"""
FILL = """\
import omq, sys
with omq.connect(name="fill") as connection:
    for _ in range(int(sys.argv[1]) // 100):
        connection.put_many("ORDERS", [b"order"] * 100)
"""


def _is_past(moment: float) -> bool:
    return time.monotonic() >= moment


def test_a_long_replay_is_not_killed_by_the_start_time_out(installed: Box) -> None:
    """The replay is stopped now and then, as a slow disk would: together for longer than a start
    may take. Without a sign of life in between systemd would kill it."""
    installed.write("/etc/omq/omq.conf", CONF + LARGE)
    installed.run("systemctl", "start", UNIT)  # without pool.writer there is no checkpoint
    installed.run(f"{PREFIX}/bin/python", "-c", FILL, MESSAGES)
    # Each sign of life buys no more than the time-out itself.
    installed.write("/etc/omq/omq.conf", CONF.replace(
        "[daemons]\n", f"[daemons]\nstart_timeout_s = {TIMEOUT_S}\n") + LARGE)
    stops = ";".join(f"recovery.in_redo:stop:{block}" for block in HELD_AT)
    installed.write(f"/etc/systemd/system/{UNIT}.service.d/own.conf", f"""\
[Service]
TimeoutStartSec={TIMEOUT_S}
Environment=OMQ_FAULT={stops} OMQ_FAULT_LOG=/var/lib/omq/fired
""")
    installed.run("systemctl", "daemon-reload")
    before = installed.pid(UNIT)
    installed.kill("KILL", before)
    installed.wait("the next one", lambda: installed.pid(UNIT) not in (0, before))
    pid = installed.pid(UNIT)

    def stopped() -> bool:
        return installed.sh(f"sed 's/.*) //' /proc/{pid}/stat").startswith("T")

    said: list[str] = []
    began = time.monotonic()
    for _ in HELD_AT:
        installed.wait("it to stop", stopped)
        said.append(installed.show(UNIT, "StatusText"))
        assert installed.active(UNIT) == "activating"
        installed.wait("a while", partial(_is_past, time.monotonic() + HOLD_S))
        installed.kill("CONT", pid)
    assert time.monotonic() - began > TIMEOUT_S, "else this shows nothing"
    installed.wait("it to be ready", lambda: installed.active(UNIT) == "active")
    assert installed.pid(UNIT) == pid
    assert installed.show(UNIT, "NRestarts") == "1"
    assert len(installed.sh("cat /var/lib/omq/fired").splitlines()) == len(HELD_AT)
    percents = [int(each) for each in re.findall(r"redoing the journal: (\d+) %", "\n".join(said))]
    assert len(percents) >= len(HELD_AT) - 1 and percents == sorted(set(percents)), said
    assert f"messages={MESSAGES} " in " ".join(installed.messages("-u", UNIT, "OMQ_EVENT=1203"))
