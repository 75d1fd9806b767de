"""A power-off in the middle of work drains too; a new version takes over messages in flight."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.system.box import PREFIX, Box
from tests.system.conftest import CONF, QUEUES
from tests.system.work import READER, depths, install_reader, put, seen

UID = 957  # the same on every boot


def _machine(state: Path, prefix: Path, spool: Path) -> Box:
    box = Box(state, {prefix: PREFIX, spool: "/var/lib/omq"})
    box.sh(f"groupadd -r -g {UID} omq; useradd -r -u {UID} -g omq omq")
    box.run(f"{PREFIX}/bin/omq", "setup")
    box.write("/etc/omq/omq.conf", CONF)
    box.write("/etc/omq/queues.conf", QUEUES)
    install_reader(box)
    return box


def test_power_off_drains_and_the_next_boot_goes_on(prefix: Path, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    os.chown(spool, UID, UID)
    spool.chmod(0o750)
    first = _machine(tmp_path / "first", prefix, spool)
    try:
        first.run("systemctl", "start", "omq.target")
        put(first, 0, 200)
        first.run("systemctl", "enable", "--now", READER)
        first.wait("the reader at work", lambda: len(seen(first)) >= 3)
    finally:
        first.stop()  # as a power-off
    events = [json.loads(line)["event"]
              for line in (spool / "logs/events.log").read_text().splitlines()]
    stopped = [number for number in events if number in (7202, 7002, 1502, 1202, 1422)]
    assert stopped[0] == 7202  # smtp.server, then the router, idel, the manager, the pool
    assert stopped[-3:] == [1502, 1202, 1422]
    done = [int(line) for line in (spool / "seen").read_text().split()]
    assert done == list(range(len(done)))
    second = _machine(tmp_path / "second", prefix, spool)
    try:
        second.run("systemctl", "start", "omq.target")
        second.run("systemctl", "enable", "--now", READER)
        second.wait("the rest", lambda: len(seen(second)) >= 200)
        assert seen(second) == list(range(200))
        said = json.dumps(second.journal("OMQ_EVENT=1304"))
        assert '"OMQ_CLEAN": "True"' in said
    finally:
        second.stop()


def test_an_upgrade_keeps_what_is_in_flight(installed: Box) -> None:
    installed.run("systemctl", "start", "omq.target")
    put(installed, 0, 100)
    install_reader(installed)
    installed.run("systemctl", "enable", "--now", READER)
    installed.wait("the reader at work", lambda: len(seen(installed)) >= 3)
    site = installed.sh(f"echo {PREFIX}/lib/python3*/site-packages/omq").strip()
    installed.sh(f"cp -a {PREFIX} /opt/next; cd /opt/next; grep -rlI '^#!{PREFIX}' bin |"
                 f" xargs sed -i 's,^#!{PREFIX},#!/opt/next,'; sed -i"
                 f" 's/__version__ = .*/__version__ = \"9.9.9\"/' {site.replace(PREFIX, '.')}"
                 "/__init__.py")
    assert "files written" in installed.run("/opt/next/bin/omq", "setup")
    installed.run("systemctl", "restart", "omq.target")
    assert "/opt/next/" in installed.run(
        "sh", "-c", f"tr '\\0' ' ' < /proc/{installed.pid('omq-queue-manager.service')}/cmdline")
    installed.wait("all messages", lambda: len(seen(installed)) >= 100)
    assert seen(installed) == list(range(100))
    assert depths(installed)["POISON"] == 0
    assert "9.9.9" in installed.run("sh", "-c", "omstat --version")


def test_a_newer_spool_is_refused_by_older_code(installed: Box) -> None:
    installed.run("systemctl", "stop", "omq.target")
    installed.sh("sed -i 's/\"format\": 1/\"format\": 2/' /var/lib/omq/instance.json")
    assert "failed" in installed.run("omrc", code=69)
    assert installed.show("omq-queue-manager.service", "ExecMainStatus") == "78"
    assert "use the newer omq" in " ".join(
        installed.messages("-u", "omq-queue-manager.service", "-n", "10"))
    installed.sh("sed -i 's/\"format\": 2/\"format\": 1/' /var/lib/omq/instance.json")
    installed.run("omrc")
