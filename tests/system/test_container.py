"""The steps of the Containerfile, the lines of CONTAINERS.md and the services of compose.yaml: omrc
--embedded as process 1 of namespaces of its own, without systemd, and a worker in the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.box import Box
from tests.tidy.tree import ROOT

FILE = (ROOT / "containers/Containerfile").read_text(encoding="utf-8")
DOCUMENT = (ROOT / "lib/omq/docs/CONTAINERS.md").read_text(encoding="utf-8")
COMPOSE = (ROOT / "containers/compose.yaml").read_text(encoding="utf-8")
STEPS = re.findall(r"^RUN (.*)$", FILE, re.MULTILINE)
ENTRY = " ".join(re.findall(r'"([^"]+)"', FILE.partition("ENTRYPOINT")[2]))
PID = "$(pgrep -P $(cat /run/container.pid))"
INSIDE = f"nsenter -t {PID} -m -p -i -n"
AS_USER = "setpriv --reuid=omq --regid=omq --clear-groups"


@pytest.fixture(scope="module")
def box(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A machine on which the image's steps were done; packages come from a folder, so their hashes
    are not those of the index (make deb and the first lines of the README use these)."""
    box = Box(tmp_path_factory.mktemp("box") / "state", {wheels: "/srv/dist"})
    try:
        box.sh("rm -rf /root/.config/pip /root/.pip; mkdir -p /srv/omq;"
               " cp /srv/dist/omq_*.whl /srv/omq")
        box.write("/etc/pip.conf", "[global]\nno-index = true\nfind-links = /srv/dist\n")
        text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
        box.write("/srv/omq/requirements.txt", re.sub(r" \\\n|--hash=\S+", "", text))
        for step in STEPS:
            box.sh(step.replace("--require-hashes ", "").replace("--gid 999", "").replace(
                "--uid 999", "").replace("python3 -m", "/usr/bin/python3 -m"))
        box.write("/etc/omq/queues.conf", "[*]\n[ROUTER]\n[LOCAL]\n[UNIX]\n[ERRMGR]\n[ERROR]\n"
                  "[DEFER]\n[ORDERS]\n")
        box.write("/etc/omq/omq.conf", "[journal]\njournal_file_bytes = 4 MiB\nblock_bytes_max ="
                  " 1 MiB\n[store]\ndisk_reserve_bytes = 0\n[index]\nmessages_max = 20000\n"
                  "queue_entries_max = 25000\n")
        yield box
    finally:
        box.stop(in_order=False)


RUN = """#!/bin/sh
# What an engine does: namespaces, the sysctl, the user; then the entry point as process 1.
unshare --pid --ipc --net --mount --fork --mount-proc --kill-child sh -c '
    mount -t tmpfs tmpfs /run/systemd
    sysctl -q -w kernel.msgmnb=4194304
    exec AS_USER ENTRY' 2>/run/said &
echo $! > /run/container.pid
wait $!
echo $? > /run/ended
"""


def _start(box: Box) -> None:
    box.write("/srv/run", RUN.replace("AS_USER", AS_USER).replace("ENTRY", ENTRY), "755")
    box.sh("rm -f /run/ended /run/said; systemd-run --quiet --collect --unit=container-$$"
           " --setenv=PATH=/opt/omq/bin:$PATH /srv/run")
    box.wait("its process 1", lambda: "omrc" in box.sh(f"cat /proc/{PID}/cmdline || true"))


def _inside(box: Box, words: str) -> str:
    return box.sh(f"{INSIDE} {AS_USER} env PATH=/opt/omq/bin:$PATH {words}")


def _up(box: Box) -> bool:
    return box.sh(f"{INSIDE} {AS_USER} /opt/omq/bin/omstat -a || true").count("Started") == 8


def test_the_page_has_the_steps() -> None:
    assert ENTRY.startswith("omrc --embedded")
    assert "--sysctl kernel.msgmnb=4194304" in DOCUMENT
    assert any("--require-hashes" in step for step in STEPS)


def test_it_is_process_one_and_serves(box: Box) -> None:
    _start(box)
    box.wait("all daemons", lambda: _up(box))
    assert box.sh(f"{INSIDE} cat /proc/1/cmdline | tr '\\0' ' '").count("omrc") == 1
    box.sh(f"echo hello | {INSIDE} {AS_USER} /opt/omq/bin/omsend ORDERS")
    assert "hello" in _inside(box, "omread ORDERS --count 1 -- cat")


def service(name: str) -> str:
    """Its lines of compose.yaml."""
    found = re.search(rf"^  {name}:\n((?:    .*\n|\n)+)", COMPOSE, re.MULTILINE)
    assert found is not None
    return found[1]


def words_of(name: str, key: str) -> str:
    """A list of words of a service, as a command line."""
    (line,) = re.findall(rf"^    {key}: (\[.*\])$", service(name), re.MULTILINE)
    return " ".join(json.loads(line))


def test_the_compose_file_says_what_the_page_says() -> None:
    instance, worker = service("omq"), service("worker")
    assert "dockerfile: containers/Containerfile" in instance and "ipc: shareable" in instance
    assert 'kernel.msgmnb: "4194304"' in instance and "stop_grace_period: 330s" in instance
    assert "ipc: service:omq" in worker and "pid: service:omq" in worker
    for each in (instance, worker):
        assert "spool:/var/lib/omq" in each
    assert "containers/compose.yaml" in DOCUMENT


def test_the_worker_of_the_compose_file_works(box: Box) -> None:
    """In the namespaces of the instance, by the words of its service."""
    tasks = (ROOT / "containers/tasks/tasks.py").read_text(encoding="utf-8")
    box.write("/srv/tasks/tasks.py", tasks)
    box.write("/srv/worker", f"#!/bin/sh\nexec {INSIDE} {AS_USER} env PATH=/opt/omq/bin:$PATH "
              f"{words_of('worker', 'entrypoint')} > /run/shipped\n", "755")
    box.sh("systemd-run --quiet --collect --unit=worker-of-compose --setenv=PATH=$PATH /srv/worker")
    box.sh(f"echo '{{\"id\": 7}}' | {INSIDE} {AS_USER} /opt/omq/bin/omsend ORDERS")
    box.wait("the order is shipped", lambda: "shipped 7" in box.sh(
        "cat /run/shipped 2>/dev/null || true"))
    box.sh("systemctl stop worker-of-compose")


def test_the_instance_of_the_compose_file_has_no_mail(box: Box) -> None:
    said = box.sh(f"{AS_USER} /opt/omq/bin/omrc --help")
    assert f" {words_of('omq', 'command')}" in said


def test_it_reaps_what_others_leave(box: Box) -> None:
    """Each of them loses its parent while it lives, and ends later."""
    box.sh(f"mkfifo /run/go; {INSIDE} sh -c 'for n in 1 2 3; do (exec cat /run/go) & done'"
           " </dev/null >/dev/null 2>&1")
    box.wait("they are its children", lambda: box.sh(
        f"{INSIDE} pgrep -P 1 -c cat || true").strip() == "3")
    box.sh(": > /run/go")
    box.wait("none is left, not even as a zombie", lambda: box.sh(
        f"{INSIDE} pgrep -x cat || true") == "")
    assert _up(box)


def test_signals_reload_and_stop_it(box: Box) -> None:
    box.sh("printf '[LATER]\\n' >> /etc/omq/queues.conf; kill -HUP " + PID)
    box.wait("the new queue", lambda: "LATER" in _inside(box, "omqdump -e L"))
    box.sh("kill -TERM " + PID)
    box.wait("its end", lambda: box.sh("cat /run/ended 2>/dev/null || true").strip() != "")
    assert box.sh("cat /run/ended").strip() == "0"
    assert "all daemons are stopped" in box.sh("cat /run/said")


def test_a_signal_before_it_is_ready_counts(box: Box) -> None:
    """Process 1 gets no signal that it has no handler for, so it must have one early."""
    _start(box)
    box.wait("its first word", lambda: "starting in" in box.sh("cat /run/said 2>/dev/null || true"))
    box.sh("kill -TERM " + PID)
    box.wait("its end", lambda: box.sh("cat /run/ended 2>/dev/null || true").strip() != "")
    assert box.sh("cat /run/ended").strip() == "0"
