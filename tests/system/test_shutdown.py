"""A power-off in the middle of work drains too; a new version takes over messages in flight."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system.box import PREFIX, Box
from tests.system.conftest import CONF, QUEUES
from tests.system.work import READER, SEEN, depths, install_reader, put, seen, start

UID = 957  # the same on every boot
SERVICES = "".join(
    f"[{name}]\ntitle = {name}\nnumber = {number}\nkind = {kind}\nprogram = {program}\n{more}\n"
    for number, (name, kind, program, more) in enumerate((
        ("qmgr", "manager", "queue.manager", "nonstop = yes"),
        ("pool", "pool", "pool.writer", "nonstop = yes"),
        ("idel", "deleter", "idel.server", "queue = IDEL\nnonstop = yes"),
        ("router", "reader", "service.router", "queue = ROUTER"),
        ("smtp", "submitter", "smtp.server", "")), 1))
"""One of each kind: the order of stopping needs no more."""


SLOW = f"#!/bin/sh\nread -r n; echo $n >> {SEEN}; exec sleep 0.3\n"


@contextmanager
def _machine(state: Path, prefix: Path, spool: Path) -> Iterator[Box]:
    """A boot, and at the end a power-off in order, whatever went wrong."""
    box = Box(state, {prefix: PREFIX, spool: "/var/lib/omq"})
    try:
        box.sh(f"groupadd -r -g {UID} omq; useradd -r -u {UID} -g omq omq")
        box.write("/etc/omq/services.conf", SERVICES)
        box.run(f"{PREFIX}/bin/omq", "setup")
        box.write("/etc/omq/omq.conf", CONF)
        box.write("/etc/omq/queues.conf", QUEUES)
        install_reader(box)
        start(box)
        yield box
    finally:
        box.stop()


def test_power_off_drains_and_the_next_boot_goes_on(prefix: Path, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    os.chown(spool, UID, UID)
    spool.chmod(0o750)
    with _machine(tmp_path / "first", prefix, spool) as first:
        # However long it takes to begin with the power-off, the reader is not through by then.
        first.write("/etc/omq/readers/ORDERS", SLOW, "755")
        first.sh("chgrp -R omq /etc/omq/readers")
        put(first, 0, 80)
        first.run("systemctl", "enable", "--now", READER)
        first.wait("the reader at work", lambda: len(seen(first)) >= 3)
    events = [json.loads(line)["event"]
              for line in (spool / "logs/events.log").read_text().splitlines()]
    stopped = [number for number in events if number in (7202, 7002, 1502, 1202, 1422)]
    assert stopped[0] == 7202  # smtp.server, then the router, idel, the manager, the pool
    assert stopped[-3:] == [1502, 1202, 1422]
    done = [int(line) for line in (spool / "seen").read_text().split()]
    assert done == list(range(len(done)))
    assert len(done) < 80  # in the middle of work
    with _machine(tmp_path / "second", prefix, spool) as second:
        second.run("systemctl", "enable", "--now", READER)
        second.wait("the rest", lambda: len(seen(second)) >= 80)
        assert seen(second) == list(range(80))
        said = json.dumps(second.journal("OMQ_EVENT=1304"))
        assert '"OMQ_CLEAN": "True"' in said


def test_an_upgrade_keeps_what_is_in_flight(installed: Box) -> None:
    start(installed)
    put(installed, 0, 60)
    install_reader(installed)
    installed.run("systemctl", "enable", "--now", READER)
    installed.wait("the reader at work", lambda: len(seen(installed)) >= 3)
    site = installed.sh(f"echo {PREFIX}/lib/python3*/site-packages/omq").strip()
    installed.sh("mkdir -p /opt/next /mnt/next; mount -t tmpfs none /mnt/next;"
                 f" mkdir /mnt/next/up /mnt/next/work; mount -t overlay -o lowerdir={PREFIX},"
                 "upperdir=/mnt/next/up,workdir=/mnt/next/work none /opt/next;"
                 f" cd /opt/next; grep -rlI '^#!{PREFIX}' bin |"
                 f" xargs sed -i 's,^#!{PREFIX},#!/opt/next,'; sed -i"
                 f" 's/__version__ = .*/__version__ = \"9.9.9\"/' {site.replace(PREFIX, '.')}"
                 "/__init__.py")
    assert "files written" in installed.run("/opt/next/bin/omq", "setup")
    installed.run("systemctl", "restart", "omq.target")
    assert "/opt/next/" in installed.run(
        "sh", "-c", f"tr '\\0' ' ' < /proc/{installed.pid('omq-queue-manager.service')}/cmdline")
    installed.wait("all messages", lambda: len(seen(installed)) >= 60)
    assert seen(installed) == list(range(60))
    assert depths(installed)["POISON"] == 0
    assert "9.9.9" in installed.run("sh", "-c", "omstat --version")


def test_a_newer_spool_is_refused_by_older_code(installed: Box) -> None:
    installed.run("systemctl", "stop", "omq.target")
    installed.sh("sed -i 's/\"format\": 1/\"format\": 99/' /var/lib/omq/instance.json")
    assert "failed" in installed.run("omrc", code=69)
    assert installed.show("omq-queue-manager.service", "ExecMainStatus") == "78"
    assert "use the newer omq" in " ".join(
        installed.messages("-u", "omq-queue-manager.service", "-n", "10"))
    installed.sh("sed -i 's/\"format\": 99/\"format\": 1/' /var/lib/omq/instance.json")
    installed.run("systemctl", "reset-failed", "omq-queue-manager.service")
    installed.run("systemctl", "start", "omq-queue-manager.service")
    assert depths(installed)["POISON"] == 0
