"""A long replay: it says how far it is, asks for more time, and is not killed half-way."""

from __future__ import annotations

import re

from tests.system.box import PREFIX, Box
from tests.system.conftest import CONF
from tests.system.work import moment

UNIT = "omq-queue-manager"
MESSAGES = 200_000
LARGE = """\
[pool]
checkpoint_interval_s = 3600
"""
FILL = """\
import omq, sys
with omq.connect(name="fill") as connection:
    for _ in range(int(sys.argv[1]) // 1000):
        connection.put_many("ORDERS", [b"order"] * 1000)
with omq.connect(name="look") as connection, connection.reader("ORDERS", batch=1000) as reader:
    for _ in range(60):  # each hand-out and each return is history too
        for message in reader.next(timeout_s=60):
            message.release()
"""


def _start_s(box: Box) -> float:
    """How long the manager's last start took."""
    return (moment(box, UNIT, "ActiveEnter") - moment(box, UNIT, "ExecMainStart")) / 1_000_000


def test_a_long_replay_is_not_killed_by_the_start_time_out(installed: Box) -> None:
    """The time-out goes by how long a start without replay takes on this machine, as it is now."""
    conf = re.sub("(messages|entries)_max = .*", rf"\1_max = {2 * MESSAGES}", CONF) + LARGE
    installed.write("/etc/omq/omq.conf", conf)
    installed.run("systemctl", "start", UNIT)  # without pool.writer there is no checkpoint
    timeout_s = max(2, round(4 * _start_s(installed)))
    installed.run(f"{PREFIX}/bin/python", "-c", FILL, MESSAGES)
    # Each sign of life buys no more than the time-out itself.
    installed.write("/etc/omq/omq.conf", conf.replace(
        "[daemons]\n", f"[daemons]\nstart_timeout_s = {timeout_s}\n"))
    installed.write(f"/etc/systemd/system/{UNIT}.service.d/own.conf",
                    f"[Service]\nTimeoutStartSec={timeout_s}\n")
    installed.run("systemctl", "daemon-reload")
    before = installed.pid(UNIT)
    installed.kill("KILL", before)
    installed.wait("the next one", lambda: installed.pid(UNIT) not in (0, before))
    pid = installed.pid(UNIT)
    said: list[str] = []

    def ready() -> bool:
        shown = installed.run("systemctl", "show", "--property=ActiveState,StatusText", UNIT)
        found = dict(line.split("=", 1) for line in shown.splitlines())
        said.append(found["StatusText"])
        return found["ActiveState"] == "active"

    installed.wait("it to be ready", ready)
    assert installed.pid(UNIT) == pid
    assert installed.show(UNIT, "NRestarts") == "1"
    percents = [int(each) for each in re.findall(r"redoing the journal: (\d+) %", "\n".join(said))]
    assert len(set(percents)) > 1, said
    assert percents == sorted(percents)
    assert _start_s(installed) > timeout_s, "too little to replay: raise MESSAGES"
    assert f"messages={MESSAGES} " in " ".join(installed.messages("-u", UNIT, "OMQ_EVENT=1203"))
