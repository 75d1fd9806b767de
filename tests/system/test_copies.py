"""The units of what keeps a second copy, under a real systemd: omq-ship with a directory of another
disk, and omq-standby-keep with an etcd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.etcd_cluster import PROGRAM
from tests.system.box import Box
from tests.system.conftest import CONF
from tests.system.work import depths, put, start

SHIP, KEEP = "omq-ship.service", "omq-standby-keep.service"
PLACE = "/srv/backup/omq"
ETCD = "http://127.0.0.1:2379"
KEPT = f"""
[standby]
standby_lease = {ETCD}
standby_lease_s = 4
"""


def shipped(box: Box) -> dict[str, Any]:
    said = box.run("omq", "ship", "status", "--json", code=None)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def all_there(box: Box) -> bool:
    found = shipped(box)
    return found.get("waits_s") == 0 and found["base_time_ns"] > 0 and not found["problem"]


def test_the_unit_ships_and_is_started_again(installed: Box) -> None:
    """As SHIP sets it up: the directory is opened for the unit, which may write to no other."""
    box = installed
    box.write("/etc/omq/omq.conf", f"{CONF}\n[ship]\nship_to = file://{PLACE}\n"
              "ship_interval_ms = 50\n")
    box.sh(f"mkdir -p {PLACE}; chown omq {PLACE}")
    start(box)
    put(box, 0, 10)
    box.run("systemctl", "enable", "--now", SHIP)
    box.wait("the closed directory", lambda: "Read-only" in shipped(box).get("error", ""))
    said = box.run("omq", "health", code=1)
    assert "not shipped as it should be" in said and "Read-only" in said
    box.write(f"/etc/systemd/system/{SHIP}.d/place.conf", f"[Service]\nReadWritePaths={PLACE}\n")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", SHIP)
    box.wait("everything there", lambda: all_there(box))
    killed = box.pid(SHIP)
    box.kill("KILL", killed)
    put(box, 10, 20)
    box.wait("the next one", lambda: box.pid(SHIP) not in (0, killed))
    box.wait("the rest", lambda: shipped(box).get("pid") == box.pid(SHIP) and all_there(box))
    box.run("systemctl", "stop", SHIP)
    assert box.show(SHIP, "Result") == "success"
    said = box.run("omqrecover", "restore", "/var/tmp/then", "--from", f"file://{PLACE}")
    assert "copy to look at" in said
    said = box.run("omqrecover", "extract", "/var/tmp/then", "--where", "queue=ORDERS", "--to",
                   "/var/tmp/out")
    assert "20 messages written" in said
    box.run("systemctl", "stop", "omq.target")


@pytest.fixture
def etcd(installed: Box) -> Iterator[Box]:
    """One member, in the machine."""
    box = installed
    if box.run("which", PROGRAM, code=None).strip() == "":
        pytest.skip("etcd is absent (Debian package etcd-server)")
    box.run("systemd-run", "--unit=etcd", "--property=Type=notify", PROGRAM, "--data-dir",
            "/var/tmp/etcd")
    yield box
    box.run("systemctl", "stop", "etcd")


def serves(box: Box) -> bool:
    return (box.show(KEEP, "StatusText") == "primary of term 0, lease held, serve runs"
            and box.sh("ls /var/lib/omq/run").find("qmgr.sock") >= 0)


def test_the_keeper_serves_as_long_as_it_has_the_lease(etcd: Box) -> None:
    box = etcd
    box.write("/etc/omq/omq.conf", CONF + KEPT)
    box.run("runuser", "-u", "omq", "--", "omq", "standby", "register")
    box.run("systemctl", "enable", "--now", KEEP)
    box.wait("the daemons", lambda: serves(box))
    put(box, 20, 25)
    killed = box.pid(KEEP)
    box.kill("KILL", killed)
    box.wait("the next keeper", lambda: box.pid(KEEP) not in (0, killed) and serves(box))
    assert int(box.show(KEEP, "NRestarts")) == 1
    put(box, 25, 30)
    assert depths(box)["ORDERS"] == 30
    box.run("systemctl", "stop", KEEP)
    assert box.show(KEEP, "Result") == "success"
    box.run("pgrep", "-u", "omq", code=1)
    assert box.sh("ipcs -q -m | grep -w omq || true") == ""
    box.run("systemctl", "start", KEEP)
    box.wait("the daemons again", lambda: serves(box))
    start(box)  # not both: a lease would bind one of them alone
    box.wait("the keeper's end", lambda: box.active(KEEP) in ("inactive", "failed"))
    box.run("systemctl", "stop", "omq.target")  # 0: its drain waits for nobody of the keeper's
    box.run("pgrep", "-u", "omq", code=1)
